"""Many resources at once: all become Ready, with a known number of calls each; then the operator writes nothing while nothing changes."""

import os
import time

import pytest
from delayed_topics_devcluster.cluster import cluster_folders
from delayed_topics_e2e.calls import Calls, OperatorCalls, resource_versions, writes_in_audit_log
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Tenant

pytestmark = [pytest.mark.cluster]

RESOURCES = int(os.environ.get("RESOURCES", "12"))
IDLE_SECONDS = float(os.environ.get("IDLE_SECONDS", "40"))
"""Longer than the 30 s after which the operator compares everything. The promise is checked with RESOURCES=50 IDLE_SECONDS=300."""

WINDOWS = 3
"""How many idle periods to try. On a machine that is too busy, a worker's session may end, and then the operator has news to write."""


def test_many_resources_get_ready_and_then_nothing_is_written(tenant: Tenant, report: Report) -> None:
    kube, install = tenant.install.kube, tenant.install
    operator = OperatorCalls(install)
    before = operator.read()
    declared = [tenant.declare(f"orders-{n:02d}", delaySeconds=[0, 60], partitions=2) for n in range(RESOURCES)]
    started = time.monotonic()
    kube.apply(*(one.manifest() for one in declared))
    kube.wait(
        "delayedtopic",
        *(one.name for one in declared),
        namespace=tenant.namespace,
        until_it="condition=Ready",
        timeout_seconds=300,
        evidence=lambda: kube.kubectl("get", "dtopic", "-n", tenant.namespace) + install.operator_log(),
    )
    seconds = time.monotonic() - started
    used = operator.read() - before
    report.add(
        "many",
        f"{RESOURCES} resources Ready after {seconds:.0f} s; per resource {used.kube / RESOURCES:.1f} API calls "
        f"({used.kube_writes / RESOURCES:.1f} writes) and {used.kafka / RESOURCES:.1f} Kafka calls",
        seconds=seconds,
        **used.as_dict(),
    )

    for _ in range(WINDOWS):
        settle(operator)
        versions, calls, from_here = resource_versions(install, tenant.namespace), operator.read(), time.time()
        time.sleep(IDLE_SECONDS)  # to show that nothing is written in this time
        news = resource_versions(install, tenant.namespace).items() - versions.items()
        if not news:
            break
    assert not news, f"objects changed in each idle period: {news}\n{install.operator_log()}"
    assert (operator.read() - calls).kube_writes == 0, install.operator_log()
    if install.own_node:
        assert not writes_in_audit_log(cluster_folders().audit_log, since=from_here, by="delayed-topics-operator")
    report.add("many", f"no API write in {IDLE_SECONDS:g} idle seconds with {RESOURCES} resources")


def settle(operator: OperatorCalls) -> None:
    """Waits until the operator has written nothing for 10 s: Events about the last pods, and the status of the groups, follow after
    Ready."""
    quiet_since, last = time.monotonic(), operator.read()
    deadline = time.monotonic() + 120
    while time.monotonic() - quiet_since < 10:
        assert time.monotonic() < deadline, f"the operator keeps writing: {operator.install.operator_log()}"
        time.sleep(1)
        now: Calls = operator.read()
        if (now - last).kube_writes:
            quiet_since, last = time.monotonic(), now
