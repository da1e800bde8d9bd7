"""Transactions of others than the worker that is looked at."""

from collections.abc import Iterable

from confluent_kafka import Consumer, Producer, TopicPartition
from delayed_topics_core.headers import Header

from delayed_topics_worker_testing.harness import DeclaredTopic


def produce_in_transaction(
    orders: DeclaredTopic, records: Iterable[tuple[bytes, int, list[Header]]], *, commit: bool = True
) -> None:
    """As an application does: value, partition of the front topic, and headers of each record."""
    producer = _producer(orders, "app")
    for value, partition, headers in records:
        producer.produce(orders.names.front, value, partition=partition, headers=[*headers])
    assert producer.flush(60) == 0
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


def left_open(orders: DeclaredTopic, partition: int) -> Producer:
    """What a worker leaves that is killed between the last two steps of a transaction: Kafka doesn't tell the offset of the
    front partition until it has ended."""
    at = orders.committed()[orders.names.front, partition]
    producer = _producer(orders, "dead")
    group = Consumer({**orders.harness.connection.client_config(), "group.id": orders.record.group})
    offsets = [TopicPartition(orders.names.front, partition, at.offset, metadata=at.metadata)]
    producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), 60)
    group.close()
    return producer


def _producer(orders: DeclaredTopic, whose: str) -> Producer:
    """Of a transaction that has begun."""
    name = f"{whose}-{orders.names.front}"
    producer = Producer({**orders.harness.connection.client_config(), "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer
