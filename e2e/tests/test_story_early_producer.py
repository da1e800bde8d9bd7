"""A producer was faster than the manifest, and Kafka created the topic automatically, with the broker's defaults."""

from collections.abc import Iterator

import pytest
from delayed_topics_e2e.tenant import Install, Tenant, cluster_connection, unique
from delayed_topics_e2e.waiting import until

pytestmark = pytest.mark.cluster


def test_a_topic_made_by_an_early_producer_is_left_alone_until_it_is_deleted(tenant: Tenant) -> None:
    orders = tenant.declare("orders", partitions=5)
    orders.kafka.produce(orders.topic, [(b"k", b"early", ())])
    assert orders.kafka.settings(orders.topic)["message.timestamp.type"] == "CreateTime"
    orders.apply()
    refused = orders.wait_condition("Claimed", "False", reason="TopicForeign")
    assert orders.topic in refused["message"]
    assert [r.value for r in orders.kafka.read(orders.topic)] == [b"early"]

    orders.kafka.delete(orders.topic)
    orders.wait_ready()
    assert orders.kafka.topics()[orders.topic] == 3
    assert orders.kafka.settings(orders.topic)["message.timestamp.type"] == "LogAppendTime"


def test_where_adopting_is_allowed_the_topic_is_completed_and_later_kept(adopting: str, tenant: Tenant) -> None:
    connection = {"kind": "ClusterKafkaConnection", "name": adopting}
    orders = tenant.declare("orders", partitions=5, connectionRef=connection)
    orders.kafka.produce(orders.topic, [(b"k", b"early", ())])
    (early_id,) = orders.kafka.topic_ids(orders.topic).values()
    orders.apply().wait_ready()
    (adopted_id,) = orders.kafka.topic_ids(orders.topic).values()
    assert adopted_id == early_id
    assert orders.kafka.topics()[orders.topic] == 3, (
        "the topic was not grown from the broker's default to the declared partitions"
    )
    assert orders.kafka.settings(orders.topic)["message.timestamp.type"] == "LogAppendTime"
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, [(b"k%d" % i, b"%d" % i, ()) for i in range(50)])
        until(
            lambda: len(checker.account().lateness_ms),
            what="the records produced after the adoption have come out",
            enough=lambda released: released >= 50,
        )
        assert not any(r.value == b"early" for r in checker.ready), "a record from before the adoption came out"
    orders.delete()
    left = orders.kafka.topics().keys() & set(orders.names.topics)
    assert left == {orders.topic}, "deletionPolicy Delete must not delete an adopted topic, and must delete the others"


@pytest.fixture
def adopting(install: Install) -> Iterator[str]:
    """A cluster connection to the same Kafka that allows this story to adopt topics."""
    name = unique("adopting")
    with cluster_connection(install, name, namespaceSelector={}, topicPrefixes=["e2e-"], adopt=True):
        yield name
