"""Commits offsets of a consumer group without members."""

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaUnreachable, TopicMissing, call_error, kafka_error


def commit(connection: Connection, group: str, offsets: Mapping[TopicPartitionKey, OffsetAndMetadata]) -> None:
    """Commits with a consumer, because the admin client can abort this process when the broker goes away later
    (https://github.com/confluentinc/librdkafka/issues/3663). Retries, because one of several brokers may not know a new topic yet,
    and a member that has just ended may still be in the group."""
    places = [TopicPartition(*place, at.offset, at.metadata) for place, at in offsets.items()]
    consumer = Consumer({**connection.client_config(), "group.id": group, "enable.auto.commit": False})

    def is_committed() -> bool:
        try:
            answered = consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as e:
            refused = kafka_error(e)
            if refused.code() == KafkaError.UNKNOWN_MEMBER_ID:
                return False
            error = call_error(refused, doing="committing", bootstrap_servers=connection.bootstrap_servers)
            assert isinstance(error, KafkaUnreachable | TopicMissing), error
            return False
        return all(place.error is None for place in answered)

    try:
        wait_until(is_committed, what=f"the offsets of group {group} are committed", timeout_seconds=60)
    finally:
        consumer.close()
