"""How many brokers have a record before it counts as written. There are three brokers, and one of them goes away."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from delayed_topics_core.names import REGISTRY_TOPIC, TopicNames
from delayed_topics_devcluster.broker import Brokers
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import OperatorProcess

pytestmark = pytest.mark.api


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers() as three:
        yield three


@pytest.fixture
def three(api: KubeApi, brokers: Brokers) -> Iterator[OperatorHarness]:
    """Yields a harness like `harness`, with three brokers of its own."""
    with OperatorHarness(api, brokers.members[0], OperatorProcess(api, "--resync-seconds=3")).opened() as made:
        yield made


def replicas(harness: OperatorHarness, *topics: str) -> list[int]:
    found = harness.kafka.describe_topics(topics or TopicNames.of(harness.topic).topics)
    return [info.replication_factor if isinstance(info, TopicInfo) else 0 for info in found.values()]


@pytest.mark.slow
def test_two_replicas_mean_that_a_record_counts_when_one_broker_has_it_and_the_condition_says_so(
    three: OperatorHarness,
) -> None:
    three.apply(replicationFactor=2)
    three.wait_for("DurabilityReduced", "True", "OneInSyncReplica")
    three.wait_for("TopicsReady", "True")
    message = three.condition("DurabilityReduced")["message"]
    assert all(name in message for name in TopicNames.of(three.topic).topics)
    assert REGISTRY_TOPIC not in message


@pytest.mark.slow
def test_a_partition_that_somebody_added_and_that_has_no_leader_keeps_no_pause_from_being_followed(
    three: OperatorHarness, brokers: Brokers
) -> None:
    three.wait(lambda: three.connection_status().get("brokersSeen") == 3, "three brokers were seen")
    three.apply(replicationFactor=1)
    three.wait_for("TopicsReady", "True")
    delays = TopicNames.of(three.topic).delays
    theirs = NewPartitions(delays, three.topics()[delays] + 1, replica_assignment=[[brokers.members[2].node_id]])
    admin = AdminClient({"bootstrap.servers": three.broker.bootstrap})
    admin.create_partitions([theirs])[delays].result(60)
    three.wait_for("TopicsReady", "False", "PartitionsForeign")

    brokers.members[2].kill()
    three.wait_for("TopicsReady", "False", "TopicsCreating")
    assert "some partitions have no leader" in three.condition("TopicsReady")["message"]
    three.apply(replicationFactor=1, paused=True)
    three.wait(lambda: three.registry().layouts[three.topic].paused, "the pause is followed")
    assert three.condition("Ready")["reason"] != "KafkaUnreachable"
    brokers.members[2].start()
    three.wait_for("TopicsReady", "False", "PartitionsForeign")


@pytest.mark.slow
def test_topics_that_are_made_while_a_broker_is_away_have_all_their_replicas(
    three: OperatorHarness, brokers: Brokers
) -> None:
    three.wait(lambda: three.connection_status().get("brokersSeen") == 3, "three brokers were seen")
    three.operator.kill()
    brokers.members[2].kill()
    three.operator.start()
    three.wait(lambda: three.connection_status()["brokers"] == 2, "one broker is away", seen=three.connection_status)
    three.apply()
    three.wait_for("TopicsReady", "True")
    three.wait(  # a broker may learn of a topic a moment later
        lambda: replicas(three) == [3, 3, 3, 3], "each topic has three replicas", seen=lambda: replicas(three)
    )
    assert three.settings(three.topic)["min.insync.replicas"] == "2"
    assert three.condition("DurabilityReduced")["status"] == "False"
