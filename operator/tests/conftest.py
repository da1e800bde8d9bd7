"""A real API server and a real broker for the whole run; an operator process for each test."""

from collections.abc import Iterator

import pytest
from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator.audits.executors import DRIVER_ACCOUNT, PLAIN_ACCOUNT
from delayed_topics_operator.manifests import SERVICE_ACCOUNT
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.scene import Scene


@pytest.fixture(scope="session")
def api(api_server: ApiServer) -> KubeApi:
    """Pods are made and never scheduled: there are no nodes."""
    return installed(api_server)


@pytest.fixture(scope="session")
def other_api() -> Iterator[KubeApi]:
    """Of another Kubernetes cluster."""
    with ApiServer() as other:
        yield installed(other)


def installed(api_server: ApiServer) -> KubeApi:
    """With what the chart makes."""
    api_server.kubectl("create", "namespace", SYSTEM_NAMESPACE)
    api_server.kubectl("create", "serviceaccount", SERVICE_ACCOUNT, f"--namespace={SYSTEM_NAMESPACE}")
    api_server.kubectl("create", "namespace", AUDIT_NAMESPACE)
    api_server.kubectl("label", "namespace", AUDIT_NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    for account in (PLAIN_ACCOUNT, DRIVER_ACCOUNT):
        api_server.kubectl("create", "serviceaccount", account, f"--namespace={AUDIT_NAMESPACE}")
    return KubeApi(api_server)


@pytest.fixture
def scene(api: KubeApi, broker: Broker) -> Iterator[Scene]:
    """An operator that runs, a cluster connection `default` to the broker, and a namespace of this test's own."""
    made = Scene(api, broker, OperatorProcess(api, "--resync-seconds=3"))
    try:
        made.open()
        yield made
    finally:
        made.close()
