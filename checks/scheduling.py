"""Which tests run beside each other."""

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SHARING = ("e2e/", "devcluster/")
"""Their tests use the cluster beside each other."""
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
"""They stop, replace or measure what all other tests of the cluster use: one after the other, and none of the others meanwhile."""
ALONE_SCOPE = "alone"
BY_TEST = "checks/test_house.py"
"""Its tests share nothing, and one of them takes as long as all others."""
TOGETHER = ("audit/", "charts/")
"""Their tests share what takes long to make: a Spark session; all that the chart renders."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """The tests of a file run one after the other in one process, and share its broker or API server. The files begin in the order
    of `testpaths`. Those that need the cluster to themselves begin when the others of the cluster are through; what needs none
    fills the time."""

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
        """Once nothing else is left, one process waits for the others to end and then has the cluster to itself. It holds its own
        last test back meanwhile: a process runs none before it knows the next."""
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
