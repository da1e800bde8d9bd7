"""A resource asks for something that is refused: its workers go on, and what cannot wait reaches them all the same."""

import base64
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import Grant
from delayed_topics_crds.pods import LabelSelector
from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.values.eventlog import RaisedAlarm, WorkerNews
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.shared import SHARED, sharing
from delayed_topics_operator_testing.simulation import Simulation, member, resource, usable

NOT_GRANTED = {"labels": {"policy": "open"}}


def asks_for_a_label() -> Simulation:
    grant = Grant(namespace_selector=LabelSelector(), topic_prefixes=("",))
    simulation = Simulation(resource(workers={"replicas": 3}), connection=usable(grant)).serve()
    simulation.edit(workers={"replicas": 3, "template": NOT_GRANTED})
    simulation.settle()
    assert simulation.condition(Condition.READY).reason == Reason.NOT_ALLOWED
    return simulation


def lost_its_grant() -> Simulation:
    simulation = asks_for_a_label()
    simulation.connection = usable(Grant(namespace_selector=LabelSelector(), topic_prefixes=("elsewhere",)))
    simulation.settle()
    return simulation


def needs_a_refused_setting() -> Simulation:
    simulation = Simulation(resource(workers={"replicas": 3})).serve()
    simulation.kafka.refuses = frozenset({"retention.ms"})
    simulation.edit(delaySeconds=[0, 864_000], workers={"replicas": 3, "template": NOT_GRANTED})
    simulation.settle()
    assert simulation.condition(Condition.READY).reason == Reason.SETTING_REFUSED
    return simulation


REFUSED = pytest.mark.parametrize("refused", [asks_for_a_label, lost_its_grant, needs_a_refused_setting])


def stateful_set(simulation: Simulation) -> dict[str, Any]:
    return copy.deepcopy(simulation.children["StatefulSet", simulation.name]["spec"])


@REFUSED
def test_nothing_is_done_while_nothing_is_asked_for(refused: Callable[[], Simulation]) -> None:
    simulation = refused()
    before = len(simulation.done)
    simulation.settle()
    assert len(simulation.done) == before
    assert "policy" not in stateful_set(simulation)["template"]["metadata"]["labels"]


@REFUSED
def test_a_topic_whose_new_spec_is_refused_can_be_paused_and_resumed(refused: Callable[[], Simulation]) -> None:
    simulation = refused()
    for paused in (True, False):
        simulation.edit(paused=paused)
        simulation.settle()
        served = simulation.kafka.registry.layouts["orders"].served
        assert served is not None
        assert (served.paused, served.layout.delay_seconds) == (paused, (0, 10, 60))


@pytest.mark.parametrize("refused", [asks_for_a_label, needs_a_refused_setting])
def test_a_topic_whose_new_spec_is_refused_can_be_scaled_down_to_nothing_and_up_again(
    refused: Callable[[], Simulation],
) -> None:
    simulation = refused()
    for replicas in (2, 0, 4):
        simulation.edit(workers={"replicas": replicas, "template": NOT_GRANTED})
        simulation.settle()
        assert stateful_set(simulation)["replicas"] == replicas
        served = simulation.kafka.registry.layouts["orders"].served
        assert served is not None
        assert served.workers == replicas
        stopped = simulation.condition(Condition.WORKERS_READY).reason == Reason.SCALED_TO_ZERO
        assert stopped == (replicas == 0)


def test_what_no_entry_covers_any_more_keeps_its_workers_and_gets_no_further_ones() -> None:
    simulation = lost_its_grant()
    for asked, have in ((5, 3), (2, 2), (3, 2), (0, 0), (3, 0)):
        simulation.edit(workers={"replicas": asked, "template": NOT_GRANTED})
        simulation.settle()
        simulation.workers_come_up()
        simulation.settle()
        assert stateful_set(simulation)["replicas"] == have
        condition = simulation.condition(Condition.WORKERS_READY)
        assert (condition.reason == Reason.GRANT_EXCEEDED) == (asked > have), condition.message


def test_a_secret_that_somebody_else_made_is_left_alone() -> None:
    simulation = asks_for_a_label()
    key = ("Secret", f"{simulation.name}-connection")
    simulation.children[key]["metadata"].update(labels={}, managedFields=[])
    simulation.children[key]["data"] = {"theirs": "eA=="}
    simulation.settle()
    assert simulation.children[key]["data"] == {"theirs": "eA=="}
    assert "already exists" in simulation.condition(Condition.WORKERS_READY).message


