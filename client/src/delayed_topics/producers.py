"""What the client's producers of records have in common."""

from typing import Any, Final

from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.idempotence import IDEMPOTENT

LARGEST_RECORD_BYTES: Final = 100_000_000
"""Leave it to the broker what is too large: librdkafka's own limit of 1,000,000 bytes is below Kafka's."""


def producer_properties(connection: Connection) -> dict[str, Any]:
    """Properties of librdkafka. Raises ConnectionInvalid for one of the user's that the client can't honour."""
    return {
        "compression.type": "lz4",
        "message.max.bytes": LARGEST_RECORD_BYTES,
        # Java's default partitioner, so that a key finds the same partition from either language
        **connection.config_with({**IDEMPOTENT, "partitioner": "murmur2_random"}),
    }
