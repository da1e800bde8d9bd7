"""Kubernetes clusters come and go, Kafka stays: resources that were backed up are applied again, in this or another cluster."""

from collections.abc import Iterator

import pytest
from delayed_topics.registry_copy import export_registry, import_registry
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import OperatorProcess

pytestmark = pytest.mark.api

ALLOWED = [{"namespaceSelector": {}, "topicPrefixes": [""], "takeOver": True}]
TAKE_OVER = "delayedtopics.io/take-over-from"


@pytest.fixture
def mirror() -> Iterator[Broker]:
    """Yields another Kafka cluster."""
    with Broker() as other:
        yield other


@pytest.fixture
def elsewhere(other_api: KubeApi, harness: OperatorHarness, broker: Broker) -> Iterator[OperatorHarness]:
    """Yields another Kubernetes cluster with a namespace of the same name, an operator and the same Kafka."""
    made = OperatorHarness(other_api, broker, OperatorProcess(other_api, "--resync-seconds=3"))
    made.namespace, made.topic = harness.namespace, harness.topic
    with made.opened(allow=ALLOWED):
        yield made


def cluster_id(api: KubeApi) -> str:
    found = api.get("Namespace", "kube-system")
    assert found is not None
    return str(found["metadata"]["uid"])


def backed_up(found: Manifest | None) -> Manifest:
    """Returns the resource as Velero or `kubectl get -o yaml` restores it, without the status and what the API server fills in."""
    assert found is not None
    meta = {
        key: value for key, value in found["metadata"].items() if key in ("name", "namespace", "annotations", "labels")
    }
    return {"apiVersion": "delayedtopics.io/v1alpha1", "kind": found["kind"], "metadata": meta, "spec": found["spec"]}


@pytest.mark.slow
def test_all_that_was_deleted_and_is_applied_again_goes_on_with_the_same_topics(harness: OperatorHarness) -> None:
    harness.apply(delaySeconds=[0, 10, 60])
    harness.wait_until_served()
    ids, layout = harness.topic_ids(), harness.registry().layouts[harness.topic]
    kept = backed_up(harness.resource())
    connection = backed_up(harness.api.get("ClusterKafkaConnection", "default"))
    harness.delete()
    harness.api.kubectl("delete", "clusterkafkaconnection", "default", "--timeout=60s")
    assert harness.topic_ids() == ids
    harness.api.apply(connection, kept)
    harness.wait_until_served()
    assert harness.topic_ids() == ids
    assert harness.registry().layouts[harness.topic] == layout


@pytest.mark.slow
def test_a_restored_cluster_takes_over_from_a_lost_one_that_may_come_back_and_change_nothing(
    harness: OperatorHarness, elsewhere: OperatorHarness
) -> None:
    harness.apply(delaySeconds=[0, 10], partitions=3)
    harness.wait_until_served()
    ids, recorded = harness.topic_ids(), harness.registry().topics[harness.topic]
    harness.operator.kill()  # the cluster is lost
    former, here = cluster_id(harness.api), cluster_id(elsewhere.api)

    elsewhere.apply(delaySeconds=[0, 10], partitions=3)
    elsewhere.wait_for("Claimed", "False", "ClaimedByOther")
    assert f"{TAKE_OVER}={former}" in elsewhere.condition("Claimed")["message"]
    elsewhere.patch(
        "DelayedTopic", harness.topic, {"metadata": {"annotations": {TAKE_OVER: former}}}, namespace=harness.namespace
    )
    elsewhere.wait_until_served()
    elsewhere.wait_event("TakenOver", former)
    assert harness.topic_ids() == ids
    assert harness.registry().topics[harness.topic] == recorded
    holder = harness.registry().holder(harness.topic)
    assert holder is not None
    assert (holder.owner.cluster, holder.taken_from and holder.taken_from.cluster) == (here, former)

    harness.operator.start()  # the cluster comes back
    harness.wait_for("Claimed", "False", "ClaimedByOther")
    harness.wait(
        lambda: not harness.made("StatefulSet"), "the former workers are gone", seen=lambda: harness.made("StatefulSet")
    )
    harness.api.apply(harness.delayed_topic(delaySeconds=[0, 10, 60], partitions=9, deletionPolicy="Delete"))
    harness.delete()
    assert harness.topic_ids() == ids
    assert harness.topics()[f"{harness.topic}.delays"] == 3
    assert harness.registry().holder(harness.topic) == holder
    assert elsewhere.condition("Claimed")["status"] == "True"