@REFUSED
def test_new_credentials_reach_its_workers_and_nothing_else_of_them_changes(refused: Callable[[], Simulation]) -> None:
    simulation = refused()
    before = stateful_set(simulation)
    assert isinstance(simulation.connection, Usable)
    files = {"bootstrap-servers": "k:9092", "password": "new"}
    simulation.connection = replace(simulation.connection, files=files)
    simulation.may_roll = False
    simulation.edit(workers={"replicas": 2, "template": NOT_GRANTED})
    secret = ("Secret", f"{simulation.name}-connection")
    simulation.settle()
    assert stateful_set(simulation) == {**before, "replicas": 2}, "the workers wait for their turn"
    simulation.may_roll = True
    simulation.settle()
    assert base64.b64decode(simulation.children[secret]["data"]["password"]) == b"new"
    after = stateful_set(simulation)
    (mounted,) = (s["secret"] for s in after["template"]["spec"]["volumes"][0]["projected"]["sources"] if "secret" in s)
    assert [item["key"] for item in mounted["items"]] == ["bootstrap-servers", "password"]
    kept, live = (spec["template"]["metadata"]["annotations"] for spec in (before, after))
    assert {key for key in live if live[key] != kept.get(key)} == {"delayedtopics.io/connection-hash"}
    assert after["template"]["metadata"]["labels"] == before["template"]["metadata"]["labels"]
    assert after["template"]["spec"]["containers"] == before["template"]["spec"]["containers"]


@REFUSED
def test_its_alarms_are_shown(refused: Callable[[], Simulation]) -> None:
    simulation = refused()
    alarm = RaisedAlarm(member=f"{simulation.name}-0", reason="RetentionAtRisk", message="too late")
    simulation.news = WorkerNews(alarms=(alarm,))
    simulation.settle()
    assert simulation.condition(Condition.ALARM).reason == Reason.RETENTION_AT_RISK


@REFUSED
def test_once_it_is_granted_all_of_it_is_as_declared(refused: Callable[[], Simulation]) -> None:
    simulation = refused()
    simulation.edit(paused=True, workers={"replicas": 2, "template": NOT_GRANTED})
    simulation.settle()
    simulation.connection, simulation.kafka.refuses, simulation.kafka.refused = usable(), frozenset(), {}
    simulation.edit(paused=False, workers={"replicas": 4, "template": NOT_GRANTED})
    simulation.settle()
    simulation.workers_come_up()
    simulation.settle()
    assert simulation.condition(Condition.READY).status == "True"
    found = stateful_set(simulation)
    assert (found["replicas"], found["template"]["metadata"]["labels"]["policy"]) == (4, "open")
    assert not simulation.kafka.registry.layouts["orders"].paused


GRANTED = Grant(namespace_selector=LabelSelector(), topic_prefixes=("",))
OWN = "delayedtopics.orders"


def moves_to_shared_workers() -> Simulation:
    """Returns a topic that moves from its own workers, which have not given up all partitions yet."""
    simulation = Simulation(resource(), connection=usable(GRANTED)).serve()
    simulation.kafka.members[OWN] = (member(f"{simulation.name}-0", ("orders", 0)),)
    simulation.connection = replace(sharing(), grants=(GRANTED,))
    simulation.settle()
    return simulation


def moves_to_its_own_workers() -> Simulation:
    simulation = Simulation(resource(), connection=replace(sharing(), grants=(GRANTED,)))
    simulation.settle()
    simulation.kafka.members[SHARED.group] = (member(f"{SHARED.name}-0", ("orders", 0)),)
    simulation.edit(workers={"replicas": 2})
    return simulation.serve()


def asks_for_targets(simulation: Simulation) -> None:
    simulation.edit(ready={"allowedTopics": ["payments"]})


def asks_for_targets_and_a_control_topic(simulation: Simulation) -> None:
    simulation.edit(ready={"allowedTopics": ["payments"]}, control={})


