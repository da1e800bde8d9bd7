"""Fixtures of the stories: the installation, a namespace for each test, and a report."""

import os
from collections.abc import Callable, Iterator

import pytest
from delayed_topics_devcluster.context import Cluster
from delayed_topics_e2e.kube import Kube, with_retries
from delayed_topics_e2e.plain import Kafka
from delayed_topics_e2e.report import REPORTED, Report
from delayed_topics_e2e.tenant import Install, Tenant, Tenants

RELEASE = "delayed-topics"
EXTERNAL_PORT = 19094


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, line in report.user_properties:
                    if name == REPORTED:
                        terminalreporter.write_line(line)


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Report:
    """Figures that are reported, not asserted."""
    return Report(record_property)


@pytest.fixture(scope="session")
def install(cluster: Cluster) -> Install:
    """The chart's release on the cluster, with its evaluation Kafka at an address that this machine can reach."""
    namespace = os.environ.get("CHART_NAMESPACE", "delayed-topics-system")
    kube = Kube(kubectl=with_retries(cluster.kubectl))
    kube.wait(
        "deployment",
        f"{RELEASE}-operator",
        namespace=namespace,
        until_it="condition=Available",
        timeout_seconds=300,
        evidence=lambda: kube.kubectl("get", "pods,events", "--namespace", namespace),
    )

    def address() -> str:
        pod = kube.get("pod", f"{RELEASE}-kafka-0", namespace=namespace)
        assert pod is not None, (
            f"there is no evaluation Kafka in {namespace}: install the chart, as `make cluster` does"
        )
        return f"{pod['status']['podIP']}:{EXTERNAL_PORT}"

    own_node = "CONTEXT" not in os.environ
    return Install(
        cluster=cluster, kube=kube, kafka=Kafka(address), namespace=namespace, release=RELEASE, own_node=own_node
    )


@pytest.fixture(scope="module")
def finished_tenants() -> Iterator[list[Tenant]]:
    """The tenants of finished stories. Their resources are deleted while the next story runs."""
    tenants: list[Tenant] = []
    yield tenants
    for tenant in tenants:
        tenant.finish_deletion()


@pytest.fixture
def start_tenant(install: Install, finished_tenants: list[Tenant], request: pytest.FixtureRequest) -> Iterator[Tenants]:
    """Makes tenants, which are cleaned up after the test."""
    story = request.module.__name__.rpartition(".")[2].removeprefix("test_").removeprefix("story_").replace("_", "-")
    tenants = Tenants(install, story)
    yield tenants
    for tenant in tenants.made:
        tenant.request_deletion()
    finished_tenants.extend(tenants.made)


@pytest.fixture
def tenant(start_tenant: Tenants) -> Tenant:
    """A namespace of the test's own."""
    return start_tenant()
