"""An audit as a SparkApplication reaches the same verdict as an audit as a Job. The test plays the Spark Operator, with spark-submit."""

from pathlib import Path

import pytest
from delayed_topics_e2e import spark_operator
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Tenant
from delayed_topics_e2e.waiting import until

pytestmark = pytest.mark.cluster

RECORDS = 1_000


def test_an_audit_that_the_spark_operator_runs_comes_to_the_verdict_of_one_in_a_job(
    tenant: Tenant, report: Report, tmp_path: Path
) -> None:
    kube = tenant.install.kube
    kube.kubectl("apply", "--server-side", "-f", str(spark_operator.DEFINITION))
    orders = tenant.declare("orders", delaySeconds=[0, 1], partitions=2).apply().wait_ready()
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, ((b"k%d" % (i % 97), b"%d" % i, ()) for i in range(RECORDS)))
        checker.settled(produced=RECORDS)

    orders.start_audit("spark", spark={"mode": "SparkApplication", "executors": 1, "memory": "512m"})
    home, _, name = until(
        lambda: str(orders.audit_resource("spark").get("status", {}).get("jobName", "")),
        what="the audit has a SparkApplication",
    ).partition("/")
    application = kube.get("sparkapplication", name, namespace=home)
    assert application is not None
    with spark_operator.account(kube, home) as account:
        spark_operator.submit(kube, application, account, tmp_path)
    executors: set[str] = set()

    def state() -> str:
        pods = orders.audit_pods("spark", **{"spark-role": "executor"})
        executors.update(pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running")
        return spark_operator.update_status(kube, application)

    until(
        state,
        what="the application has ended",
        enough=lambda state: state in ("COMPLETED", "FAILED"),
        timeout_seconds=300,
        evidence=lambda: kube.logs(f"{name}-driver", namespace=home),
    )

    shared, alone = orders.audited("spark"), orders.audit("alone")
    assert (shared["verdict"], shared["account"]) == (alone["verdict"], alone["account"]), shared
    assert shared["verdict"] == "Verified", shared
    assert len(executors) == 1
    report.add("audit as a SparkApplication", shared["message"])
