"""For every test of the workspace."""

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# the machines that tests run on are busy with brokers and clusters, so the time that one example takes says nothing
settings.register_profile("house", deadline=None)
settings.load_profile("house")

SHARING = ("e2e/", "crds/", "devcluster/", "charts/")
"""Their tests use the cluster beside each other."""
ALONE = (
    "e2e/tests/test_story_kafka_stopped.py",
    "e2e/tests/test_story_many.py",
    "e2e/tests/test_story_operator_killed.py",
    "e2e/tests/test_story_secure.py",
    "checks/test_documents.py",
    "e2e/tests/test_zz_uninstall.py",
)
"""They stop, replace or measure what all other tests of the cluster use: one after the other, and none of the others meanwhile."""
BY_FILE = (*SHARING, "checks/", "worker/")


class ByMember(LoadScopeScheduling):  # type: ignore[misc]
    """The tests of a member run one after the other in one process, since they share what is dear to start: an API server, a
    Spark session. What shares the cluster, or a broker only, goes by file. Those that need the cluster to themselves begin when
    the others of the cluster are through; what needs none fills the time."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in ALONE:
            return "alone"
        return file if file.startswith(BY_FILE) else file.partition("/")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        waiting = self.workqueue.pop("alone", None) if len(self.workqueue) > 1 and self._cluster_is_shared() else None
        super()._assign_work_unit(node)
        if waiting is not None:
            self.workqueue["alone"] = waiting
            self.workqueue.move_to_end("alone", last=False)

    def _cluster_is_shared(self) -> bool:
        begun = [scope for scopes in self.assigned_work.values() for scope in scopes.items()]
        left = (scope for scope, done in (*begun, *self.workqueue.items()) if not all(done.values()))
        return any(scope.startswith(SHARING) for scope in left)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByMember:
    return ByMember(config, log)
