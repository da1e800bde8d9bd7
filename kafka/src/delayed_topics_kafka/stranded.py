"""Clients that know no broker any more, and clients that no broker lets in: what they tell by their callbacks."""

from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError

LOOK_SECONDS: Final = 5


def when_stranded(note: Callable[[], None], also: Callable[[str], object] | None = None) -> dict[str, Any]:
    """Settings with which a client calls `note` once it is stranded. It does so while it is polled. If nobody polls it, its statistics pile
    up, 3 kB and more each time: then set `statistics.interval.ms` to 0. `also` is called with the statistics, too.

    A client (librdkafka 2.10 to 2.16) that is told of a topic and of no broker gives up all brokers that it had, and never goes back to its
    bootstrap servers (`rd_kafka_metadata_decommission_unavailable_brokers`). It can only be replaced. Brokers that were all away at once
    tell a client the same for a moment when they come back. Only its statistics say whether it still knows a broker.
    """
    looks_without = 0

    def look(statistics: str) -> None:
        nonlocal looks_without
        # parsing the text of a thousand partitions takes 20 ms
        knows = any(f'"source":"{source}"' in statistics for source in ("configured", "learned"))
        looks_without = 0 if knows else looks_without + 1
        if looks_without > 1:  # a client that begins anew by itself has none for a moment
            note()
        if also is not None:
            also(statistics)

    return {"statistics.interval.ms": LOOK_SECONDS * 1000, "stats_cb": look}


def note_shut_out(told: list[KafkaError], error: KafkaError) -> None:
    """Adds to `told` why no broker lets the client in; for its `error_cb`. This is no method of the client's owner: both would then refer
    to each other, and only Python's search for cycles would free them."""
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
        told.append(error)
        del told[:-10]  # a client may be shut out for days, and nobody ask for anything