@pytest.mark.slow
def test_while_both_clusters_live_the_former_one_stops_its_workers_by_itself(
    harness: OperatorHarness, elsewhere: OperatorHarness
) -> None:
    harness.apply()
    harness.wait_until_served()
    annotations = {TAKE_OVER: cluster_id(harness.api)}
    elsewhere.api.apply(elsewhere.delayed_topic(annotations=annotations))
    elsewhere.wait_until_served()
    harness.wait_for("Ready", "False", "ClaimedByOther")
    harness.wait(
        lambda: not harness.made("StatefulSet"), "the former workers are gone", seen=lambda: harness.made("StatefulSet")
    )
    assert "took them over from this resource" in harness.condition("Claimed")["message"]


@pytest.mark.slow
def test_where_the_connection_does_not_allow_it_a_restored_cluster_takes_nothing(
    harness: OperatorHarness, elsewhere: OperatorHarness
) -> None:
    harness.apply()
    harness.wait_until_served()
    claims = dict(harness.registry().claims)
    elsewhere.api.apply(elsewhere.cluster_connection())
    elsewhere.api.apply(elsewhere.delayed_topic(annotations={TAKE_OVER: cluster_id(harness.api)}))
    elsewhere.wait_for("Claimed", "False", "NotAllowed")
    assert harness.registry().claims == claims
    assert elsewhere.made("StatefulSet") == []


@pytest.mark.slow
def test_topics_that_were_mirrored_to_another_kafka_are_served_there_from_the_offsets_that_their_groups_have(
    harness: OperatorHarness, other_api: KubeApi, mirror: Broker
) -> None:
    harness.apply(delaySeconds=[0, 10], partitions=3)
    harness.wait_until_served()
    exported = export_registry(harness.connection)
    former, counts, names = cluster_id(harness.api), harness.topics(), TopicNames.of(harness.topic)
    harness.operator.kill()  # both clusters are lost

    there = OperatorHarness(other_api, mirror, OperatorProcess(other_api, "--resync-seconds=3"))
    there.namespace, there.topic = harness.namespace, harness.topic
    made = [NewTopicSpec(name=name, partitions=count, replication_factor=1) for name, count in counts.items()]
    there.kafka.create_topics(made)
    ids = there.topic_ids()
    assert len(ids) == 4
    offsets = {
        (name, p): OffsetAndMetadata(0, "translated")
        for name in (names.front, names.delays)
        for p in range(counts[name])
    }
    there.wait(  # a broker may learn of its topics, and of the coordinator of a group, a moment later
        lambda: set(there.kafka.commit(names.group, offsets).values()) == {None}, "the offsets are committed"
    )
    done = import_registry(Connection(bootstrap_servers=mirror.bootstrap), exported)
    assert done.rebased == {harness.topic: names.group}
    try:
        there.open(allow=ALLOWED)
        annotations = {TAKE_OVER: former}
        there.api.apply(there.delayed_topic(annotations=annotations, delaySeconds=[0, 10], partitions=3))
        there.wait_until_served()
        assert there.topic_ids() == ids, "the mirrored topics are served"
        record = there.registry().topics[harness.topic]
        assert record.ids == ids
        assert record.begun == {name: counts[name] for name in (names.front, names.delays)}
        assert there.registry().layouts[harness.topic].layout == harness.registry().layouts[harness.topic].layout
        committed = there.kafka.committed_of_groups({names.group: list(offsets)})[names.group]
        assert committed == offsets, "no partition was begun anew"
    finally:
        there.close()
