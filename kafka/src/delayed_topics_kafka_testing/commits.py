"""What a group has committed."""

from collections.abc import Iterable

from confluent_kafka import Consumer, TopicPartition
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import CommittedOffset, TopicPartitionKey


def committed_of(
    connection: Connection, group: str, partitions: Iterable[TopicPartitionKey]
) -> dict[TopicPartitionKey, CommittedOffset]:
    """Of the partitions that have a commit; one in a transaction that is open doesn't count. Raises KafkaException.

    By a consumer: the admin client (2.16) crashes when the group's coordinator moves meanwhile, see
    https://github.com/confluentinc/librdkafka/issues/5040. The operator asks by a helper process for that reason.
    """
    config = {**connection.client_config(), "group.id": group, "isolation.level": "read_uncommitted"}
    consumer = Consumer(config)
    try:
        answered = consumer.committed([TopicPartition(*place) for place in partitions], timeout=60)
    finally:
        consumer.close()
    return {
        (tp.topic, tp.partition): CommittedOffset(tp.offset, tp.metadata or "")
        for tp in answered
        if tp.error is None and tp.offset >= 0
    }
