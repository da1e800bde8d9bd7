"""How many partitions topics have, as quotas count them."""

from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord, TopicsRecord


def partitions_of(record: LayoutRecord, topics: TopicsRecord | None) -> int:
    """Of all topics, as quotas count them. `topics`: what is noted of them. A control topic counts for as long as it is kept."""
    partitions = all_partitions(record.front_partitions, record.layout.partition_count, record.ready_partitions)
    return partitions + has_control(topics)


def all_partitions(front: int, delays: int, ready: int) -> int:
    """The dead-letter topic is made with as many as the ready topic, and does not grow with it."""
    return front + delays + 2 * ready


def has_control(record: TopicsRecord | None) -> bool:
    """Whether a control topic was made, and noted, for these topics."""
    return record is not None and TopicNames.of(record.topic).control in record.ids