def is_granted_nothing(simulation: Simulation) -> None:
    elsewhere = Grant(namespace_selector=LabelSelector(), topic_prefixes=("elsewhere",))
    simulation.connection = replace(sharing(), grants=(elsewhere,))


def needs_what_kafka_refuses(simulation: Simulation) -> None:
    simulation.kafka.refuses = frozenset({"retention.ms"})
    simulation.edit(outageBudgetSeconds=864_000)


@pytest.mark.parametrize("moving", [moves_to_shared_workers, moves_to_its_own_workers])
@pytest.mark.parametrize(
    "refuse",
    [asks_for_targets, asks_for_targets_and_a_control_topic, is_granted_nothing, needs_what_kafka_refuses],
)
def test_topics_on_the_move_go_back_to_the_workers_that_had_them_until_the_spec_can_be_followed(
    moving: Callable[[], Simulation], refuse: Callable[[Simulation], None]
) -> None:
    """In the past, such topics stayed retired, and no worker served them."""
    simulation = moving()
    before, spec = simulation.kafka.registry.layouts["orders"], copy.deepcopy(simulation.raw["spec"])
    assert before.state == "retired"
    refuse(simulation)
    simulation.settle()
    assert simulation.kafka.registry.layouts["orders"] == replace(before, state="serving")
    condition = simulation.condition(Condition.WORKERS_READY)
    assert condition.status == "True"
    assert f"The topics stay with the workers of group {before.group}" in condition.message
    assert simulation.condition(Condition.READY).status == "False"

    simulation.raw["spec"], simulation.kafka.refuses, simulation.kafka.refused = spec, frozenset(), {}
    simulation.connection = replace(sharing(), grants=(GRANTED,))
    simulation.kafka.members = {}
    simulation.edit()
    simulation.settle()
    after = simulation.kafka.registry.layouts["orders"]
    assert (after.state, {after.group, before.group}) == ("serving", {OWN, SHARED.group})
    assert simulation.condition(Condition.READY).status == "True"


def test_topics_go_back_to_own_workers_that_are_asked_for_again_with_what_is_not_granted() -> None:
    simulation = moves_to_shared_workers()
    simulation.edit(workers={"replicas": 1, "template": NOT_GRANTED})
    simulation.settle()
    after = simulation.kafka.registry.layouts["orders"]
    assert (after.state, after.group) == ("serving", OWN)


def test_a_layout_that_kafka_has_not_all_of_is_not_given_back() -> None:
    simulation = moves_to_shared_workers()
    simulation.kafka.topics["orders.delays"].partitions = 1
    is_granted_nothing(simulation)
    simulation.settle()
    assert simulation.kafka.registry.layouts["orders"].state == "retired"


@pytest.mark.slow
@pytest.mark.api
def test_a_resource_that_asks_for_too_much_is_paused_and_gets_new_credentials(harness: OperatorHarness) -> None:
    grant = {"namespaceSelector": {}, "topicPrefixes": [harness.topic]}
    connection = harness.cluster_connection(allow=[grant])
    harness.api.apply(connection)
    harness.apply(workers={"replicas": 2})
    harness.wait_until_served()
    before = (harness.stateful_set() or {})["spec"]["template"]
    harness.apply(workers={"replicas": 1, "template": NOT_GRANTED}, paused=True)
    harness.wait_for("Claimed", "False", "NotAllowed")
    harness.wait(lambda: (harness.stateful_set() or {})["spec"]["replicas"] == 1, "the resource has fewer workers")
    harness.wait(lambda: harness.registry().layouts[harness.topic].paused, "the resource is paused")
    assert (harness.stateful_set() or {})["spec"]["template"] == before

    servers = connection["spec"]["bootstrapServers"]
    connection["spec"]["bootstrapServers"] = [servers[0].replace("127.0.0.1", "localhost")]
    harness.api.apply(connection)

    def template() -> dict[str, Any]:
        return copy.deepcopy((harness.stateful_set() or {})["spec"]["template"])

    harness.wait(lambda: template() != before, "the workers are replaced")
    after = template()
    after["metadata"]["annotations"].pop("delayedtopics.io/connection-hash")
    before["metadata"]["annotations"].pop("delayedtopics.io/connection-hash")
    assert after == before
    harness.apply(workers={"replicas": 1}, paused=True)
    harness.wait_for("Claimed", "True")
