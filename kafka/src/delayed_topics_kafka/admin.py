"""The only caller of Kafka's admin API. A call takes a batch and returns a result for each item, so that one failure never hides another.

Methods block for at most `timeout_seconds`. For each item they return its value or its KafkaCallError. Methods about a single
item raise the error instead. One instance may be used by many threads.
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
        """Returns the id of the cluster and its brokers. Raises KafkaCallError."""
        answer = settle(
            ["cluster"],
            lambda _, seconds: {"cluster": self._client.describe_cluster(request_timeout=seconds).result},
            self._deadline(),
        )["cluster"]
        if isinstance(answer, KafkaError):
            raise self._error(answer, "describing the cluster")
        self._auth_errors.clear()
        return ClusterInfo(cluster_id=answer.cluster_id, brokers=tuple(node.id for node in answer.nodes))

    def offsets_retention_ms(self) -> int | None:
        """Returns how long Kafka keeps the committed offsets of a group without members, in milliseconds. Returns None if Kafka does not
        say, for example because the user lacks DescribeConfigs on the cluster. Raises KafkaCallError."""
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
