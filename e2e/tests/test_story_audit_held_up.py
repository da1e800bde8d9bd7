"""If an audit's pod cannot start or is killed, a condition says what to do, and the audit continues when that is done."""

import os
from typing import Any

import pytest
from delayed_topics_devcluster.cluster import unload
from delayed_topics_e2e.kube import condition
from delayed_topics_e2e.node import limit_memory
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Install, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.usefixtures("own_cluster"),
    pytest.mark.skipif("HELD_UP" not in os.environ, reason="takes minutes: HELD_UP=1"),
]

TOO_LITTLE_BYTES = 300 << 20
"""Less than Python and a JVM need at their start."""


@pytest.fixture(autouse=True)
def _own_node(install: Install) -> None:
    if not install.own_node:
        pytest.skip("removes images from the node and limits memory there, so the node has to be this machine")


def test_an_audit_whose_image_is_missing_says_so_and_goes_on_when_it_is_there(
    install: Install, tenant: Tenant, report: Report
) -> None:
    orders = declared(tenant)
    unload("audit")
    try:
        orders.start_audit("early")
        complete = until(
            lambda: condition(orders.audit_resource("early"), "Complete"),
            what="the audit reports that its image is missing",
            enough=lambda c: "ImagePull" in c.get("message", ""),
        )
    finally:
        install.cluster.load("audit")
    assert (complete["status"], complete["reason"]) == ("False", "AuditWaiting"), complete
    assert "Correct the chart values images.audit or images.pullSecrets" in complete["message"], complete
    report.add("audit without its image", complete["message"])
    assert orders.audited("early")["verdict"] == "Verified"


def test_an_audit_that_the_kernel_killed_for_its_memory_says_so(
    install: Install, tenant: Tenant, report: Report
) -> None:
    orders = declared(tenant)
    orders.start_audit("small", spark={"memory": "512m"})
    limited: set[str] = set()

    def look() -> Any:
        for uid in {pod["metadata"]["uid"] for pod in orders.audit_pods("small")} - limited:
            if limit_memory(uid, TOO_LITTLE_BYTES):
                limited.add(uid)
        return condition(orders.audit_resource("small"), "Complete")

    until(
        look,
        what="the audit has given up",
        enough=lambda c: c.get("status") == "True",
    )
    status = orders.audit_resource("small")["status"]
    assert len(limited) == 3, "the Job did not try three pods"
    assert status["verdict"] == "Unknown", status
    assert "with a higher spec.spark.memory" in status["message"], status
    report.add("audit without memory", status["message"])


def declared(tenant: Tenant) -> Declared:
    orders = tenant.declare("orders", delaySeconds=[0]).apply().wait_ready()
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, [(None, b"%d" % i, ()) for i in range(100)])
        checker.settled(produced=100)
    return orders
