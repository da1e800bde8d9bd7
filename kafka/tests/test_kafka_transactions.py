from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_kafka.transactions import send_offsets

pytestmark = pytest.mark.broker


def test_what_a_producer_that_is_gone_left_open_ends_and_it_can_not_go_on(
    admin: KafkaAdmin, connection: Connection, fresh: Callable[[str], str]
) -> None:
    topic, mine = fresh("fence"), fresh("worker")
    admin.create_topics([NewTopicSpec(name=topic, partitions=1, replication_factor=1)])
    gone = Producer({**connection.client_config(), "transactional.id": mine})
    gone.init_transactions(120)
    gone.begin_transaction()
    gone.produce(topic, b"v")
    gone.flush(120)
    assert admin.list_offsets([(topic, 0)], "latest", isolation="read_committed") == {(topic, 0): 0}

    ids = [mine, fresh("never-seen")]
    assert admin.fence(ids) == dict.fromkeys(ids)

    assert admin.list_offsets([(topic, 0)], "latest", isolation="read_committed") == {(topic, 0): 2}
    with pytest.raises(KafkaException) as raised:
        gone.commit_transaction(120)
    assert raised.value.args[0].code() == KafkaError._FENCED


def test_a_coordinator_that_never_answers_ends_a_call_and_not_the_caller(connection: Connection) -> None:
    """See worker/tests/test_relay_outage.py for the same with a real broker that restarts."""
    answer = Event()

    class Waiting(Producer):
        def send_offsets_to_transaction(self, *args: Any) -> None:
            answer.wait()

    try:
        with pytest.raises(KafkaException) as raised:
            send_offsets(Waiting(connection.client_config()), [TopicPartition("orders", 0, 1)], None, 0.1)
    finally:
        answer.set()
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT


def test_what_the_client_raises_is_raised(connection: Connection) -> None:
    config = connection.client_config()
    membership = Consumer({**config, "group.id": "shipping"}).consumer_group_metadata()
    with pytest.raises(KafkaException) as raised:
        send_offsets(Producer(config), [TopicPartition("orders", 0, 1)], membership, 60)
    assert raised.value.args[0].code() == KafkaError._NOT_CONFIGURED


def test_what_nobody_expects_of_the_client_is_raised_too_and_not_taken_for_a_silent_coordinator(
    connection: Connection,
) -> None:
    producer = Producer({**connection.client_config(), "transactional.id": "orders"})
    with pytest.raises(TypeError):
        send_offsets(producer, [TopicPartition("orders", 0, 1)], None, 60)
