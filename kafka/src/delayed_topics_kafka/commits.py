"""What a group has committed, asked for by a consumer that joins nothing."""

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
    """The offsets of the partitions that have a commit. Raises KafkaCallError.

    Offsets of an open transaction don't count. With `ended`, the call waits for the end of the transaction instead.

    For programs that have to survive the call. The admin client (2.16) crashes when the group's coordinator moves meanwhile, see
    https://github.com/confluentinc/librdkafka/issues/5040. The operator asks for many groups, and does so by an admin client in a helper
    process.
    """
    places, deadline = list(partitions), Deadline(timeout_seconds)
    with OffsetsReader(connection, group, ended=ended) as reader:
        # a broker that is not the coordinator any more says so at once, and the client gives up
        return until_reached(lambda: reader.read(places, deadline.remaining_seconds), deadline)


class OffsetsReader(Closing):
    """As `committed_offsets`, for many calls in a row. Its client is not polled between the calls, so it is not for a program that keeps
    it, see stranded.py."""

    def __init__(self, connection: Connection, group: str, *, ended: bool) -> None:
        self._bootstrap_servers = connection.bootstrap_servers
        self._group = group
        isolation = "read_committed" if ended else "read_uncommitted"
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer({**connection.client_config(), "group.id": group, "isolation.level": isolation})

    def read(
        self, partitions: Iterable[TopicPartitionKey], timeout_seconds: float
    ) -> dict[TopicPartitionKey, OffsetAndMetadata]:
        """The offsets of the partitions that have a commit. Raises KafkaCallError."""
        try:
            places = [TopicPartition(*place) for place in partitions]
            answered = self._consumer.committed(places, timeout=timeout_seconds)
            for tp in answered:
                if tp.error is not None:
                    raise KafkaException(tp.error)
        except KafkaException as e:
            # the client asks a coordinator that refuses until the timeout, and tells of the refusal here
            told = self._consumer.poll(0)
            error = (told and told.error()) or kafka_error(e)
            doing = f"reading the offsets of group {self._group}"
            raise call_error(error, doing=doing, bootstrap_servers=self._bootstrap_servers) from e
        return {
            (tp.topic, tp.partition): OffsetAndMetadata(tp.offset, tp.metadata or "")
            for tp in answered
            if tp.offset >= 0
        }

    def close(self) -> None:
        self._consumer.close()
