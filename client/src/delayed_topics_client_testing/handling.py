"""Consumers with a handler that end after a number of records."""

from collections.abc import Callable

from delayed_topics import DelayedTopic, Record

from delayed_topics_client_testing import Served


def handle_all(
    served: Served,
    count: int,
    handler: Callable[[Record], object],
    group: str = "shipping",
    ready_topic: str | None = None,
) -> list[Record]:
    """Runs a consumer until it has got `count` records."""
    seen: list[Record] = []

    def counted(record: Record) -> None:
        seen.append(record)
        if len(seen) == count:
            consumer.stop()
        handler(record)

    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        consumer = orders.consumer(group, counted, ready_topic=ready_topic)
        consumer.run()
    return seen


def nothing(_: Record) -> None:
    """A handler that succeeds."""


def fail(_: Record) -> None:
    raise RuntimeError("not now")
