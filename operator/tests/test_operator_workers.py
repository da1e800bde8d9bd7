"""The pods that move records: how they are created, kept as declared and replaced, and what is reported about them."""

import copy
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds.delayed_topic import ASSIGNORS
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.values.eventlog import RaisedAlarm, WorkerNews
from delayed_topics_operator.values.labels import APP
from delayed_topics_operator.values.plan import ApplyChild, DeleteChild, FenceWorkers
from delayed_topics_operator.workers.observe import PodCounts
from delayed_topics_operator.workers.reconcile import worker_sets
from delayed_topics_operator.workers.reconcile.drift import drifted
from delayed_topics_operator_testing.simulation import Simulation, member, resource
from delayed_topics_operator_testing.workers import worker_config
from delayed_topics_worker.config import ASSIGNORS as OF_WORKERS


def stateful_set(simulation: Simulation) -> dict[str, Any]:
    return simulation.children["StatefulSet", simulation.name]


def test_worker_pods_are_as_restricted_as_kubernetes_knows() -> None:
    pod = stateful_set(Simulation.serving())["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
    assert [env["name"] for env in container["env"]] == ["POD_NAME", "POD_TEMPLATE", "DELAYED_TOPIC_OWNER"]


def test_what_a_user_adds_to_the_pods_is_there_and_can_not_take_over_what_selects_them() -> None:
    template = {
        "labels": {"team": "a", "app.kubernetes.io/name": "mine"},
        "annotations": {"note": "x"},
        "resources": {"requests": {"cpu": "1000m"}, "limits": {"memory": "1Gi"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
    }
    simulation = Simulation.serving(workers={"replicas": 2, "template": template})
    made_template = stateful_set(simulation)["spec"]["template"]
    labels = made_template["metadata"]["labels"]
    assert labels["team"] == "a"
    assert labels["app.kubernetes.io/name"] == APP
    assert made_template["metadata"]["annotations"]["note"] == "x"
    pod = made_template["spec"]
    assert pod["nodeSelector"] == {"disk": "fast"}
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    assert pod["priorityClassName"] == "high"


def test_the_memory_limit_bounds_the_windows() -> None:
    simulation = Simulation.serving(workers={"template": {"resources": {"limits": {"memory": "1Gi"}}}})
    config = worker_config(simulation.children["StatefulSet", simulation.name])
    assert config["window_bytes"] == (2**30 - worker_sets.BASE_MEMORY_BYTES) // 2
    assert config["topics"] == ["orders"]


def test_the_guarantee_reaches_the_workers_and_replaces_them() -> None:
    simulation = Simulation.serving()
    simulation.edit(guarantee="ExactlyOnce")
    simulation.settle()
    config = worker_config(simulation.children["StatefulSet", simulation.name])
    assert config["guarantee"] == "ExactlyOnce"
    assert [a.kind for a in simulation.done if isinstance(a, ApplyChild) and a.rolls] == ["StatefulSet"]


def test_workers_know_the_assignors_that_a_resource_may_name_and_the_same_default() -> None:
    """The models and the worker have no common import that could hold one list for both."""
    assert {protocol.capitalize(): tuple(found) for protocol, found in OF_WORKERS.items()} == ASSIGNORS


@pytest.mark.parametrize(
    "memory",
    ["1e99999999", "1e-99999999", "9" * 40, "1e99999999999999999999", "1e999999E", "1.2.3", "-5Gi", "NaN", "Infinity"],
)
def test_a_memory_limit_that_no_machine_has_holds_up_nobody(memory: str) -> None:
    simulation = Simulation.serving(workers={"template": {"resources": {"limits": {"memory": memory}}}})
    config = worker_config(simulation.children["StatefulSet", simulation.name])
    assert config["window_bytes"] == worker_sets.MIN_WINDOW_BYTES


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s["spec"].update(replicas=9),
        lambda s: s["spec"]["template"]["spec"]["containers"][0].update(image="evil"),
        lambda s: s["metadata"]["labels"].clear(),
        lambda s: s["spec"]["template"]["spec"].update(volumes=[]),
    ],
)
def test_a_stateful_set_changed_by_hand_is_repaired(damage: Any) -> None:
    simulation = Simulation.serving()
    live = stateful_set(simulation)
    live["metadata"]["managedFields"] = [{"manager": "delayed-topics-operator"}]
    damage(live)
    simulation.settle()
    assert [(a.kind, a.change) for a in simulation.done if isinstance(a, ApplyChild)] == [("StatefulSet", "repaired")]
    assert drifted(stateful_set(simulation), live) is not None


def test_what_somebody_adds_to_the_workers_is_left_and_not_fought_over() -> None:
    simulation = Simulation.serving()
    live = stateful_set(simulation)
    live["metadata"].setdefault("ownerReferences", []).append({"uid": "x", "kind": "App", "name": "x"})
    pod = live["spec"]["template"]["spec"]
    pod["containers"][0]["env"].insert(0, {"name": "FOO", "value": "bar"})
    pod["containers"].insert(0, {"name": "sidecar", "image": "mesh"})
    pod["volumes"].append({"name": "mesh", "emptyDir": {}})
    assert reconcile(simulation.observe()).actions == ()


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret", "Service", "PodDisruptionBudget", "StatefulSet"])
def test_what_somebody_deleted_is_made_again(kind: str) -> None:
    simulation = Simulation.serving()
    before = copy.deepcopy(simulation.children)
    for key in [key for key in simulation.children if key[0] == kind]:
        del simulation.children[key]
    simulation.settle()
    assert simulation.children.keys() == before.keys()


def test_an_object_that_somebody_else_made_under_the_same_name_is_left_alone() -> None:
    simulation = Simulation(resource())
    key = ("Secret", f"{simulation.name}-connection")
    theirs = {
        "kind": "Secret",
        "metadata": {"name": key[1], "namespace": "delayed-topics-system", "labels": {}},
        "data": {},
    }
    simulation.children[key] = theirs
    simulation.settle()
    assert simulation.children == {key: theirs}
    condition = simulation.condition(Condition.WORKERS_READY)
    assert "not made by the operator" in condition.message


def test_an_object_of_another_resource_is_neither_taken_over_nor_deleted() -> None:
    simulation, other = Simulation(resource()), Simulation.serving(name="pay")
    key = ("Secret", f"{simulation.name}-connection")
    theirs = copy.deepcopy(other.children["Secret", f"{other.name}-connection"])
    theirs["metadata"] |= {"name": key[1], "managedFields": [{"manager": "delayed-topics-operator"}]}
    simulation.children[key] = theirs
    simulation.settle()
    assert "not made by the operator" in simulation.condition(Condition.WORKERS_READY).message
    simulation.delete()
    simulation.settle()
    assert simulation.gone
    assert simulation.children == {key: theirs}


def test_scaling_changes_the_replicas_and_replaces_no_pod() -> None:
    simulation = Simulation.serving()
    simulation.edit(workers={"replicas": 4})
    simulation.settle()
    actions = [a for a in simulation.done if isinstance(a, ApplyChild)]
    assert [(a.kind, a.change, a.rolls) for a in actions] == [("StatefulSet", "changed", False)]
    condition = simulation.condition(Condition.WORKERS_READY)
    assert (condition.status, condition.reason) == ("False", Reason.WORKERS_STARTING)
    simulation.workers_come_up()
    simulation.settle()
    assert simulation.condition(Condition.WORKERS_READY).message == "4 of 4 workers are ready"


def test_workers_that_were_scaled_away_leave_no_transaction_open() -> None:
    counts = PodCounts()
    simulation = Simulation.serving(guarantee="ExactlyOnce", workers={"replicas": 3})
    vanished = counts.vanished("home", simulation.name, stateful_set(simulation), wanted=3)
    assert vanished == ()
    simulation.edit(workers={"replicas": 1})
    simulation.settle()
    assert counts.vanished("home", simulation.name, stateful_set(simulation), wanted=1) == ()
    simulation.workers_come_up()
    simulation.vanished = counts.vanished("home", simulation.name, stateful_set(simulation), wanted=1)
    assert counts.vanished("home", simulation.name, stateful_set(simulation), wanted=1) == ()

    simulation.settle()

    ids = tuple(f"delayedtopics.orders.{simulation.name}-{number}" for number in (1, 2))
    assert [a.transactional_ids for a in simulation.done if isinstance(a, FenceWorkers)] == [ids]


def test_pods_that_are_replaced_are_left_alone_and_so_are_workers_without_transactions() -> None:
    counts = PodCounts()
    simulation = Simulation.serving(workers={"replicas": 2})
    counts.vanished("home", simulation.name, stateful_set(simulation), wanted=2)
    rolling = {"status": {"replicas": 1}}
    assert counts.vanished("home", simulation.name, rolling, wanted=2) == ()
    simulation.vanished = (f"{simulation.name}-1",)
    simulation.settle()
    assert not simulation.done


def test_no_workers_at_all_is_said_and_is_not_ready() -> None:
    simulation = Simulation.serving()
    simulation.edit(workers={"replicas": 0})
    simulation.settle()
    assert simulation.condition(Condition.READY).reason == Reason.SCALED_TO_ZERO


def test_another_protocol_replaces_the_pods() -> None:
    simulation = Simulation.serving()
    simulation.edit(rebalance={"protocol": "Consumer"})
    simulation.settle()
    assert any(isinstance(a, ApplyChild) and a.rolls for a in simulation.done)


def test_a_stateful_set_with_what_can_not_be_changed_is_made_again_around_its_pods() -> None:
    simulation = Simulation.serving()
    stateful_set(simulation)["spec"]["podManagementPolicy"] = "OrderedReady"
    plan = reconcile(simulation.observe())
    assert [type(a) for a in plan.actions] == [DeleteChild]
    assert isinstance(plan.actions[0], DeleteChild)
    assert plan.actions[0].orphan
    simulation.settle()
    assert stateful_set(simulation)["spec"]["podManagementPolicy"] == "Parallel"


def test_workers_that_do_not_come_up_for_two_minutes_are_said_to_fail_and_where_to_look() -> None:
    simulation = Simulation(resource())
    simulation.settle()
    assert simulation.condition(Condition.WORKERS_READY).reason == Reason.WORKERS_STARTING
    simulation.later(121)
    simulation.settle()
    condition = simulation.condition(Condition.WORKERS_READY)
    assert condition.reason == Reason.WORKERS_FAILING
    assert "kubectl --namespace delayed-topics-system describe pods" in condition.message


def test_an_alarm_of_a_worker_becomes_a_condition_and_ends_ready_until_it_is_cleared() -> None:
    simulation = Simulation.serving()
    alarm = RaisedAlarm(member=f"{simulation.name}-0", reason=Reason.COMMIT_MISSING, message="orders [1] has no commit")
    simulation.news = WorkerNews(alarms=(alarm,))
    simulation.settle()
    raised = simulation.condition(Condition.ALARM)
    assert (raised.status, raised.reason) == ("True", Reason.COMMIT_MISSING)
    assert "orders [1] has no commit" in raised.message
    assert simulation.condition(Condition.READY).status == "False"
    simulation.news = WorkerNews()
    simulation.settle()
    assert simulation.condition(Condition.ALARM).status == "False"
    assert simulation.condition(Condition.READY).status == "True"


def test_records_near_the_end_of_retention_are_shown_and_the_topic_stays_ready_since_it_is_served() -> None:
    simulation = Simulation.serving()
    message = "records of orders [1] that are not released come near the end of retention"
    alarm = RaisedAlarm(member=f"{simulation.name}-0", reason=Reason.RETENTION_AT_RISK, message=message)
    simulation.news = WorkerNews(alarms=(alarm,))
    simulation.settle()
    raised = simulation.condition(Condition.ALARM)
    assert (raised.status, raised.reason) == ("True", Reason.RETENTION_AT_RISK)
    assert message in raised.message
    assert simulation.condition(Condition.READY).status == "True"
    worse = RaisedAlarm(
        member=f"{simulation.name}-0", reason=Reason.TARGET_UNAVAILABLE, message="orders.ready is missing"
    )
    simulation.news = WorkerNews(alarms=(alarm, worse))
    simulation.settle()
    both = simulation.condition(Condition.ALARM)
    assert both.reason == simulation.condition(Condition.READY).reason == Reason.TARGET_UNAVAILABLE
    assert message in both.message


def test_alarms_without_end_leave_a_status_that_can_be_written() -> None:
    simulation = Simulation.serving()
    alarms = (RaisedAlarm(member=f"{simulation.name}-0", reason=f"R{n}", message="x" * 40_000) for n in range(3))
    simulation.news = WorkerNews(alarms=tuple(alarms))
    simulation.settle()
    assert len(simulation.condition(Condition.ALARM).message) == 4000
    assert simulation.condition(Condition.ALARM).message.endswith("…")


def test_alarms_of_several_workers_stand_in_the_condition_one_after_the_other() -> None:
    simulation = Simulation.serving(workers={"replicas": 5})
    names = [f"{simulation.name}-{n}" for n in range(5)]
    alarms = (RaisedAlarm(member=name, reason=Reason.COMMIT_MISSING, message="No commit. Reset it") for name in names)
    simulation.news = WorkerNews(alarms=tuple(alarms))
    simulation.settle()
    message = simulation.condition(Condition.ALARM).message
    shown = ". ".join(f"{name}: No commit. Reset it" for name in names[:3])
    assert message == f"{shown}. Alarms that are not shown: 2"


def test_an_alarm_of_a_worker_that_was_scaled_away_does_not_count() -> None:
    simulation = Simulation.serving()
    alarm = RaisedAlarm(member=f"{simulation.name}-7", reason=Reason.COMMIT_MISSING, message="old")
    simulation.news = WorkerNews(alarms=(alarm,))
    simulation.settle()
    assert simulation.condition(Condition.ALARM).status == "False"


def test_members_and_their_partitions_are_in_the_status_up_to_fifty() -> None:
    simulation = Simulation.serving()
    members = tuple(
        member(f"{simulation.name}-{n:02}", ("orders", 0), ("orders", 1), ("orders.delays", 2)) for n in range(60)
    )
    simulation.kafka.members["delayedtopics.orders"] = members
    simulation.settle()
    rebalance = simulation.raw["status"]["rebalance"]
    assert rebalance["memberCount"] == 60
    assert len(rebalance["members"]) == 50
    assert rebalance["members"][0] == {"name": f"{simulation.name}-00", "partitions": "orders:0-1 orders.delays:2"}
    assert rebalance["state"] == "Stable"


@pytest.mark.parametrize(
    "name", ["orders", "o" * 200, "a.b.c", "9lives", "x" * 43 + "." + "y" * 9, "-".join("abcdefgh" * 6)]
)
def test_names_of_objects_are_short_legal_and_different(name: str) -> None:
    there = worker_sets.object_name(namespace="shop", name=name, home="system")
    here = worker_sets.object_name(namespace="shop", name=name, home="shop")
    elsewhere = worker_sets.object_name(namespace="other", name=name, home="system")
    assert len({there, here, elsewhere}) == (3 if here.endswith("-delay") else 2)
    for made_name in (there, here, elsewhere):
        assert len(made_name) <= worker_sets.MAX_NAME
        assert made_name[0].isalpha()
        assert made_name.replace("-", "").isalnum()


TERMS = {"terms": [{"topologyKey": "zone", "namespaces": [name]} for name in ("a", "b")]}
PORTS = {"ports": [{"name": name, "containerPort": 53, "protocol": name.upper()} for name in ("tcp", "udp")]}


def test_several_affinity_terms_of_one_topology_key_are_applied_once() -> None:
    """In the past, such terms never counted as applied, so the operator applied them again and again."""
    terms = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}} for app in ("a", "b")]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    simulation = Simulation.serving(workers={"template": {"affinity": affinity}})
    assert reconcile(simulation.observe()).actions == ()


