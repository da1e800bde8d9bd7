from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.messages import headers_of
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_worker_testing.foreign_client import produce_with_raw_header_key


@pytest.mark.broker
def test_a_hot_loop_survives_header_names_that_are_not_utf8(
    connection: Connection, admin: KafkaAdmin, fresh: Callable[[str], str]
) -> None:
    """A hundred valid records come first, so that CPython has specialized the loop."""
    topic = fresh("headers")
    admin.create_topics([NewTopicSpec(name=topic, partitions=1, replication_factor=1)])
    producer = Producer(connection.client_config())
    for _ in range(100):
        producer.produce(topic, b"good", headers=[("name", b"1"), ("name", None)])
    producer.produce(topic, b"none")
    assert producer.flush(120) == 0
    for _ in range(10):
        produce_with_raw_header_key(
            connection, topic, partition=0, key=b"k", value=b"bad", headers=[(b"caf\xe9", b"latin-1")]
        )
    consumer = Consumer({**connection.client_config(), "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = [consumer.poll(20) for _ in range(111)]
    consumer.close()
    found = [headers_of(message) for message in messages if message is not None]
    assert found == [[("name", b"1"), ("name", None)]] * 100 + [()] + [None] * 10
