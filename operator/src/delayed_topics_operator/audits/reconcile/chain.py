"""Where the chain of audits of a delayed topic stands. Pure."""

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.carried import Carried
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import AuditedRecord, TopicsRecord
from delayed_topics_core.registry_state import RegistryState


def chained(registry: RegistryState, noted: TopicsRecord, names: TopicNames) -> AuditedRecord | None:
    """Returns where the chain of audits of these very topics stands. None: the chain begins."""
    last = registry.audited.get(names.front)
    same = last is not None and all(last.ids.get(name) == noted.ids.get(name) for name in names.topics)
    return last if same else None


def ended(window: AuditWindow, pending_since_ms: int | None, carried: Carried | None = None) -> AuditedRecord:
    """Returns where the chain stands after an audit of this window. It never goes back, even if someone has reset the offsets of the group,
    because the records have been accounted for."""
    names = TopicNames.of(window.topic)

    def settled(name: str) -> tuple[int, ...]:
        begun, committed = window.from_offsets[name], window.committed_offsets[name]
        return (*map(max, begun, committed), *committed[len(begun) :])

    return AuditedRecord(
        topic=window.topic,
        ids=window.topic_ids,
        offsets={name: settled(name) for name in (names.front, names.delays)},
        since_ms=min(window.frozen_at_ms, pending_since_ms or window.frozen_at_ms),
        ready_partitions=window.ready_partitions,
        made_again=window.made_again,
        ends={
            name: window.end_offsets[name] for name in (names.delays, names.ready, names.dead_letter, *window.targets)
        },
        carried=carried,
    )
