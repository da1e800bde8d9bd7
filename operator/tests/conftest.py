"""One real API server and one real broker serve the whole run; each test has an operator process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.audit_log import missed
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.rights import OPERATOR, give_the_rights_of_the_chart


@pytest.fixture(scope="session")
def api(api_server: ApiServer) -> KubeApi:
    """Returns a client of the API server. The cluster has no nodes, so no pod is ever scheduled."""
    return installed(api_server)


@pytest.fixture(scope="session")
def other_api() -> Iterator[KubeApi]:
    """Yields a client of another Kubernetes cluster's API server."""
    with ApiServer() as other:
        yield installed(other)


def installed(api_server: ApiServer) -> KubeApi:
    """Creates the namespaces and the rights that the chart creates."""
    api_server.kubectl("create", "namespace", SYSTEM_NAMESPACE)
    return KubeApi(api_server, give_the_rights_of_the_chart(api_server))


@pytest.fixture(scope="session")
def spark_applications(api: KubeApi) -> None:
    """Installs the CRD of SparkApplication; no Spark Operator runs."""
    define(api, Path(__file__).with_name("spark_operator") / "sparkapplications.yaml")


@pytest.fixture(scope="session")
def scaled_objects(api: KubeApi) -> None:
    """Installs the CRD of ScaledObject; KEDA does not run."""
    define(api, Path(__file__).with_name("keda") / "scaledobjects.yaml")


def define(api: KubeApi, definition: Path) -> None:
    """Applies a CRD, and returns when the API server accepts objects of its kind."""
    api.kubectl("apply", "--server-side", "-f", str(definition))
    api.kubectl("wait", "--for=condition=Established", "-f", str(definition), "--timeout=60s")


@pytest.fixture
def harness(api: KubeApi, broker: Broker) -> Iterator[OperatorHarness]:
    """Yields a running operator with a cluster connection `default` to the broker and a namespace of this test's own.

    The operator has the rights of the chart. At the end, the fixture checks that the API server refused none of its requests.
    """
    made = OperatorHarness(api, broker, OperatorProcess(api, "--resync-seconds=3"))
    log = api.server.audit_log
    begin = log.stat().st_size
    with made.opened():
        yield made
        if not made.rights_are_taken:
            assert set(missed(log, OPERATOR, begin=begin, unready=api.server.unready)) == set()
