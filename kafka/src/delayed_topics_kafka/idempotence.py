"""The properties with which an idempotent producer reports no record as delivered that Kafka does not have."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

IDEMPOTENT: Final[Mapping[str, Any]] = MappingProxyType(
    {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
)
"""Properties of librdkafka. With several requests in flight, a producer may lose the first record that it sends to a partition, and report
it as delivered. This happens if the broker refuses that request for a moment, for example during a leader election or while a partition is
new, and accepts the next request. Kafka accepts any sequence number from a producer that has no record in the partition yet. librdkafka
(2.16) then takes all earlier records for delivered (https://github.com/confluentinc/confluent-kafka-go/issues/921)."""
