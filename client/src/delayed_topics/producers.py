"""The properties that the client's producers of records have in common."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.idempotence import IDEMPOTENT

from delayed_topics.errors import FAILURES

log = logging.getLogger(__name__)

LARGEST_RECORD_BYTES: Final = 100_000_000
"""Leaves it to the broker to refuse large records, because librdkafka's default limit of 1,000,000 bytes is below Kafka's."""
WITHOUT_STATISTICS: Final = {"statistics.interval.ms": 0}
"""For producers that may be idle. Nothing polls them then, so their statistics would pile up in memory."""
_CALLBACKS: Final = ("error_cb", "throttle_cb")


def producer_properties(connection: Connection, needed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns properties of librdkafka. Raises ConnectionInvalid if a property of the user conflicts with what the client needs, also with
    what this client needs beyond the others."""
    properties: dict[str, Any] = {
        "compression.type": "lz4",
        "message.max.bytes": LARGEST_RECORD_BYTES,
        # Java's default partitioner, so that a key gets the same partition in both languages
        **connection.config_with({**IDEMPOTENT, "partitioner": "murmur2_random", **(needed or {})}),
        **WITHOUT_STATISTICS,
    }
    # A call that sends a record would raise what a callback raises. Whoever sends the record again would send it twice.
    callbacks = {name: call for name in _CALLBACKS if callable(call := properties.get(name))}
    return properties | {name: partial(_call, name, call) for name, call in callbacks.items()}


def _call(name: str, callback: Callable[..., object], *arguments: object) -> None:
    try:
        callback(*arguments)
    except FAILURES:
        log.exception("%s raised", name)
