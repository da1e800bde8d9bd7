"""Two teams share a Kafka cluster, and one attacks the other: the topics of the first are unchanged, and conditions name their owner."""

from collections.abc import Iterator
from typing import Any

import pytest
from delayed_topics_e2e.tenant import Declared, Install, Tenant, Tenants, cluster_connection, unique

pytestmark = pytest.mark.cluster


def test_a_second_claim_on_a_topic_loses_and_deleting_it_touches_nothing(
    start_tenant: Tenants,
) -> None:
    shop, rival = start_tenant(), start_tenant()
    orders = shop.declare("orders").apply().wait_ready()
    orders.kafka.produce(orders.topic, [(b"k", b"%d" % i, ()) for i in range(50)])
    thief = rival.declare("orders", topic=orders.topic).apply()
    lookalike = rival.declare("lookalike", topic=orders.topic.replace(".", "_")).apply()
    part = rival.declare("part", topic=f"{orders.topic}.delays.x").apply()
    for attack in (thief, lookalike):
        refused = attack.wait_condition("Claimed", "False", reason="ClaimedByOther")
        assert f"{shop.namespace}/orders" in refused["message"]
        assert attack.wait_condition("Ready", "False")["reason"] == "ClaimedByOther"
        assert not attack.pods()
    part.wait_condition("Claimed", "True")

    ids = orders.kafka.topic_ids(*orders.names.topics)
    for attack in (thief, lookalike):
        attack.delete()
    assert orders.kafka.topic_ids(*orders.names.topics) == ids
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, [(b"k", b"%d" % i, ()) for i in range(50)])
        account = checker.settled(produced=100)
        assert account.clean, account
    assert orders.wait_condition("Claimed", "True", reason="ClaimHeld")


def test_a_foreign_topic_is_neither_adopted_nor_changed_nor_deleted(tenant: Tenant) -> None:
    kafka = tenant.install.kafka
    payroll = f"{tenant.namespace}.payroll"
    kafka.create(payroll, partitions=2, config={"retention.ms": "1234567"})
    kafka.produce(payroll, [(b"k", b"salary", ())])
    before = (kafka.topic_ids(payroll), kafka.settings(payroll), kafka.topics()[payroll])

    attack = tenant.declare("payroll", topic=payroll, deletionPolicy="Delete").apply()
    refused = attack.wait_condition("Claimed", "False", reason="TopicForeign")
    assert payroll in refused["message"]
    attack.wait_event(mentions=["TopicForeign", payroll])
    attack.delete()

    assert (kafka.topic_ids(payroll), kafka.settings(payroll), kafka.topics()[payroll]) == before
    assert [r.value for r in kafka.read(payroll)] == [b"salary"]
    assert not {f"{payroll}.delays", f"{payroll}.ready", f"{payroll}.dead"} & kafka.topics().keys()


def test_the_owner_of_a_connection_says_who_may_have_what(granted: str, start_tenant: Tenants) -> None:
    team, stranger = start_tenant(team=granted), start_tenant(team="another")

    def ask(tenant: Tenant, name: str, **spec: Any) -> Declared:
        connection = {"kind": "ClusterKafkaConnection", "name": granted}
        return tenant.declare(name, topic=f"{granted}.{name}", connectionRef=connection, **spec)

    served = ask(team, "served", partitions=4, workers={"replicas": 3}).apply()
    refusals = {
        "namespace": (ask(stranger, "anything").apply(), "NotAllowed", stranger.namespace),
        "prefix": (
            team.declare("other", connectionRef=served.spec["connectionRef"]).apply(),
            "NotAllowed",
            f"{granted}.",
        ),
        "partitions": (ask(team, "wide", partitions=9).apply(), "GrantExceeded", "at most 8"),
    }
    for declared, reason, words in refusals.values():
        refused = declared.wait_condition("Claimed", "False", reason=reason)
        assert words in refused["message"]
        assert not declared.kafka.topics().keys() & set(declared.names.topics)
    served.wait_ready()
    assert "only 2 may run" in served.wait_condition("Ready", "True", reason="GrantExceeded")["message"]
    wide = refusals["partitions"][0].apply(partitions=8)
    wide.wait_condition("Claimed", "True")


@pytest.fixture
def granted(install: Install) -> Iterator[str]:
    """A cluster connection to the same Kafka with one narrow grant. The granted label and topic prefix are the connection's name."""
    name = unique("granted")
    selector = {"matchLabels": {"team": name}}
    with cluster_connection(
        install, name, namespaceSelector=selector, topicPrefixes=[f"{name}."], maxPartitions=8, maxWorkers=2
    ):
        yield name
