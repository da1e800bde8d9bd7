"""Kafka is down for two minutes: no pod restarts, a condition reports it, and afterwards all records come out."""

import os
import time
from collections.abc import Iterator

import pytest
from delayed_topics_core import headers as own
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Install, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_cluster")]

AWAY_SECONDS = float(os.environ.get("KAFKA_AWAY_SECONDS", "120"))
RECORDS = 3_000


def test_two_minutes_without_kafka_restart_no_pod_and_lose_nothing(
    tenant: Tenant, kafka_runs_again: None, report: Report
) -> None:
    install = tenant.install
    orders = tenant.declare("orders", delaySeconds=[0, 1, 10], partitions=4).apply().wait_ready()
    records = [(b"k%d" % (i % 31), b"%d" % i, ((own.DELAY_LEVEL, b"%d" % (i % 3 + 1)),)) for i in range(RECORDS)]
    orders.kafka.produce(orders.topic, records)
    restarts_before = restarts(orders)

    scale_kafka(install, 0)
    stopped = time.monotonic()
    orders.wait_condition("Ready", "False", reason="KafkaUnreachable", timeout_seconds=AWAY_SECONDS)
    reported_after = time.monotonic() - stopped
    time.sleep(max(0.0, AWAY_SECONDS - reported_after))  # the rest of the outage: there is no condition to wait for
    assert restarts(orders) == restarts_before
    scale_kafka(install, 1)

    back = time.monotonic()
    with orders.checker() as checker:
        account = checker.settled(produced=RECORDS)
        assert (account.lost, account.early, account.changed) == (0, 0, 0), account
    healed_after = time.monotonic() - back
    orders.wait_ready()
    assert restarts(orders) == restarts_before
    report.add(
        "kafka stopped",
        f"away {AWAY_SECONDS:g} s: said after {reported_after:.0f} s, 0 restarts, {account.doubled} doubled, "
        f"everything out {healed_after:.0f} s after it was back",
    )


def restarts(orders: Declared) -> dict[str, int]:
    """The restarts of the operator's pod and of the workers' pods, by name and uid: a replaced pod counts as a difference too."""
    return {
        f"{pod['metadata']['name']} {pod['metadata']['uid']}": sum(
            c["restartCount"] for c in pod["status"].get("containerStatuses", ())
        )
        for pod in (*orders.install.operator_pods(), *orders.pods())
    }


def scale_kafka(install: Install, replicas: int) -> None:
    name = f"{install.release}-kafka"
    install.kube.kubectl("scale", "statefulset", name, "-n", install.namespace, f"--replicas={replicas}")
    until(
        lambda: (install.kube.get("statefulset", name, namespace=install.namespace) or {})["status"],
        what=f"Kafka has {replicas} pods",
        enough=lambda status: status.get("replicas", 0) == status.get("readyReplicas", 0) == replicas,
    )


@pytest.fixture
def kafka_runs_again(install: Install) -> Iterator[None]:
    """Starts Kafka again after the test, even if it failed, for the other stories."""
    yield
    scale_kafka(install, 1)