@pytest.mark.parametrize(
    ("wanted", "live", "path"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, None),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ".a.b[1].c"),
        ({"a": []}, {}, None),
        ({"a": False}, {}, ".a"),
        ({"resources": {"limits": {"cpu": "1000m"}}}, {"resources": {"limits": {"cpu": "1"}}}, None),
        ({"resources": {"limits": {"memory": "1024Mi"}}}, {"resources": {"limits": {"memory": "1Gi"}}}, None),
        ({"resources": {"limits": {"cpu": 1}}}, {"resources": {"limits": {"cpu": "2"}}}, ".resources.limits.cpu"),
        ({"a": [1]}, {"a": [1, 2]}, ".a"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B"}, {"name": "A", "value": "1"}]}, None),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, ".env[0].value"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "1"}]}, ".env[0].name"),
        ({"keys": [{"key": "a"}]}, {"keys": [{"key": "a"}, {"key": "b"}]}, ".keys"),
        (TERMS, TERMS, None),
        (TERMS, {"terms": [*reversed(TERMS["terms"])]}, ".terms[0].namespaces[0]"),
        (PORTS, {"ports": [*reversed(PORTS["ports"])]}, None),
        ({"ports": PORTS["ports"][:1]}, PORTS, None),
        ({"ports": PORTS["ports"][1:]}, PORTS, None),
    ],
)
def test_drift_is_what_was_applied_and_is_otherwise_now(wanted: Any, live: Any, path: str | None) -> None:
    assert drifted(wanted, live) == path
