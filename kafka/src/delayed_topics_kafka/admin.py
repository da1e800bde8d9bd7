"""The only caller of Kafka's admin API. Batch in, result per item out: the failure of one topic never hides another's.

Methods block for at most `timeout_seconds` and return, for each item, its value or the KafkaCallError that befell it;
those that ask about one thing raise it. One instance may be used by many threads.
"""

from confluent_kafka import KafkaError

from delayed_topics_kafka.calls import settle
from delayed_topics_kafka.groups import GroupCalls
from delayed_topics_kafka.model import BrokerInfo, ClusterInfo
from delayed_topics_kafka.refusable import RefusableCalls
from delayed_topics_kafka.transactions import TransactionCalls


class KafkaAdmin(RefusableCalls, GroupCalls, TransactionCalls):
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
        return ClusterInfo(
            cluster_id=answer.cluster_id,
            brokers=tuple(BrokerInfo(id=node.id, host=node.host, port=node.port) for node in answer.nodes),
            controller_id=answer.controller.id if answer.controller is not None else None,
        )
