"""Only a few resources have their pods replaced at a time. These tests say what is done and reported for the others."""

import asyncio
import copy
from dataclasses import replace
from typing import Any, cast

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.delayed_topic.controller import DelayedTopics
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.engine.execute import Executor
from delayed_topics_operator.engine.rollouts import STUCK_SECONDS, Rollouts
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import NotYet
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.runtime import Runtime
from delayed_topics_operator.values.eventlog import RaisedAlarm, WorkerNews
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.plan import ApplyChild, Plan
from delayed_topics_operator.values.rollout import Rollout
from delayed_topics_operator_testing.simulation import Simulation

CONSUMER = {"protocol": "Consumer"}
LATER = Rollout(may_begin=False)


def stateful_set(simulation: Simulation) -> dict[str, Any]:
    return simulation.children["StatefulSet", simulation.name]


def waiting() -> Simulation:
    """Returns a resource that waits for its turn while its three workers release records."""
    simulation = Simulation.serving(workers={"replicas": 3})
    simulation.edit(rebalance=CONSUMER)
    simulation.may_roll = False
    simulation.settle()
    return simulation


def rolls(simulation: Simulation) -> list[str]:
    """Returns the kinds of the applied objects whose change replaces pods."""
    return [a.kind for a in simulation.done if isinstance(a, ApplyChild) and a.rolls]


def test_a_new_password_replaces_the_pods_and_waits_its_turn() -> None:
    simulation = Simulation.serving()
    assert isinstance(simulation.connection, Usable)
    simulation.connection = replace(simulation.connection, files={"bootstrap-servers": "k:9092", "password": "new"})
    simulation.may_roll = False
    plan = reconcile(simulation.observe())
    assert plan.actions == ()
    assert plan.wake_seconds is not None
    simulation.may_roll = True
    simulation.settle()
    assert rolls(simulation) == ["StatefulSet"]


def test_a_mark_that_is_taken_from_the_pods_replaces_them_and_waits_its_turn() -> None:
    simulation = Simulation.serving(workers={"template": {"annotations": {"example.com/a": "b"}}})
    simulation.edit(workers={"template": {}})
    simulation.may_roll = False
    simulation.settle()
    assert "example.com/a" in stateful_set(simulation)["spec"]["template"]["metadata"]["annotations"]
    assert [a for a in simulation.done if isinstance(a, ApplyChild)] == []
    simulation.may_roll = True
    simulation.settle()
    assert rolls(simulation) == ["StatefulSet"]
    assert "example.com/a" not in stateful_set(simulation)["spec"]["template"]["metadata"]["annotations"]


def test_a_rollout_that_is_held_back_is_said_and_not_as_declared() -> None:
    simulation = waiting()
    ready, workers = simulation.condition(Condition.READY), simulation.condition(Condition.WORKERS_READY)
    assert (ready.status, workers.status) == ("False", "True"), "the workers release records"
    assert ready.reason == workers.reason == Reason.ROLLOUT_WAITING
    assert "waits until fewer other resources replace their workers. 3 of 3 workers are ready" in ready.message


def test_workers_that_do_not_run_while_their_replacement_waits_are_not_said_to_release() -> None:
    simulation = waiting()
    stateful_set(simulation)["status"]["readyReplicas"] = 0
    simulation.settle()
    condition = simulation.condition(Condition.READY)
    assert (condition.status, condition.reason) == ("False", Reason.WORKERS_STARTING)
    assert "0 of 3 workers are ready" in condition.message
    simulation.later(121)
    simulation.settle()
    assert simulation.condition(Condition.READY).reason == Reason.WORKERS_FAILING


def test_an_alarm_is_said_before_a_rollout_that_waits() -> None:
    simulation = waiting()
    alarm = RaisedAlarm(member=f"{simulation.name}-0", reason=Reason.NOT_RELEASING, message="orders [1]")
    simulation.news = WorkerNews(alarms=(alarm,))
    simulation.settle()
    assert simulation.condition(Condition.READY).reason == Reason.NOT_RELEASING


def test_workers_that_waited_long_have_as_much_time_to_start_as_others() -> None:
    simulation = waiting()
    simulation.later(600)
    simulation.settle()
    simulation.may_roll = True
    simulation.settle()
    assert rolls(simulation) == ["StatefulSet"]
    assert simulation.condition(Condition.READY).reason == Reason.WORKERS_STARTING
    simulation.later(121)
    simulation.settle()
    assert simulation.condition(Condition.READY).reason == Reason.WORKERS_FAILING


