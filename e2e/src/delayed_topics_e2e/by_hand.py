"""Manual changes to a delayed topic while its workers are stopped."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException

from delayed_topics_e2e.tenant import Declared
from delayed_topics_e2e.waiting import until

__all__ = ["move_offset", "stopped"]


@contextmanager
def stopped(orders: Declared, *, replicas: int = 1) -> Iterator[None]:
    """Stops all workers for the duration of the block, and starts `replicas` workers afterwards."""
    orders.scale(0)
    until(lambda: len(orders.pods()), what="no worker runs", enough=lambda n: n == 0)
    yield
    orders.scale(replicas)
    orders.wait_ready()


def move_offset(orders: Declared, partition: int, offset: int) -> None:
    """Moves the committed offset of a partition of the front topic, as `kafka-consumer-groups --reset-offsets` does."""

    def moved() -> bool:
        try:
            orders.kafka.commit(orders.names.group, orders.topic, partition, offset)
        except (KafkaException, AssertionError):
            return False
        return True

    until(moved, what="the group has no members, so that its offset can be moved", poll_seconds=1)
