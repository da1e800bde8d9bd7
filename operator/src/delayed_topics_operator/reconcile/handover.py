"""Topics go from workers with one consumer group to workers with another: their own, or those that several share. Pure.

In this order, so that a stop between any two steps leaves nothing to guess. The workers that are to come are ready. The layout is
retired, and the workers that have the topics give them up, with everything committed. When no member of their group has any of it, the
registry gets what is committed there, and then the layout has the new group and serves again. The new workers begin where the former
group was (`core.handover`), and when all of them have committed that, the registry forgets it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from delayed_topics_core.handover import NOTHING, Handover, Position, further
from delayed_topics_core.registry import LayoutRecord, TopicsRecord
from delayed_topics_kafka.model import CommittedOffset, TopicPartitionKey

from delayed_topics_operator.observation import KafkaView, Observation, Usable
from delayed_topics_operator.reconcile.children import all_ready

WAKE_SECONDS: Final = 0.5
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
    """With what is handed over, or without it when it is over."""
    if under_way(o) and is_given_up(o):
        whole = sum(map(len, record.start_offsets.values())) <= MAX_PARTITIONS
        positions = {
            topic: tuple(_at(kafka.committed, record, (topic, p), o.group) for p in range(len(starts)))
            for topic, starts in record.start_offsets.items()
        }
        if not whole:
            positions = {topic: tuple(Position(p.offset) for p in of_topic) for topic, of_topic in positions.items()}
        return replace(record, handover=Handover(group=o.wanted_group, positions=positions))
    handover = record.handover
    if handover is None or (handover.group == o.group and not _arrived(handover, kafka.committed)):
        return record
    return replace(record, handover=None)


def places(record: TopicsRecord, layout: LayoutRecord | None) -> list[TopicPartitionKey]:
    """Whose committed offsets have to be known for it."""
    if record.handover is None and (layout is None or layout.state != "retired"):
        return []
    return [(topic, p) for topic, starts in record.start_offsets.items() for p in range(len(starts))]


def committed(
    record: TopicsRecord, group: str, found: Mapping[TopicPartitionKey, CommittedOffset | None]
) -> dict[TopicPartitionKey, CommittedOffset | None]:
    """What counts as committed in a group, which may not have begun everywhere with what was handed over to it."""
    at = {place: _at(found, record, place, group) for place in found}
    return {place: CommittedOffset(*position) if position != NOTHING else None for place, position in at.items()}


def _at(
    found: Mapping[TopicPartitionKey, CommittedOffset | None],
    record: TopicsRecord,
    place: TopicPartitionKey,
    group: str,
) -> Position:
    own = _position(found.get(place))
    handover = record.handover
    return further(own, handover.of(*place)) if handover is not None and handover.group == group else own


def _position(found: CommittedOffset | None) -> Position:
    return NOTHING if found is None else Position(*found)


def _arrived(handover: Handover, found: Mapping[TopicPartitionKey, CommittedOffset | None]) -> bool:
    """Whether the group has committed that much, everywhere."""
    places = ((t, p, position) for t, positions in handover.positions.items() for p, position in enumerate(positions))
    return all(further(own := _position(found.get((t, p))), position) == own for t, p, position in places)


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
