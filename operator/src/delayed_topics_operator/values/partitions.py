"""How many partitions topics have, as quotas count them."""

from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord, TopicsRecord


def partitions_of(record: LayoutRecord, topics: TopicsRecord | None) -> int:
    """Returns the partitions of all topics of a delayed topic. `topics`: the registry's record of the topics. A control topic counts as
    long as this record has it."""
    partitions = all_partitions(record.front_partitions, record.layout.partition_count, record.ready_partitions)
    return partitions + has_control(topics)


def all_partitions(front: int, delays: int, ready: int) -> int:
    """Counts as many partitions for the dead-letter topic as for the ready topic. It is created with as many, and does not grow with it."""
    return front + delays + 2 * ready


def has_control(record: TopicsRecord | None) -> bool:
    """Whether the registry's record of these topics has a control topic."""
    return record is not None and TopicNames.of(record.topic).control in record.ids
