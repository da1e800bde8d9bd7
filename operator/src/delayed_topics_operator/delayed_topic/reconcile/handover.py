"""Topics go from workers with one consumer group to workers with another: their own, or those that several share. Pure.

In this order, so that a stop between any two steps leaves nothing to guess. The workers that are to come are ready. The layout is
retired, and the workers that have the topics give them up, with everything committed. When no member of their group has any of it, the
registry gets what is committed there, and then the layout has the new group and serves again. The new workers begin where the former
group was (`core.handover`), and when all of them have committed that, the registry forgets it.

While a group has no members, the registry keeps what it has committed, which Kafka may forget before they are back.
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
"""Characters. All topics of a connection may be without workers at once, and the operator reads a registry of a few MiB only."""
MAX_PARTITIONS: Final = 200
"""Of front and delays. What is committed of each takes up to 4 KiB, and a record of the registry has room for 1 MiB. Beyond that only
offsets are handed over, and what was released ahead of them comes out again."""


def refused(o: Observation) -> str | None:
    """Returns a sentence that says why the topics stay with their present workers, or None if they need not stay."""
    layout = _layout(o)
    if layout is None or layout.group == o.wanted_group or len(layout.waits_ms) <= MAX_PARTITIONS:
        return None
    if layout.group not in (o.wanted.names.group, o.shared_group):
        return None  # nobody here looks after those workers: they are another cluster's, or another installation's, or are to go
    whose = "the shared workers" if o.shares_workers else "workers of their own"
    return (
        f"The topics stay with {whose}. A delayed topic can change between shared workers and workers of its own only if its front and "
        f"delays topics have at most {MAX_PARTITIONS} partitions together"
    )


def under_way(o: Observation) -> bool:
    """Whether other workers are to have the topics, and those can begin."""
    layout = _layout(o)
    if layout is None or layout.group == o.wanted_group or refused(o) is not None:
        return False
    return layout.state == "retired" or (layout.state == "serving" and _are_ready(o))


def is_given_up(o: Observation) -> bool:
    """Whether nobody has any of a layout that is retired. A worker that was killed has it until its session is over.

    While a group rebalances, Kafka tells of no assignments at all, and members may go on with what they have. A client that has
    subscribed to less joins again only when it has given up the rest, and so has committed it.
    """
    layout = _layout(o)
    settled = o.kafka is not None and o.kafka.group.settled
    return layout is not None and layout.state == "retired" and settled and not holders(o)


def holders(o: Observation) -> list[str]:
    """The workers that have some of it."""
    sources = (o.wanted.names.front, o.wanted.names.delays)
    members = o.kafka.group.members if o.kafka is not None else ()
    return sorted(m.client_id for m in members if any(topic in sources for topic, _ in m.assignment))


def noted(o: Observation, kafka: KafkaView, record: TopicsRecord) -> TopicsRecord:
    """The record with the offsets that are handed over to another group, or without them when the handover is over."""
    if under_way(o) and is_given_up(o):
        positions = _positions(record, lambda place: _at(kafka.committed, record, place, o.group))
        return replace(record, handover=Handover(group=o.wanted_group, positions=positions))
    handover, idle = record.handover, _is_idle(o)
    if not kafka.group.members and (idle if handover is None else handover.kept):
        return kept(o, kafka, record)
    goes_on = handover is not None and handover.group == o.group and not _arrived(handover, kafka.committed)
    return record if goes_on or (idle and handover is not None and handover.kept) else replace(record, handover=None)


def kept(o: Observation, kafka: KafkaView, record: TopicsRecord) -> TopicsRecord:
    """The record with the offsets that the group has committed, so that they are known when Kafka has forgotten them. Offsets that somebody
    commits by hand meanwhile count."""
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
    """`max_metadata`: characters of all of them; without metadata if there are more."""
    found = {topic: tuple(at((topic, p)) for p in range(len(starts))) for topic, starts in record.start_offsets.items()}
    places = [position for of_topic in found.values() for position in of_topic]
    is_small = max_metadata is None or sum(len(position.metadata) for position in places if position) <= max_metadata
    if len(places) <= MAX_PARTITIONS and is_small:
        return found
    return {topic: tuple(at and OffsetAndMetadata(at.offset) for at in of_topic) for topic, of_topic in found.items()}


def _is_idle(o: Observation) -> bool:
    """Whether its group is to have no members, or should have had some for longer than they take to start."""
    layout = _layout(o)
    if layout is None or layout.state != "serving":
        return False
    if o.has_own_workers and o.wanted.replicas == 0:
        return True
    conditions = (c for c in o.subject.status.conditions if c.type == Condition.WORKERS_READY and c.status == "False")
    return any((o.now - c.last_transition_time).total_seconds() > STARTING_SECONDS for c in conditions)


def places(record: TopicsRecord, layout: LayoutRecord | None, *, at_rest: bool) -> list[TopicPartitionKey]:
    """The partitions whose committed offsets a handover has to know. `at_rest`: nobody commits any more."""
    if not at_rest and record.handover is None and (layout is None or layout.state != "retired"):
        return []
    return [(topic, p) for topic, starts in record.start_offsets.items() for p in range(len(starts))]


def committed(
    record: TopicsRecord, group: str, found: Mapping[TopicPartitionKey, OffsetAndMetadata | None]
) -> dict[TopicPartitionKey, OffsetAndMetadata | None]:
    """What counts as committed in a group, which may not have begun everywhere with what was handed over to it."""
    return {place: _at(found, record, place, group) for place in found}


def _at(
    found: Mapping[TopicPartitionKey, OffsetAndMetadata | None],
    record: TopicsRecord,
    place: TopicPartitionKey,
    group: str,
) -> OffsetAndMetadata | None:
    own = found.get(place)
    handover = record.handover
    return handover.goes_on_at(*place, own) if handover is not None and handover.group == group else own


def _arrived(handover: Handover, found: Mapping[TopicPartitionKey, OffsetAndMetadata | None]) -> bool:
    """Whether the group has committed that much, everywhere."""
    places = ((t, p) for t, positions in handover.positions.items() for p in range(len(positions)))
    return all(handover.goes_on_at(*place, own := found.get(place)) == own for place in places)


def _are_ready(o: Observation) -> bool:
    shared = o.connection.shared if isinstance(o.connection, Usable) else None
    if o.wanted_group != o.wanted.names.group:
        return shared is not None and shared.said.status == "True"
    own = (live for (kind, _), live in o.children.items() if kind == "StatefulSet")
    if o.wanted.replicas == 0:
        return o.beyond.workers is None  # asked for, and not all that is granted
    return any(all_ready(live, o.wanted.replicas) for live in own)


def _layout(o: Observation) -> LayoutRecord | None:
    """Its own."""
    layout = o.kafka.registered.layout if o.kafka is not None else None
    return layout if layout is not None and layout.owner == o.subject.owner else None
