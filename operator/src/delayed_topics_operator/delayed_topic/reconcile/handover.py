"""Moves topics from the workers of one consumer group to those of another: from workers of their own to shared workers, or back. Pure.

The steps have a fixed order, so that an operator that is stopped between any two of them can continue without guessing:

1. The new workers become ready.
2. The layout is retired. The workers that have the topics commit everything and give the topics up.
3. When no member of their group has any of the partitions, the offsets that are committed in this group are written to the registry.
4. The layout gets the new group and is served again. The new workers begin where the former group ended (`core.handover`).
5. When the new group has committed all of these offsets, they are removed from the registry.

While a group has no members, the registry keeps its committed offsets, because Kafka may expire them before the members are back.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from delayed_topics_core.handover import Handover
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.reasons import Condition
from delayed_topics_core.registry import LayoutRecord, TopicsRecord

from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation
from delayed_topics_operator.workers.reconcile.children import STARTING_SECONDS, all_ready

WAKE_SECONDS: Final = 0.5
MAX_KEPT_METADATA: Final = 16 * 1024
"""The most characters of commit metadata that are kept for a delayed topic. All topics of a connection may be without workers at once, and
the operator reads a registry of a few MiB only."""
MAX_PARTITIONS: Final = 200
"""The most partitions, of the front and delays topics together, whose commit metadata is kept or handed over. A commit takes up to 4 KiB,
and a record of the registry has room for 1 MiB. With more partitions only offsets are written, and records that were released ahead of them
come out again."""


def refused(o: Observation) -> str | None:
    """Returns a sentence that says why the topics stay with their present workers, or None if they need not stay."""
    layout = _own_layout(o)
    if layout is None or layout.group == o.wanted_group or len(layout.waits_ms) <= MAX_PARTITIONS:
        return None
    if layout.group not in (o.wanted.names.group, o.shared_group):
        return None  # this operator doesn't manage those workers: they are another cluster's or installation's, or are to be removed
    whose = "the shared workers" if o.shares_workers else "workers of their own"
    return (
        f"The topics stay with {whose}. A delayed topic can change between shared workers and workers of its own only if its front and "
        f"delays topics have at most {MAX_PARTITIONS} partitions together"
    )


def under_way(o: Observation) -> bool:
    """Whether other workers are to have the topics, and either these workers are ready or the handover has begun."""
    layout = _own_layout(o)
    if layout is None or layout.group == o.wanted_group or refused(o) is not None:
        return False
    return layout.state == "retired" or (layout.state == "serving" and _are_ready(o))


def is_given_up(o: Observation) -> bool:
    """Whether the layout is retired and no worker has any partition of it. A worker that was killed has its partitions until its session
    ends.

    While a group rebalances, Kafka reports no assignments at all, and members may continue with what they have. A client that has reduced
    its subscription joins again only when it has given up the other partitions, and so has committed them.
    """
    layout = _own_layout(o)
    settled = o.kafka is not None and o.kafka.group.settled
    return layout is not None and layout.state == "retired" and settled and not holders(o)


def holders(o: Observation) -> list[str]:
    """Returns the workers that have partitions of the topics."""
    sources = (o.wanted.names.front, o.wanted.names.delays)
    members = o.kafka.group.members if o.kafka is not None else ()
    return sorted(m.client_id for m in members if any(topic in sources for topic, _ in m.assignment))


def updated(o: Observation, kafka: KafkaView, record: TopicsRecord) -> TopicsRecord:
    """Returns the record with the offsets that are handed over to another group, or without them when the handover is over."""
    if under_way(o) and is_given_up(o):
        positions = _positions(record, lambda place: _effective_commit(kafka.committed, record, place, o.group))
        return replace(record, handover=Handover(group=o.wanted_group, positions=positions))
    handover, idle = record.handover, _is_idle(o)
    if not kafka.group.members and (idle if handover is None else handover.kept):
        return kept(o, kafka, record)
    goes_on = handover is not None and handover.group == o.group and not _is_committed(handover, kafka.committed)
    return record if goes_on or (idle and handover is not None and handover.kept) else replace(record, handover=None)


def kept(o: Observation, kafka: KafkaView, record: TopicsRecord) -> TopicsRecord:
    """Returns the record with the offsets that the group has committed, so that they are known when Kafka has expired them. Offsets that
    somebody commits by hand in the meantime count."""
    before = record.handover if record.handover is not None and record.handover.group == o.group else None

    def at(place: TopicPartitionKey) -> OffsetAndMetadata | None:
        own = kafka.committed.get(place)
        return own if before is None else before.goes_on_at(*place, own)

    own_offsets = before is None or before.kept
    positions = _positions(record, at, max_metadata=MAX_KEPT_METADATA if own_offsets else None)
    return replace(record, handover=Handover(group=o.group, positions=positions, kept=own_offsets))


def _positions(
    record: TopicsRecord,
    at: Callable[[TopicPartitionKey], OffsetAndMetadata | None],
    *,
    max_metadata: int | None = None,
) -> dict[str, tuple[OffsetAndMetadata | None, ...]]:
    """Returns the positions by topic, without metadata if there are more than MAX_PARTITIONS, or more than `max_metadata` characters of
    it."""
    found = {topic: tuple(at((topic, p)) for p in range(len(starts))) for topic, starts in record.start_offsets.items()}
    places = [position for of_topic in found.values() for position in of_topic]
    is_small = max_metadata is None or sum(len(position.metadata) for position in places if position) <= max_metadata
    if len(places) <= MAX_PARTITIONS and is_small:
        return found
    return {topic: tuple(at and OffsetAndMetadata(at.offset) for at in of_topic) for topic, of_topic in found.items()}


def _is_idle(o: Observation) -> bool:
    """Whether the group is to have no members, or its workers have not been ready for longer than workers take to start."""
    layout = _own_layout(o)
    if layout is None or layout.state != "serving":
        return False
    if o.has_own_workers and o.wanted.replicas == 0:
        return True
    conditions = (c for c in o.subject.status.conditions if c.type == Condition.WORKERS_READY and c.status == "False")
    return any((o.now - c.last_transition_time).total_seconds() > STARTING_SECONDS for c in conditions)


def places(record: TopicsRecord, layout: LayoutRecord | None, *, at_rest: bool) -> list[TopicPartitionKey]:
    """Returns the partitions whose committed offsets a handover has to know. `at_rest`: the group has no member that commits."""
    if not at_rest and record.handover is None and (layout is None or layout.state != "retired"):
        return []
    return [(topic, p) for topic, starts in record.start_offsets.items() for p in range(len(starts))]


def committed(
    record: TopicsRecord, group: str, found: Mapping[TopicPartitionKey, OffsetAndMetadata | None]
) -> dict[TopicPartitionKey, OffsetAndMetadata | None]:
    """Returns what counts as committed in the group. In a partition that the group has not begun yet, this is the offset that was handed
    over to it."""
    return {place: _effective_commit(found, record, place, group) for place in found}


def _effective_commit(
    found: Mapping[TopicPartitionKey, OffsetAndMetadata | None],
    record: TopicsRecord,
    place: TopicPartitionKey,
    group: str,
) -> OffsetAndMetadata | None:
    own = found.get(place)
    handover = record.handover
    return handover.goes_on_at(*place, own) if handover is not None and handover.group == group else own


def _is_committed(handover: Handover, found: Mapping[TopicPartitionKey, OffsetAndMetadata | None]) -> bool:
    """Whether the group has committed all offsets that were handed over to it, or later ones."""
    places = ((t, p) for t, positions in handover.positions.items() for p in range(len(positions)))
    return all(handover.goes_on_at(*place, own := found.get(place)) == own for place in places)


def _are_ready(o: Observation) -> bool:
    shared = o.connection.shared if isinstance(o.connection, Usable) else None
    if o.wanted_group != o.wanted.names.group:
        return shared is not None and shared.said.status == "True"
    own = (live for (kind, _), live in o.children.items() if kind == "StatefulSet")
    if o.wanted.replicas == 0:
        return o.beyond.workers is None  # the spec asks for 0 workers, and not only the grants allow no more
    return any(all_ready(live, o.wanted.replicas) for live in own)


def _own_layout(o: Observation) -> LayoutRecord | None:
    """Returns the registered layout if it belongs to this resource."""
    layout = o.kafka.registered.layout if o.kafka is not None else None
    return layout if layout is not None and layout.owner == o.subject.owner else None
