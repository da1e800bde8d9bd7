"""Reads the committed offsets of a consumer group, with a consumer that does not join the group."""

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey

from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline, until_reached
from delayed_topics_kafka.errors import call_error, kafka_error, making_client


def committed_offsets(
    connection: Connection,
    group: str,
    partitions: Iterable[TopicPartitionKey],
    *,
    timeout_seconds: float = 10,
    ended: bool = False,
) -> dict[TopicPartitionKey, OffsetAndMetadata]:
    """Returns the offsets of the partitions that have a commit. Raises KafkaCallError.

    Offsets of an open transaction are not included. With `ended`, the call waits for the end of the transaction instead.

    A consumer makes the call, because the admin client (2.16) crashes the process if the group's coordinator moves meanwhile, see
    https://github.com/confluentinc/librdkafka/issues/5040. The operator, which asks for many groups at once, uses an admin client in a
    helper process.
    """
    places, deadline = list(partitions), Deadline(timeout_seconds)
    with OffsetsReader(connection, group, ended=ended) as reader:
        # a broker that is no longer the coordinator answers that at once, and the client does not try again
        return until_reached(lambda: reader.read(places, deadline.remaining_seconds), deadline)


class OffsetsReader(Closing):
    """As `committed_offsets`, for many calls in a row. Do not keep a reader for long: nothing polls its client between calls, so a
    stranded client would go unnoticed (see stranded.py)."""

    def __init__(self, connection: Connection, group: str, *, ended: bool) -> None:
        self._bootstrap_servers = connection.bootstrap_servers
        self._group = group
        isolation = "read_committed" if ended else "read_uncommitted"
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer({**connection.client_config(), "group.id": group, "isolation.level": isolation})

    def read(
        self, partitions: Iterable[TopicPartitionKey], timeout_seconds: float
    ) -> dict[TopicPartitionKey, OffsetAndMetadata]:
        """Returns the offsets of the partitions that have a commit. Raises KafkaCallError."""
        try:
            places = [TopicPartition(*place) for place in partitions]
            answered = self._consumer.committed(places, timeout=timeout_seconds)
            for tp in answered:
                if tp.error is not None:
                    raise KafkaException(tp.error)
        except KafkaException as e:
            # if the coordinator refuses, the client asks it again until the timeout, and reports the refusal only to a poll
            event = self._consumer.poll(0)
            error = (event and event.error()) or kafka_error(e)
            doing = f"reading the offsets of group {self._group}"
            raise call_error(error, doing=doing, bootstrap_servers=self._bootstrap_servers) from e
        return {
            (tp.topic, tp.partition): OffsetAndMetadata(tp.offset, tp.metadata or "")
            for tp in answered
            if tp.offset >= 0
        }

    def close(self) -> None:
        self._consumer.close()