@pytest.mark.parametrize("replicas", [1, 5])
def test_workers_are_scaled_while_a_rollout_waits_its_turn(replicas: int) -> None:
    simulation = Simulation.serving(workers={"replicas": 3})
    before = copy.deepcopy(stateful_set(simulation)["spec"])
    simulation.edit(rebalance=CONSUMER, workers={"replicas": replicas})
    simulation.may_roll = False
    simulation.settle()
    assert stateful_set(simulation)["spec"] == {**before, "replicas": replicas}
    assert [a for a in simulation.done if isinstance(a, ApplyChild)] == []
    simulation.may_roll = True
    simulation.settle()
    assert rolls(simulation) == ["StatefulSet"]
    assert stateful_set(simulation)["spec"]["replicas"] == replicas


class Kubernetes:
    """Accepts whatever is applied."""

    def __init__(self) -> None:
        self.versions = 100
        self.applied: list[str] = []

    async def apply(self, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.versions += 1
        self.applied.append(body["kind"])
        return {**body, "metadata": {**body["metadata"], "resourceVersion": f"{self.versions}"}}


def rolling(name: str, *, updated: int = 0, ready: int = 0, edit: int = 1) -> dict[str, Any]:
    """Returns a StatefulSet with three pods, of which `updated` are replaced and `ready` are ready."""
    counts = {"updatedReplicas": updated, "readyReplicas": ready, "replicas": 3}
    status = {"observedGeneration": edit, **counts, "updateRevision": f"b{edit}"}
    meta = {"namespace": "system", "name": name, "uid": name, "generation": edit, "resourceVersion": "1"}
    return {"kind": "StatefulSet", "metadata": meta, "spec": {"replicas": 3}, "status": status}


def carried_out(plan: Plan) -> tuple[list[str], int]:
    """Returns the kinds of the applied objects and the number of failed actions, while no further rollout may begin."""
    kube, store = Kubernetes(), Store()
    store.put(rolling("other"))
    executor = Executor(kube, store, None, rolling_at_once=1)  # type: ignore[arg-type]
    actions = tuple(action for action in plan.actions if isinstance(action, ApplyChild))
    outcome = asyncio.run(executor.execute(Key("DelayedTopic", "shop", "orders"), actions, None))
    return kube.applied, len(outcome.failures)


def test_where_no_workers_run_they_start_with_other_pods_without_waiting_for_a_turn() -> None:
    simulation = Simulation.serving(workers={"replicas": 0})
    simulation.may_roll = False
    simulation.edit(rebalance=CONSUMER, workers={"replicas": 3})
    plan = reconcile(simulation.observe())
    assert carried_out(plan) == (["StatefulSet"], 0)
    simulation.settle()
    assert stateful_set(simulation)["spec"]["replicas"] == 3


def test_where_no_workers_run_their_pods_are_as_declared_though_none_is_to_start() -> None:
    simulation = waiting()
    simulation.edit(workers={"replicas": 0})
    simulation.settle()
    assert stateful_set(simulation)["spec"]["replicas"] == 0
    simulation.may_roll = True
    assert reconcile(simulation.observe()).actions == ()


def test_where_workers_run_whoever_is_late_for_a_turn_waits_for_the_next() -> None:
    simulation = Simulation.serving(workers={"replicas": 3})
    simulation.edit(rebalance=CONSUMER)
    assert carried_out(reconcile(simulation.observe())) == ([], 1)


def test_a_replacement_that_changes_nothing_waits_for_no_turn() -> None:
    """A webhook of the cluster may, for example, put another image in the place of the declared one."""
    simulation = Simulation.serving(workers={"replicas": 3})
    stateful_set(simulation)["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror/worker:1"
    o = simulation.observe()
    (action,) = reconcile(o).actions
    held_back = reconcile(replace(o, in_vain=(action,), rollout=LATER))
    assert held_back.status is not None
    ready = next(c for c in held_back.status.conditions if c.type == Condition.READY)
    assert (held_back.actions, held_back.wake_seconds, ready.status) == ((), None, "True")
    edited = reconcile(replace(o, in_vain=(action,), rollout=LATER, pods=replace(o.pods, image="worker:2")))
    assert edited.wake_seconds is not None


def test_a_replacement_that_changes_nothing_is_known_as_the_same_while_pods_come_and_go() -> None:
    simulation = Simulation.serving(workers={"replicas": 3})
    stateful_set(simulation)["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror/worker:1"
    before = reconcile(simulation.observe()).actions
    stateful_set(simulation)["status"]["readyReplicas"] = 1
    assert reconcile(simulation.observe()).actions == before != ()


@pytest.mark.parametrize("may_roll", [True, False])
def test_workers_that_a_webhook_puts_back_are_ready_and_the_resource_says_what_differs(may_roll: bool) -> None:
    """The workers serve. What a webhook puts back is somebody's decision, and no reason to call anyone at night."""
    simulation = Simulation.serving(workers={"replicas": 3})
    stateful_set(simulation)["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror/worker:1"
    o = replace(simulation.observe(), rollout=Rollout(may_begin=may_roll))
    status = reconcile(replace(o, in_vain=reconcile(replace(o, rollout=Rollout())).actions)).status
    assert status is not None
    conditions = {condition.type: condition for condition in status.conditions}
    assert (conditions[Condition.READY].status, conditions[Condition.WORKERS_READY].status) == ("True", "True")
    message = conditions[Condition.WORKERS_READY].message
    assert message.startswith("3 of 3 workers are ready. ")
    assert f"repair StatefulSet {simulation.name}" in message
    assert "webhook" in message
    before = reconcile(o).status
    assert before is not None
    assert "webhook" not in str(before.conditions), "it is not known yet whether the repair changes anything"


def test_rollouts_that_are_stuck_stop_nobody_elses_however_often_they_are_edited() -> None:
    store, now = Store(), 0.0
    rollouts = Rollouts(store, at_once=2, clock=lambda: now)
    for name in ("a", "b"):
        store.put(rolling(name))
    assert not rollouts.look("new", "system", "c").may_begin
    now += STUCK_SECONDS
    store.put(rolling("a", edit=2))
    store.put(rolling("b", updated=1))
    assert rollouts.look("new", "system", "c").may_begin
    store.put(rolling("a", updated=1))
    assert not rollouts.look("new", "system", "c").may_begin


def test_pods_that_come_and_go_hold_up_nobody_elses_rollout() -> None:
    """In the past, each change counted as progress, and one such resource after the other held up all others permanently."""
    store, now = Store(), 0.0
    rollouts = Rollouts(store, at_once=1, clock=lambda: now)
    store.put(rolling("a", updated=1, ready=2))
    assert not rollouts.look("new", "system", "c").may_begin
    for ready in (3, 2, 3, 2):
        now += STUCK_SECONDS / 3
        store.put(rolling("a", updated=1, ready=ready))
        last = rollouts.look("new", "system", "c").may_begin
    assert last, "the rollout has made no progress since it had three ready pods"
    store.put({**rolling("a", updated=3, ready=3, edit=2), "status": rolling("a", updated=3, ready=3)["status"]})
    assert rollouts.look("new", "system", "c").may_begin, "the status is still that of the spec before the edit"
    store.put(rolling("a", updated=2, ready=2))
    assert not rollouts.look("new", "system", "c").may_begin


class Unhurried(Kubernetes):
    """Answers requests about `orders` only when `may_answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def apply(self, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        if body["metadata"]["name"] == "orders":
            self.asked.set()
            await self.may_answer.wait()
        return await super().apply(body)


def test_workers_of_a_topic_and_shared_workers_take_turns_also_before_the_api_server_has_answered() -> None:
    def replaced(name: str) -> tuple[ApplyChild]:
        return (ApplyChild(manifest=rolling(name), change="changed", rolls=True),)

    async def story() -> None:
        kube = Unhurried()
        settings = Settings(
            namespace="system", audit_namespace="audits", worker_image="w", audit_image="a", rolling_at_once=1
        )
        leadership = Leadership.without_end()
        runtime = Runtime(settings=settings, kube=cast(Kube, kube), cluster="cluster", leadership=leadership)
        topics = cast(DelayedTopics, runtime.runners["DelayedTopic"].controller)._context.executor
        shared = runtime.connections._shared._context.executor
        first = asyncio.create_task(topics.execute(Key("DelayedTopic", "shop", "orders"), replaced("orders"), None))
        await kube.asked.wait()
        connection = Key("ClusterKafkaConnection", "", "kafka")
        second = await shared.execute(connection, replaced("shared"), None)
        kube.may_answer.set()
        assert (await first).failures == ()
        assert [type(failure.error) for failure in second.failures] == [NotYet]
        assert kube.applied == ["StatefulSet"]

    asyncio.run(story())
