"""Other ready topics, as an audit finds them. They belong to other people, who delete them and create them again."""

from collections.abc import Mapping
from dataclasses import dataclass

from delayed_topics_core.registry import AuditedRecord, LayoutRecord
from delayed_topics_crds.audit import Window
from delayed_topics_kafka.errors import KafkaRefused
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_operator.gateways.kafka import KafkaLink

CLOCKS_MS = 600_000
"""How wrong the brokers' clocks may have been when a record was appended. Reading more costs little."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """`found`: the existing topics into which records may have been released, in the order in which that was allowed. `made_again`,
    `perhaps_unseen`: as in AuditWindow."""

    found: Mapping[str, TopicInfo]
    made_again: tuple[str, ...]
    perhaps_unseen: tuple[str, ...]


async def targets(link: KafkaLink, layout: LayoutRecord, last: AuditedRecord | None, asked: Window) -> Targets:
    """`last`: where the chain of audits stands, whether or not `asked` continues there. Raises KafkaCallError."""
    known: dict[str, TopicInfo | None] = {}
    messages: list[str] = []
    for name in layout.all_targets:
        try:
            known |= await link.topics([name])
        except KafkaRefused as e:
            messages.append(f"records may have been released into topic {name}, which can't be read: {e}")
    found = {name: info for name, info in known.items() if info is not None}
    messages += [
        f"records may have been released into topic {name}, which does not exist" for name in known if name not in found
    ]
    ids = last.ids if last is not None else {}
    since_last = {name for name in known if name in ids and (name not in found or found[name].id != ids[name])}
    made_again = since_last.union(last.made_again if last is not None else ())
    # a chain has accounted for what was released into the former topic
    hidden = since_last if asked.since_last else made_again
    messages += [
        f"topic {name} was deleted and created again. Records may have been released into the former one"
        for name in found
        if name in hidden
    ]
    forgotten_ms = layout.ready_topics_forgotten_ms
    if forgotten_ms and forgotten_ms > _begin_ms(last, asked) - CLOCKS_MS:
        messages.append(
            "records may have been released into former ready topics, of which there were too many to note them all"
        )
    return Targets(found=found, made_again=tuple(sorted(made_again)), perhaps_unseen=tuple(messages))


def _begin_ms(last: AuditedRecord | None, asked: Window) -> int:
    """Returns the time since which the audited records came in, in milliseconds."""
    if asked.from_ is not None:
        return int(asked.from_.timestamp() * 1000)
    return last.since_ms if last is not None and asked.since_last else 0
