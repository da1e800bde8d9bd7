"""Decides which tests run at the same time."""

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SHARING = ("e2e/", "devcluster/")
"""The folders of tests that may use the cluster at the same time."""
ALONE = (
    "e2e/tests/test_story_audit_held_up.py",
    "e2e/tests/test_story_audit_output.py",
    "e2e/tests/test_story_autoscale.py",
    "e2e/tests/test_story_kafka_stopped.py",
    "e2e/tests/test_story_many.py",
    "e2e/tests/test_story_operator_killed.py",
    "e2e/tests/test_story_protocol_refused.py",
    "e2e/tests/test_story_secure.py",
    "checks/test_documents.py",
    "e2e/tests/test_zz_uninstall.py",
)
"""Tests that stop, replace or measure something that all tests on the cluster use. They run one after the other, and no other test
on the cluster runs meanwhile."""
ALONE_SCOPE = "alone"
BY_TEST = "checks/test_house.py"
"""This file is split by test: its tests share nothing, and one of them takes as long as all others."""
TOGETHER = ("audit/", "charts/")
"""The tests of each of these folders run in one process, because they share a slow fixture: a Spark session, or all that the chart
renders."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Runs the tests of a file one after the other in one process, so that they share a broker or API server. Files begin in the
    order of `testpaths`. Tests that need the cluster to themselves begin when all other tests on the cluster have ended; tests that
    need no cluster run meanwhile."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in ALONE:
            return ALONE_SCOPE
        if file == BY_TEST:
            return nodeid
        return next((member for member in TOGETHER if file.startswith(member)), file)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if ALONE_SCOPE in self.workqueue and self._cluster_is_shared():
            self.workqueue.move_to_end(ALONE_SCOPE)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """When only the tests in `ALONE` are left, one process waits for the others to end, and then has the cluster to itself. This
        delays the last test of its former work, because a process does not run a test before it knows the next one."""
        serving = [other for other in self.nodes if not other.shutting_down]
        if list(self.workqueue) != [ALONE_SCOPE] or not serving:
            super()._reschedule(node)
            return
        waiting, *others = serving
        for other in others:
            other.shutdown()
        if not any(self._pending_of(work) for other, work in self.assigned_work.items() if other is not waiting):
            super()._reschedule(waiting)

    def _cluster_is_shared(self) -> bool:
        begun = [scope for scopes in self.assigned_work.values() for scope in scopes.items()]
        left = (scope for scope, done in (*begun, *self.workqueue.items()) if not all(done.values()))
        return any(scope.startswith(SHARING) for scope in left)
