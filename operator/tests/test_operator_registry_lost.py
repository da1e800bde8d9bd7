"""Without the registry, no one knows who owns which topic. The operator therefore never silently creates it again."""

from collections.abc import Iterator

import pytest
from delayed_topics_core.names import REGISTRY_TOPIC, TopicNames
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import OperatorProcess

pytestmark = pytest.mark.api

ACCEPT_LOSS = "delayedtopics.io/accept-loss-of-topic-id"


@pytest.fixture
def harness(api: KubeApi, own_broker: Broker) -> Iterator[OperatorHarness]:
    """Yields a harness with a broker of its own and a resource that is served."""
    with OperatorHarness(api, own_broker, OperatorProcess(api, "--resync-seconds=3")).opened() as made:
        made.apply(delaySeconds=[0, 10], partitions=3)
        made.wait_until_served()
        yield made


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def registry(broker: Broker) -> TopicInfo | None:
    admin = KafkaAdmin(Connection(bootstrap_servers=broker.bootstrap), timeout_seconds=60)
    info = admin.describe_topics([REGISTRY_TOPIC])[REGISTRY_TOPIC]
    assert info is None or isinstance(info, TopicInfo), info
    return info


def ready_after_edit(harness: OperatorHarness, *, skew_ms: int) -> Manifest:
    """Edits the connection so that the operator looks at Kafka again, and returns the condition Ready that the connection then has."""
    harness.patch("ClusterKafkaConnection", "default", {"spec": {"brokerSkewMs": skew_ms}})
    wanted = harness.api.get("ClusterKafkaConnection", "default")
    assert wanted is not None
    generation = wanted["metadata"]["generation"]
    harness.wait(
        lambda: harness.connection_status()["conditions"][0]["observedGeneration"] == generation,
        "the connection was looked at",
        seen=harness.connection_status,
    )
    return dict(harness.connection_status()["conditions"][0])


def test_a_registry_that_vanished_is_not_made_anew_and_nothing_is_changed_in_kafka_until_somebody_decides(
    harness: OperatorHarness, own_broker: Broker
) -> None:
    before = registry(own_broker)
    assert before is not None
    assert harness.connection_status()["registryTopicId"] == before.id
    ids = harness.topic_ids()
    harness.kafka.delete_topics([REGISTRY_TOPIC])
    harness.wait_for("Ready", "False", "RegistryLost")
    harness.apply(delaySeconds=[0, 10, 60], partitions=9)
    condition = ready_after_edit(harness, skew_ms=1)
    assert (condition["status"], condition["reason"]) == ("False", "RegistryLost")
    assert before.id in condition["message"]
    assert f"{ACCEPT_LOSS}={before.id}" in condition["message"]

    harness.operator.kill()
    harness.operator.start()
    assert ready_after_edit(harness, skew_ms=2)["reason"] == "RegistryLost", "a restarted operator knows it, too"
    assert registry(own_broker) is None
    assert harness.topic_ids() == ids
    assert harness.topics()[TopicNames.of(harness.topic).delays] == 3, "the edit waits"
    assert harness.stateful_set() is not None, "the workers go on"

    harness.kafka.create_topics([NewTopicSpec(name=REGISTRY_TOPIC, partitions=1, replication_factor=1)])
    again = registry(own_broker)
    assert again is not None
    condition = ready_after_edit(harness, skew_ms=3)
    assert condition["reason"] == "RegistryLost", "a registry that somebody else created is not the one that was used"
    assert again.id in condition["message"]

    harness.patch("ClusterKafkaConnection", "default", {"metadata": {"annotations": {ACCEPT_LOSS: before.id}}})
    harness.wait(lambda: harness.connection_status()["registryTopicId"] == again.id, "the new registry is used")
    harness.wait_for("Claimed", "False", "TopicForeign")
    assert harness.topic_ids() == ids, "no topic is adopted by guess"


@pytest.mark.slow
def test_a_registry_whose_loss_is_accepted_is_made_anew(harness: OperatorHarness, own_broker: Broker) -> None:
    before = registry(own_broker)
    assert before is not None
    harness.kafka.delete_topics([REGISTRY_TOPIC])
    harness.wait(lambda: registry(own_broker) is None, "the registry is gone")
    harness.patch("ClusterKafkaConnection", "default", {"metadata": {"annotations": {ACCEPT_LOSS: before.id}}})

    def made_anew() -> bool:
        found = registry(own_broker)
        return found is not None and harness.connection_status()["registryTopicId"] == found.id

    harness.wait(made_anew, "there is a registry, and the status has its id", seen=harness.connection_status)
    harness.api.apply(harness.delayed_topic("new", topic=f"{harness.topic}-new"))
    harness.wait_until_served("new")
