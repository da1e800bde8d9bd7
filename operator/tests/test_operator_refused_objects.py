"""The API server refuses one object of a resource, or does not answer: what does not depend on that goes on."""

import asyncio
from typing import Any, cast

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import parse
from delayed_topics_operator.delayed_topic.reconcile.failures import refused_audits, with_failures, with_undone
from delayed_topics_operator.engine.execute import Executor, Outcome
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import Forbidden, KubeError, KubeUnreachable, QuotaExceeded
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.recorder import Recorder
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import Action, ApplyChild, DeleteChild, RemoveFinalizer, ScaleWorkers
from delayed_topics_operator.workers.observe import child_names
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE
from delayed_topics_operator_testing.simulation import BEGIN, Simulation

ORDERS = Key("DelayedTopic", "shop", "orders")
KINDS = ("Secret", "Service", "PodDisruptionBudget", "StatefulSet", "ConfigMap")
REFUSED = QuotaExceeded("exceeded quota: full", status=403)


class Kubernetes:
    """Accepts everything but objects of one kind. `done`: the kinds of the others, in the order of the calls."""

    def __init__(self, refused: str, error: KubeError) -> None:
        self._refused, self._error = refused, error
        self.done: list[str] = []

    def _do(self, kind: str) -> None:
        if kind == self._refused:
            raise self._error
        self.done.append(kind)

    async def find(self, *_: object) -> None:
        """Finds nothing."""

    async def apply(self, body: Manifest) -> Manifest:
        self._do(body["kind"])
        return {**body, "metadata": {**body["metadata"], "resourceVersion": "2"}}

    async def merge(self, kind: str, *_: object) -> Manifest:
        self._do("replicas")
        return {"kind": kind, "metadata": {"namespace": "shop", "name": "orders", "uid": "u", "resourceVersion": "3"}}

    async def delete(self, kind: str, *_: object, **__: object) -> None:
        self._do(kind)


def execute(actions: tuple[Action, ...], refused: str, error: KubeError = REFUSED) -> tuple[list[str], Outcome]:
    """Returns what was done, and the outcome."""
    kube = Kubernetes(refused, error)
    executor = Executor(cast(Kube, kube), Store(), cast(Recorder, None), rolling_at_once=1)
    return kube.done, asyncio.run(executor.execute(ORDERS, actions, None))


def made(kind: str, name: str = "orders") -> ApplyChild:
    return ApplyChild(manifest={"kind": kind, "metadata": {"namespace": "shop", "name": name}}, change="created")


@pytest.mark.parametrize("refused", KINDS)
def test_only_the_pods_wait_and_only_for_their_secret(refused: str) -> None:
    waits = {"Secret": {"Secret", "StatefulSet"}}.get(refused, {refused})
    done, outcome = execute(tuple(map(made, KINDS)), refused)
    assert done == [kind for kind in KINDS if kind not in waits]
    assert [cast(ApplyChild, failure.action).kind for failure in outcome.failures] == [refused]


def test_workers_are_scaled_although_their_new_credentials_are_refused() -> None:
    scaled = ScaleWorkers(namespace="shop", name="orders", uid="u", present=1, replicas=3)
    assert execute((made("Secret"), scaled), "Secret")[0] == ["replicas"]


def test_an_api_server_that_does_not_answer_is_asked_once_in_a_pass() -> None:
    done, outcome = execute(tuple(map(made, KINDS)), "Service", KubeUnreachable("no answer"))
    assert (done, len(outcome.failures)) == (["Secret"], 1)


@pytest.mark.parametrize(("refused", "left"), [("StatefulSet", 5), ("Secret", 1), ("ConfigMap", 1)])
def test_what_workers_need_goes_only_after_them_and_the_finalizer_last(refused: str, left: int) -> None:
    removal = tuple(
        DeleteChild(kind=kind, namespace="shop", name=name, uid="u") for kind, name in child_names("orders")
    )
    done, _ = execute((*removal, RemoveFinalizer()), refused)
    assert len(done) == len(removal) - left


def conditions(simulation: Simulation, *failed: tuple[Action, Any]) -> dict[str, tuple[str, str, str]]:
    before = parse("DelayedTopic", simulation.raw).status
    after = with_failures(before, failed, known=before.conditions, now=BEGIN)
    return {c.type: (c.status, c.reason, c.message) for c in after.conditions}


def test_each_object_that_is_refused_is_named() -> None:
    forbidden = Forbidden("not allowed", status=403)
    said = conditions(Simulation.serving(), (made("Service"), REFUSED), (made("PodDisruptionBudget"), forbidden))
    for kind in (Condition.WORKERS_READY, Condition.READY):
        status, reason, message = said[kind]
        assert (status, reason) == ("False", Reason.QUOTA_EXCEEDED)
        assert "create Service orders: exceeded quota" in message
        assert "create PodDisruptionBudget orders: not allowed" in message


AUDIT = made("DelayedTopicAudit", "orders-1")


def test_an_audit_of_the_schedule_that_is_refused_is_told_by_an_event_and_the_resource_stays_ready() -> None:
    simulation = Simulation.serving()
    assert conditions(simulation, (AUDIT, REFUSED)) == conditions(simulation)
    (notice,) = refused_audits([(AUDIT, REFUSED), (made("Service"), REFUSED)])
    assert (notice.type, notice.reason) == ("Warning", Reason.QUOTA_EXCEEDED)
    assert "could not create DelayedTopicAudit orders-1: exceeded quota: full" in notice.message


def test_an_audit_of_the_schedule_that_somebody_deletes_at_once_leaves_the_resource_ready() -> None:
    before = parse("DelayedTopic", Simulation.serving().raw).status
    assert with_undone(before, (AUDIT,), known=before.conditions, now=BEGIN) == before


@pytest.mark.api
def test_workers_are_made_and_scaled_although_a_quota_refuses_their_disruption_budget(harness: OperatorHarness) -> None:
    with harness.no_room(SYSTEM_NAMESPACE, "count/poddisruptionbudgets.policy"):
        harness.apply()
        harness.wait_for("WorkersReady", "False", "QuotaExceeded")
        assert "create PodDisruptionBudget" in harness.condition("WorkersReady")["message"]
        harness.wait(lambda: harness.stateful_set() is not None, "there are workers")
        harness.apply(workers={"replicas": 3})
        harness.wait(lambda: (harness.stateful_set() or {})["spec"]["replicas"] == 3, "there are three")
    harness.wait(lambda: bool(harness.made("PodDisruptionBudget")), "there is a disruption budget")


@pytest.mark.api
def test_a_resource_stays_ready_although_a_quota_refuses_its_scheduled_audits(harness: OperatorHarness) -> None:
    with harness.no_room(harness.namespace, "count/delayedtopicaudits.delayedtopics.io"):
        harness.apply(audit={"schedule": "* * * * *"})
        harness.wait_until_ready()
        harness.wait_event("QuotaExceeded", "could not create DelayedTopicAudit", "exceeded quota: no-room")
        for condition in ("Ready", "WorkersReady"):
            assert harness.condition(condition)["status"] == "True"
