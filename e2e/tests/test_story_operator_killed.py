"""The operator dies while it creates and while it removes a delayed topic: the end state is the same as without a crash."""

import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.settings import MARK_SETTING
from delayed_topics_e2e.node import processes_of, send_signal
from delayed_topics_e2e.plain import TopicReader
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Install, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = [pytest.mark.cluster]

SPEC: dict[str, Any] = {"delaySeconds": [0, 1, 2], "partitions": 5, "retryCap": 2, "deletionPolicy": "Delete"}


@pytest.mark.usefixtures("own_cluster")
def test_an_operator_killed_three_times_while_making_and_while_removing_ends_in_the_same_state(
    tenant: Tenant, report: Report
) -> None:
    undisturbed = tenant.declare("undisturbed", **SPEC).apply().wait_ready()
    orders = tenant.declare("orders", **SPEC)
    registry = TopicReader(orders.kafka.config, REGISTRY_TOPIC)
    registry.read_new()
    orders.apply()
    made = [
        ("its claim is written", lambda: claim_seen(registry, orders)),
        ("one of its topics exists", lambda: any_topic(orders)),
        ("its StatefulSet exists", lambda: bool(statefulsets(orders))),
    ]
    found = [kill_operator_when(orders.install, orders, what, condition) for what, condition in made]
    orders.wait_ready()
    assert end_state(orders) == end_state(undisturbed)
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, [(b"k%d" % i, b"%d" % i, ()) for i in range(100)])
        account = checker.settled(produced=100)
        assert account.clean, account

    orders.kube.delete("delayedtopic", orders.name, namespace=orders.namespace)
    removed = [
        ("its StatefulSet is being removed", lambda: not statefulsets(orders, being_removed=False)),
        ("its workers are gone", lambda: not statefulsets(orders)),
        ("one of its topics is gone", lambda: not orders.kafka.topics().keys() >= set(orders.names.topics)),
    ]
    found += [kill_operator_when(orders.install, orders, what, condition) for what, condition in removed]
    orders.kube.wait_gone("delayedtopic", orders.name, namespace=orders.namespace, timeout_seconds=120)
    assert not orders.kafka.topics().keys() & set(orders.names.topics)
    assert orders.names.group not in orders.kafka.groups()
    assert not claims(orders), "the claim is left in the registry"
    for kind in ("statefulsets", "services", "pdb", "configmaps", "secrets", "pods"):
        assert not orders.kube.list(kind, namespace=orders.workers_in, labels=orders.labels), kind
    for line in found:
        report.add("operator killed", line)


@pytest.mark.usefixtures("own_cluster")
def test_a_topic_made_by_a_producer_between_claim_and_creation_is_foreign_until_it_is_deleted(tenant: Tenant) -> None:
    """The operator dies right after it has written the claim, and Kafka auto-creates the topic for an early producer."""
    for attempt in range(4):
        orders = tenant.declare(f"orders-{attempt}", **SPEC)
        registry = TopicReader(orders.kafka.config, REGISTRY_TOPIC)
        registry.read_new()
        orders.apply()
        kill_operator_when(orders.install, orders, "its claim is written", partial(claim_seen, registry, orders))
        if not any_topic(orders):
            break
    else:
        pytest.fail("the operator was never killed between its claim and its topics")
    orders.kafka.produce(orders.topic, [(b"k", b"early", ())])
    refused = orders.wait_condition("TopicsReady", "False", reason="TopicForeign")
    assert orders.topic in refused["message"]
    assert orders.kafka.settings(orders.topic)["message.timestamp.type"] == "CreateTime"
    assert [r.value for r in orders.kafka.read(orders.topic)] == [b"early"]

    orders.kafka.delete(orders.topic)
    orders.wait_ready()
    assert orders.kafka.settings(orders.topic)["message.timestamp.type"] == "LogAppendTime"
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, [(b"k%d" % i, b"%d" % i, ()) for i in range(20)])
        account = checker.settled(produced=20)
        assert (account.lost, account.doubled, account.changed, account.released) == (0, 0, 0, 20), account


def kill_operator_when(install: Install, orders: Declared, what: str, condition: Callable[[], bool]) -> str:
    """Sends SIGKILL as soon as the condition is true, and waits for a new pod. Returns a line about the objects at that moment."""
    (pod,) = install.operator_pods()
    uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
    pids = processes_of(uid) if install.own_node else []
    until(condition, what=f"{orders.name}: {what}", poll_seconds=0.005)
    send_signal(pids, signal.SIGKILL)
    topics = sorted(
        topic.removeprefix(orders.topic) or "front" for topic in orders.kafka.topics() if orders.topic in topic
    )
    # replace the pod, because a killed container has a growing back-off before its next start
    install.kube.delete("pod", name, namespace=install.namespace, now=True)
    until(
        lambda: [p["metadata"]["uid"] for p in install.operator_pods()],
        what="a new operator pod exists",
        enough=lambda uids: len(uids) == 1 and uid not in uids,
    )
    return f"killed when {what}: {', '.join(topics) or 'no topic'} there, {len(statefulsets(orders))} StatefulSet"


def claim_seen(registry: TopicReader, orders: Declared) -> bool:
    return any(
        r.key is not None and f"/{orders.namespace}/{orders.name}".encode() in r.key for r in registry.read_new()
    )


def any_topic(orders: Declared) -> bool:
    return bool(orders.kafka.topics().keys() & set(orders.names.topics))


def statefulsets(orders: Declared, *, being_removed: bool = True) -> list[dict[str, Any]]:
    found = orders.kube.list("statefulsets", namespace=orders.workers_in, labels=orders.labels)
    return [sts for sts in found if being_removed or "deletionTimestamp" not in sts["metadata"]]


def claims(orders: Declared) -> list[str]:
    """The keys of the claims on the topic that are in force at the end of the registry."""
    present: dict[str, bool] = {}
    for record in orders.kafka.read(REGISTRY_TOPIC):
        present[(record.key or b"").decode()] = record.value is not None
    return [key for key, there in present.items() if there and key.startswith(f"claim/{orders.topic}/")]


def end_state(orders: Declared) -> dict[str, Any]:
    """The state that must not depend on crashes on the way, without names, ids, marks and times."""
    status = orders.status
    settings = {
        topic: {key: value for key, value in orders.kafka.settings(topic).items() if key != MARK_SETTING}
        for topic in orders.names.topics
    }
    sts = orders.child("statefulsets")["spec"]
    return {
        "conditions": sorted((c["type"], c["status"], c["reason"]) for c in status["conditions"]),
        "layout": status["layout"],
        "topics": [(t["role"], t["partitions"], t["replicationFactor"]) for t in status["topics"]],
        "settings": [sorted(settings[topic].items()) for topic in orders.names.topics],
        "workers": (sts["replicas"], [c["image"] for c in sts["template"]["spec"]["containers"]]),
        "claims": len(claims(orders)),
        "committed": len(orders.kafka.committed(orders.names.group)),
    }
