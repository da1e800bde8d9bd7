"""What a group has committed."""

from collections.abc import Iterable

from confluent_kafka import Consumer, TopicPartition
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import CommittedOffset, TopicPartitionKey


def committed_of(
    connection: Connection, group: str, partitions: Iterable[TopicPartitionKey], *, ended: bool
) -> dict[TopicPartitionKey, CommittedOffset]:
    """Of the partitions that have a commit. `ended`: waits for the end of transactions; else one that is open doesn't count.

    Raises KafkaException.

    By a consumer: the admin client (2.16) crashes when the group's coordinator moves meanwhile, see
    https://github.com/confluentinc/librdkafka/issues/5040. The operator asks by a helper process for that reason.
    """
    isolation = "read_committed" if ended else "read_uncommitted"
    consumer = Consumer({**connection.client_config(), "group.id": group, "isolation.level": isolation})
    try:
        answered = consumer.committed([TopicPartition(*place) for place in partitions], timeout=60)
    finally:
        consumer.close()
    return {
        (tp.topic, tp.partition): CommittedOffset(tp.offset, tp.metadata or "")
        for tp in answered
        if tp.error is None and tp.offset >= 0
    }
