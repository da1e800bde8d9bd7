"""Fixtures for the tests of all members."""

from collections.abc import Iterator

import pytest

from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.context import Cluster, current_cluster
from delayed_topics_devcluster.errors import PreconditionError

__all__ = ["api_server", "broker", "cluster", "own_cluster"]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One real broker for the whole run. A test that stops or breaks a broker starts one of its own."""
    with Broker(settings=PATIENT) as started:
        yield started


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """One API server without nodes for all tests of a pytest process. Each test uses unique names for its objects."""
    with ApiServer() as started:
        yield started


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster that the tests run on, already up: the local one or that of CONTEXT."""
    chosen = current_cluster()
    chosen.up()
    return chosen


@pytest.fixture
def own_cluster(cluster: Cluster) -> Cluster:
    """Like `cluster`, for tests that break things: they are skipped on a CONTEXT unless I_OWN_THIS_CLUSTER=1."""
    try:
        cluster.require_mine()
    except PreconditionError as error:
        pytest.skip(error.message)
    return cluster
