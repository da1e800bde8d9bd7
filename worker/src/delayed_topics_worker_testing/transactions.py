"""Transactions of producers other than the worker under test."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition
from delayed_topics_core.headers import Header

from delayed_topics_worker_testing.harness import DeclaredTopic


def produce_in_transaction(
    orders: DeclaredTopic, records: Iterable[tuple[bytes, int, list[Header]]], *, commit: bool = True
) -> None:
    """Produces records in one transaction, as an application does. `records`: value, partition of the front topic, and headers of each."""
    producer = _producer(orders, "app")
    for value, partition, headers in records:
        producer.produce(orders.names.front, value, partition=partition, headers=[*headers])
    assert producer.flush(60) == 0
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


@contextmanager
def open_transaction(orders: DeclaredTopic, topic: str, key: bytes, value: bytes) -> Iterator[None]:
    """Produces a record to this topic in a transaction that is aborted when the block ends."""
    producer = _producer(orders, "app")
    producer.produce(topic, value, key)
    assert producer.flush(60) == 0
    yield
    producer.abort_transaction(60)


def left_open(orders: DeclaredTopic, partition: int) -> Producer:
    """Leaves a transaction open, as a worker does that is killed between the last two steps of a transaction. Kafka does not report the
    committed offset of the front partition until the transaction has ended."""
    at = orders.committed()[orders.names.front, partition]
    producer = _producer(orders, "dead")
    group = Consumer({**orders.harness.connection.client_config(), "group.id": orders.record.group})
    offsets = [TopicPartition(orders.names.front, partition, at.offset, metadata=at.metadata)]
    producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), 60)
    group.close()
    return producer


def _producer(orders: DeclaredTopic, whose: str) -> Producer:
    """Returns a producer whose transaction has begun."""
    name = f"{whose}-{orders.names.front}"
    producer = Producer({**orders.harness.connection.client_config(), "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer
