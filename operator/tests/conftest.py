"""A real API server and a real broker for the whole run; an operator process for each test."""

from collections.abc import Iterator

import pytest
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator.manifests import SERVICE_ACCOUNT
from delayed_topics_operator_testing.api_server import ApiServer
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.scene import Scene


@pytest.fixture(scope="session")
def api() -> Iterator[ApiServer]:
    """With what the chart makes. Pods are made and never scheduled: there are no nodes."""
    with ApiServer() as server:
        server.kubectl("create", "namespace", SYSTEM_NAMESPACE)
        server.kubectl("create", "serviceaccount", SERVICE_ACCOUNT, f"--namespace={SYSTEM_NAMESPACE}")
        yield server


@pytest.fixture
def scene(api: ApiServer, broker: Broker) -> Iterator[Scene]:
    """An operator that runs, a cluster connection `default` to the broker, and a namespace of this test's own."""
    made = Scene(api, broker, OperatorProcess(api, "--resync-seconds=3", "--gone-after-seconds=6"))
    try:
        made.open()
        yield made
    finally:
        made.close()
