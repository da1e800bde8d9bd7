"""What people do to a delayed topic by hand, while its workers are stopped."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException

from delayed_topics_e2e.tenant import Declared
from delayed_topics_e2e.waiting import until

__all__ = ["move_offset", "stopped"]


@contextmanager
def stopped(orders: Declared, *, replicas: int = 1) -> Iterator[None]:
    """No worker runs; afterwards so many do again."""
    orders.scale(0)
    until(lambda: len(orders.pods()), what="no worker runs", enough=lambda n: n == 0)
    yield
    orders.scale(replicas)
    orders.wait_ready()


def move_offset(orders: Declared, partition: int, offset: int) -> None:
    """Of the front topic, as `kafka-consumer-groups --reset-offsets` does."""

    def moved() -> bool:
        try:
            orders.kafka.commit(orders.names.group, orders.topic, partition, offset)
        except (KafkaException, AssertionError):
            return False
        return True

    until(moved, what="the group has no member left, and its offset can be moved", poll_seconds=1)
