"""The properties that the client's producers of records have in common."""

from typing import Any, Final

from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.idempotence import IDEMPOTENT

LARGEST_RECORD_BYTES: Final = 100_000_000
"""Leaves it to the broker to refuse large records, because librdkafka's default limit of 1,000,000 bytes is below Kafka's."""


def producer_properties(connection: Connection) -> dict[str, Any]:
    """Returns properties of librdkafka. Raises ConnectionInvalid if a property of the user conflicts with what the client needs."""
    return {
        "compression.type": "lz4",
        "message.max.bytes": LARGEST_RECORD_BYTES,
        # Java's default partitioner, so that a key gets the same partition in both languages
        **connection.config_with({**IDEMPOTENT, "partitioner": "murmur2_random"}),
    }
