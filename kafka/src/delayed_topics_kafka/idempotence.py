"""What an idempotent producer needs so that what it says was delivered is in Kafka."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

IDEMPOTENT: Final[Mapping[str, Any]] = MappingProxyType(
    {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
)
"""Properties of librdkafka. With several requests on their way, a producer may lose the first record that it sends to a partition, and say
that it was delivered. This happens if the broker refuses that request for a moment, as while a leader is elected or a partition is new, and
takes the request behind it. Kafka takes any sequence number from a producer of which it has no record in that partition. librdkafka (2.16)
then believes that everything before was delivered (https://github.com/confluentinc/confluent-kafka-go/issues/921)."""
