"""An audit with two Spark executors as separate pods reaches the same verdict as an audit in a single pod."""

import os
from typing import Any

import pytest
from delayed_topics_core import headers as own
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Tenant
from delayed_topics_e2e.waiting import until

RECORDS = int(os.environ.get("EXECUTOR_RECORDS", "0"))

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(RECORDS == 0, reason="needs 3 GiB of room on the node: EXECUTOR_RECORDS=100000"),
]


def executors(orders: Declared) -> list[dict[str, Any]]:
    """The executor pods of the audit `shared`."""
    return list(orders.audit_pods("shared", **{"spark-role": "executor"}))


def test_two_executors_share_an_audit_and_are_gone_after_it(tenant: Tenant, report: Report) -> None:
    orders = tenant.declare("orders", delaySeconds=[0, 1, 2], partitions=4).apply().wait_ready()
    with orders.checker() as checker:
        records = ((b"k%d" % (i % 97), b"%d" % i, ((own.DELAY_LEVEL, b"%d" % (i % 3 + 1)),)) for i in range(RECORDS))
        orders.kafka.produce(orders.topic, records)
        checker.settled(produced=RECORDS)
    orders.start_audit("shared", spark={"executors": 2, "memory": "512m", "conf": {"spark.task.maxFailures": "2"}})
    ran = until(
        lambda: [pod for pod in executors(orders) if pod["status"].get("phase") == "Running"],
        what="two executors run",
        enough=lambda pods: len(pods) == 2,
    )
    for pod in ran:
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "Pod", "the Job's pod does not own the executor"
        assert pod["spec"]["automountServiceAccountToken"] is False
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    shared = orders.audited("shared")
    alone = orders.audit("alone")
    assert (shared["verdict"], shared["account"]) == (alone["verdict"], alone["account"]) != ("Unknown", None)
    assert shared["verdict"] == "Verified", shared
    until(lambda: executors(orders), what="the executors are gone", enough=lambda pods: not pods)
    elastic = orders.audit("elastic", spark={"executors": 2, "minExecutors": 0, "memory": "512m"})
    assert (elastic["verdict"], elastic["account"]) == (alone["verdict"], alone["account"])
    report.add("audit on executors", shared["message"])
