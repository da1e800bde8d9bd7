"""Reads the committed records of a topic."""

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection


def read_committed(connection: Connection, topic: str, *, ended: bool = True) -> list[Message]:
    """Returns all committed records of a topic, those of a partition in order.

    With `ended`, waits for the ends of transactions first. Kafka acknowledges a commit before its marker is in each partition.
    """
    config = {"group.id": "looks", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**connection.client_config(), **config})
    partitions = range(len(consumer.list_topics(topic, 120).topics[topic].partitions))
    if ended:
        admin, places = KafkaAdmin(connection), [(topic, p) for p in partitions]
        wait_until(
            lambda: (
                admin.list_offsets(places, "latest", isolation="read_committed") == admin.list_offsets(places, "latest")
            ),
            what=f"the transactions of {topic} have ended",
        )
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    messages: list[Message] = []
    at_end: set[int | None] = set()
    while len(at_end) < len(partitions):
        for message in consumer.consume(1000, 1.0):
            if (error := message.error()) is None:
                messages.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                at_end.add(message.partition())
    consumer.close()
    return messages
