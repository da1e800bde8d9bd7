"""A team applies a manifest and produces with Kafka's own Java producer, and the records come out on time."""

import time

import pytest
from delayed_topics_core import headers as own
from delayed_topics_core.layout import parse_ranges
from delayed_topics_e2e.java import console_produce
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = pytest.mark.cluster

DELAYS = [0, 1, 2, 3]
RECORDS = 10_000


def test_ten_thousand_records_of_the_java_console_producer_come_out_each_at_its_own_time(
    tenant: Tenant, report: Report
) -> None:
    orders = tenant.declare("orders", delaySeconds=DELAYS, retryCap=3, partitions=6)
    started = time.monotonic()
    orders.apply().wait_ready()
    seconds = time.monotonic() - started
    assert [p["status"]["phase"] for p in orders.pods()] == ["Running"]
    report.add("main", f"kubectl apply to Ready=True with a serving worker: {seconds:.1f} s", seconds=seconds)

    lines = (f"{own.DELAY_LEVEL}:{i % 4 + 1},shop:e2e\tcustomer-{i % 997}\torder {i}" for i in range(RECORDS))
    with orders.checker() as checker:
        console_produce(orders.kafka.address(), orders.topic, lines)
        account = checker.settled(produced=RECORDS)
        assert account.clean, account
        assert (account.produced, account.released, account.dead) == (RECORDS, RECORDS, 0)
        waited = dict.fromkeys(DELAYS, 0)
        for root in checker.front:
            waited[checker.delay_of(root)] += 1
        assert waited == dict.fromkeys(DELAYS, RECORDS // 4)
    report.add("main", f"{RECORDS} records over delays {DELAYS} s, {account.lateness()}")


def test_kubectl_tells_the_story_and_scale_scales(tenant: Tenant) -> None:
    orders = tenant.declare("orders", delaySeconds=DELAYS, retryCap=3, partitions=6).apply().wait_ready()
    kubectl = tenant.install.kube.kubectl

    columns = kubectl("get", "dtopic", "-n", tenant.namespace, "-o", "wide")
    for word in ("TOPIC", "DELAYS", "WORKERS", "READY", "AGE", orders.topic, "0s,1s,2s,3s", "True", orders.names.ready):
        assert word in columns, columns
    assert orders.name in kubectl("get", "delayed-topics", "-n", tenant.namespace)
    described = tenant.install.kube.describe("dtopic", orders.name, namespace=tenant.namespace)
    for word in (orders.names.delays, orders.names.dead_letter, "Events:", "Claimed", "TopicsReady", "WorkersReady"):
        assert word in described, described
    assert orders.status["layout"]["ranges"] == [
        {"delaySeconds": 0, "partitions": "0-2", "role": "main"},
        {"delaySeconds": 1, "partitions": "3", "role": "delay"},
        {"delaySeconds": 2, "partitions": "4", "role": "delay"},
        {"delaySeconds": 3, "partitions": "5", "role": "delay"},
    ]
    ids = orders.kafka.topic_ids(*orders.names.topics)
    assert {t["name"]: t["id"] for t in orders.status["topics"]} == ids

    orders.scale(2)
    until(
        lambda: (orders.status["workers"], orders.status["rebalance"]),
        what="two workers share the partitions",
        enough=lambda seen: seen[0]["readyReplicas"] == 2 and len(seen[1].get("members", ())) == 2,
    )
    rebalance = orders.status["rebalance"]
    assert rebalance["state"] == "Stable"
    assert {m["name"] for m in rebalance["members"]} == {p["metadata"]["name"] for p in orders.pods()}
    assert all(m["partitions"] for m in rebalance["members"])
    given = how_many(rebalance["members"][1]["partitions"])
    wait_recorded(orders, reason="WorkerJoined", moved=given)
    orders.scale(1)
    until(lambda: len(orders.pods()), what="one worker is left", enough=lambda n: n == 1)
    orders.wait_ready()
    wait_recorded(orders, reason="WorkerLeft", moved=given)


def wait_recorded(orders: Declared, *, reason: str, moved: int) -> None:
    until(
        lambda: orders.status["rebalance"],
        what=f"a rebalance of {moved} partitions is recorded: {reason}",
        enough=lambda seen: (
            bool(seen.get("recent"))
            and (seen["recent"][0]["reason"], seen["recent"][0]["movedPartitions"]) == (reason, moved)
        ),
    )


def how_many(partitions: str) -> int:
    """The number of partitions in a text such as `orders:0-3 orders.delays:0,2`."""
    return sum(len(parse_ranges(one.partition(":")[2])) for one in partitions.split())
