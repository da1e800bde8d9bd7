"""The only caller of Kafka's admin API. Batch in, result per item out: the failure of one topic never hides another's.

Methods block for at most `timeout_seconds` and return, for each item, its value or the KafkaCallError that befell it;
those that ask about one thing raise it. One instance may be used by many threads.
"""

from collections.abc import Mapping

from confluent_kafka import KafkaError
from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType

from delayed_topics_kafka.calls import Wait, settle
from delayed_topics_kafka.errors import KafkaRefused, value_of
from delayed_topics_kafka.fencing import FencingCalls
from delayed_topics_kafka.groups import GroupCalls
from delayed_topics_kafka.model import ClusterInfo
from delayed_topics_kafka.refusable import RefusableCalls


class KafkaAdmin(RefusableCalls, GroupCalls, FencingCalls):
    """Administers the cluster of one connection."""

    def describe_cluster(self) -> ClusterInfo:
        """Raises KafkaCallError."""
        answer = settle(
            ["cluster"],
            lambda _, seconds: {"cluster": self._client.describe_cluster(request_timeout=seconds).result},
            self._deadline(),
        )["cluster"]
        if isinstance(answer, KafkaError):
            raise self._error(answer, "describing the cluster")
        self._shut_out.clear()
        return ClusterInfo(cluster_id=answer.cluster_id, brokers=tuple(node.id for node in answer.nodes))

    def offsets_retention_ms(self) -> int | None:
        """For how long Kafka keeps committed offsets of a group without members, in milliseconds. None: it does not say, as when the user
        has no right to DescribeConfigs of the cluster. Raises KafkaCallError."""
        broker = str(self.describe_cluster().brokers[0])

        def send(pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
            resources = [ConfigResource(ResourceType.BROKER, name) for name in pending]
            futures = self._client.describe_configs(resources, request_timeout=timeout_seconds)
            return {resource.name: future.result for resource, future in futures.items()}

        def value(entries: Mapping[str, ConfigEntry]) -> int | None:
            minutes = entries["offsets.retention.minutes"].value if "offsets.retention.minutes" in entries else None
            return int(minutes) * 60_000 if minutes is not None else None

        answer = self._many([broker], send, lambda name: f"reading the settings of broker {name}", value)[broker]
        return None if isinstance(answer, KafkaRefused) else value_of(answer)
