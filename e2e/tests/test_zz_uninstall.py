"""Last of all, the chart is uninstalled while resources exist: topics, resources and CRDs stay, and a new installation continues."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Install, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_cluster")]

CHART = Path(__file__).parents[2] / "charts" / "delayed-topics"


def test_uninstall_keeps_topics_and_definitions_and_a_new_install_goes_on(
    tenant: Tenant, reinstalled: Path, report: Report
) -> None:
    install, kube = tenant.install, tenant.install.kube
    orders = tenant.declare("orders", delaySeconds=[0, 1, 3]).apply().wait_ready()
    uid = (orders.resource() or {})["metadata"]["uid"]
    ids = orders.kafka.topic_ids(*orders.names.topics)
    login = password(install)
    orders.kafka.produce(orders.topic, [(b"k", b"before %d" % i, ()) for i in range(50)])

    install.cluster.helm("uninstall", install.release, "--namespace", install.namespace, "--wait", "--timeout", "3m")
    until(install.operator_pods, what="the operator is gone", enough=lambda pods: not pods)
    assert len(kube.list("crd")) >= 4
    assert (orders.resource() or {})["metadata"]["uid"] == uid

    helm_install(install, reinstalled)
    orders.wait_ready(120)
    assert (orders.resource() or {})["metadata"]["uid"] == uid
    assert orders.kafka.topic_ids(*orders.names.topics) == ids
    assert password(install) == login, "the password differs from the one in the broker's storage"
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, [(b"k", b"after %d" % i, ()) for i in range(50)])
        account = checker.settled(produced=100)
        assert (account.lost, account.early, account.changed) == (0, 0, 0), account
    report.add("uninstall", f"after uninstall and install: 0 lost, {account.doubled} doubled")


def password(install: Install) -> str:
    """The password of the user `operator` of the evaluation Kafka's secure listener."""
    secret = install.kube.get("secret", f"{install.release}-kafka-user-operator", namespace=install.namespace)
    assert secret is not None
    return str(secret["data"]["password"])


def helm_install(install: Install, values: Path) -> None:
    install.cluster.helm(
        *("upgrade", "--install", install.release, CHART, "--namespace", install.namespace),
        *("--values", values, "--wait", "--timeout", "5m"),
    )


@pytest.fixture
def reinstalled(install: Install, tmp_path: Path) -> Iterator[Path]:
    """A file with the values of the release. The release is installed with them again after the test, even if it failed."""
    values = tmp_path / "values.yaml"
    given = install.cluster.helm("get", "values", install.release, "--namespace", install.namespace, "-o", "yaml")
    if not (yaml.safe_load(given) or {}).get("evaluationKafka", {}).get("persistence", {}).get("enabled"):
        pytest.skip("the evaluation Kafka has no volume, so uninstalling would delete its records")
    values.write_text(given)
    yield values
    helm_install(install, values)
