"""Detects, from the callbacks of clients, those that no longer know any broker, or whose credentials are refused."""

from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError

LOOK_SECONDS: Final = 5


def when_stranded(note: Callable[[], None], also: Callable[[str], object] | None = None) -> dict[str, Any]:
    """Returns properties with which a client calls `note` once it is stranded. `also`, if given, gets the client's statistics, too.

    The client makes these calls while it is polled. If nothing polls a client, set its `statistics.interval.ms` to 0: its statistics would
    pile up in memory, 3 kB or more each time.

    A client (librdkafka 2.10 to 2.16) is stranded if a metadata response has a topic but no brokers. It then gives up all brokers that it
    knew, and never returns to its bootstrap servers (`rd_kafka_metadata_decommission_unavailable_brokers`), so it has to be replaced.
    Brokers send such a response for a moment when they come back after all of them were away. Only the statistics of a client show whether
    it still knows a broker.
    """
    checks_without_broker = 0

    def look(statistics: str) -> None:
        nonlocal checks_without_broker
        # not parsed as JSON, which takes 20 ms with a thousand partitions
        knows = any(f'"source":"{source}"' in statistics for source in ("configured", "learned"))
        checks_without_broker = 0 if knows else checks_without_broker + 1
        if checks_without_broker > 1:  # a client that recovers by itself has no broker only for a moment
            note()
        if also is not None:
            also(statistics)

    return {"statistics.interval.ms": LOOK_SECONDS * 1000, "stats_cb": look}


def collect_auth_error(errors: list[KafkaError], error: KafkaError) -> None:
    """Adds an error of authentication or TLS to `errors`. Use it as the `error_cb` of a client.

    This is not a method of the object that owns the client. The two would then refer to each other, and only Python's collector of
    cycles would free them.
    """
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
        errors.append(error)
        del errors[:-10]  # a client may be refused for days without a call that reads the list
