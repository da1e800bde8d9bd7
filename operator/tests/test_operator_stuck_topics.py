"""If one topic is lost, foreign or without a leader, the operator still follows everything else of the delayed topic."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import LayoutRecord, encode
from delayed_topics_operator_testing.namespace_simulation import grant
from delayed_topics_operator_testing.shared import SHARED, sharing
from delayed_topics_operator_testing.simulation import Simulation, member, resource, usable

OWN = "delayedtopics.orders"
THEIRS = {"cleanup.policy": "delete", "retention.ms": "1"}
Damage = Callable[[Simulation], None]


def leaderless(topic: str) -> Damage:
    return lambda simulation: simulation.kafka.leaderless.add(topic)


def added(topic: str) -> Damage:
    """Somebody else adds a partition that has no leader."""

    def add(simulation: Simulation) -> None:
        simulation.kafka.unled.add((topic, simulation.kafka.topics[topic].partitions))
        simulation.kafka.topics[topic].partitions += 1

    return add


def gone(topic: str) -> Damage:
    return lambda simulation: simulation.kafka.delete(topic)


def foreign(topic: str) -> Damage:
    """Somebody else creates the topic, in place of the operator's topic if there is one."""

    def make(simulation: Simulation) -> None:
        if topic in simulation.kafka.topics:
            simulation.kafka.delete(topic)
        simulation.kafka.create(topic, 20, config=THEIRS)

    return make


def damages(**made: Damage) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("damage", made.values(), ids=made.keys())


NONE_DECIDES = damages(
    leaderless_front=leaderless("orders"),
    leaderless_delays=leaderless("orders.delays"),
    leaderless_ready=leaderless("orders.ready"),
    leaderless_dead_letters=leaderless("orders.dead"),
    added_to_ready=added("orders.ready"),
    foreign_control=foreign("orders.control"),
)
"""Nobody has to decide anything: all of the spec can be followed."""
SOMEBODY_DECIDES = damages(
    foreign_ready=foreign("orders.ready"),
    foreign_front=foreign("orders"),
    foreign_delays=foreign("orders.delays"),
    front_gone=gone("orders"),
    delays_gone=gone("orders.delays"),
)


def layout(simulation: Simulation) -> LayoutRecord:
    return simulation.kafka.registry.layouts["orders"]


def served(simulation: Simulation) -> LayoutRecord:
    found = layout(simulation).served
    assert found is not None
    return found


def partitions(simulation: Simulation) -> dict[str, int]:
    """Returns the number of partitions of each topic, by its id."""
    return {topic.id: topic.partitions for topic in simulation.kafka.topics.values()}


def followed(simulation: Simulation) -> None:
    for paused, replicas in ((True, 1), (False, 2)):
        simulation.edit(paused=paused, workers={"replicas": replicas})
        simulation.settle()
        assert (served(simulation).paused, served(simulation).workers) == (paused, replicas)
        assert simulation.children["StatefulSet", simulation.name]["spec"]["replicas"] == replicas
        assert simulation.condition(Condition.TOPICS_READY).status == "False"


@NONE_DECIDES
def test_whatever_is_edited_is_followed_while_nobody_has_to_decide_anything(damage: Damage) -> None:
    simulation = Simulation.serving(control={}, workers={"replicas": 3})
    damage(simulation)
    followed(simulation)
    simulation.edit(delaySeconds=[0, 60, 600], retryCap=9, partitions=9)
    simulation.settle()
    now = layout(simulation)
    assert (now.state, now.retry_cap, now.layout.delay_seconds) == ("serving", 9, (0, 60, 600))
    assert now.layout.partition_count == simulation.kafka.topics["orders.delays"].partitions >= 9
    assert now.control == (simulation.kafka.topics["orders.control"].config != THEIRS)


@SOMEBODY_DECIDES
def test_a_pause_the_cap_and_the_number_of_workers_are_followed_until_somebody_decides(damage: Damage) -> None:
    simulation = Simulation.serving(control={}, workers={"replicas": 3})
    damage(simulation)
    before = partitions(simulation)
    followed(simulation)
    simulation.edit(retryCap=9)
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).retry_cap) == ("serving", 9)
    simulation.edit(delaySeconds=[0, 10, 60, 600])
    simulation.settle()
    assert (layout(simulation).state, served(simulation).layout.delay_seconds) == ("planned", (0, 10, 60))
    followed(simulation)
    assert partitions(simulation) == before


@NONE_DECIDES
@pytest.mark.parametrize("begun", [False, True])
def test_a_handover_begins_and_ends_while_nobody_has_to_decide_anything(damage: Damage, begun: bool) -> None:
    simulation = with_a_member()
    if not begun:
        damage(simulation)
    simulation.connection = sharing()
    simulation.settle()
    if begun:
        damage(simulation)
        simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("retired", OWN)
    simulation.kafka.members[OWN] = ()
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", SHARED.group)
    assert simulation.kafka.registry.topics["orders"].handover is not None
    simulation.connection = usable()
    simulation.serve()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", OWN)


@SOMEBODY_DECIDES
def test_a_handover_gives_the_topics_back_until_somebody_decides(damage: Damage) -> None:
    simulation = with_a_member()
    simulation.connection = sharing()
    simulation.settle()
    assert layout(simulation).state == "retired"
    damage(simulation)
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", OWN)


def test_a_handover_goes_on_when_somebody_has_decided() -> None:
    simulation = with_a_member()
    foreign("orders.ready")(simulation)
    simulation.connection = sharing()
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", OWN)
    simulation.kafka.delete("orders.ready")
    simulation.settle()
    assert layout(simulation).state == "retired"
    simulation.kafka.members[OWN] = ()
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", SHARED.group)


def with_a_member() -> Simulation:
    simulation = Simulation.serving(control={})
    simulation.kafka.members[OWN] = (member(f"{simulation.name}-0", ("orders", 0), ("orders.delays", 0)),)
    simulation.kafka.committed[OWN] = dict.fromkeys(simulation.kafka.committed[OWN], 7)
    return simulation


def imported(simulation: Simulation) -> None:
    """Leaves the registry as `registry import` does."""
    retired = replace(layout(simulation), state="retired")
    simulation.kafka.write(retired.key, encode(retired))


@damages(leaderless=leaderless("orders"), foreign=foreign("orders.ready"), gone=gone("orders"))
def test_after_an_import_of_the_registry_what_is_there_is_served(damage: Damage) -> None:
    simulation = Simulation.serving()
    imported(simulation)
    damage(simulation)
    simulation.settle()
    assert layout(simulation).state == "serving"


def test_after_an_import_a_layout_of_which_kafka_has_fewer_partitions_is_not_served() -> None:
    simulation = Simulation.serving(partitions=8)
    imported(simulation)
    simulation.kafka.topics["orders.delays"].partitions = 3
    gone("orders")(simulation)
    simulation.settle()
    assert layout(simulation).served is None


def test_settings_of_its_other_topics_are_repaired_and_somebody_elses_are_left_alone() -> None:
    simulation = Simulation.serving()
    before = copy.deepcopy(simulation.kafka.topics["orders.delays"].config)
    foreign("orders.ready")(simulation)
    simulation.kafka.topics["orders.delays"].config["retention.ms"] = "1000"
    simulation.settle()
    assert simulation.kafka.topics["orders.delays"].config == before
    assert simulation.kafka.topics["orders.ready"].config == THEIRS
    assert simulation.condition(Condition.TOPICS_READY).reason == Reason.TOPIC_FOREIGN


def test_what_needs_a_refused_setting_is_not_served_and_a_pause_is_followed() -> None:
    simulation = Simulation.serving(workers={"replicas": 3})
    foreign("orders.ready")(simulation)
    simulation.kafka.refuses = frozenset({"retention.ms"})
    simulation.edit(outageBudgetSeconds=864_000)
    followed(simulation)
    assert served(simulation).outage_budget_seconds < 864_000


def test_a_refused_resource_no_longer_reads_a_control_topic_that_is_somebody_elses() -> None:
    simulation = Simulation(resource(control={}), connection=usable(grant())).serve()
    simulation.edit(workers={"replicas": 1, "template": {"labels": {"policy": "open"}}})
    simulation.settle()
    assert simulation.condition(Condition.READY).reason == Reason.NOT_ALLOWED
    assert layout(simulation).control
    foreign("orders.control")(simulation)
    simulation.settle()
    assert not layout(simulation).control


@damages(front=added("orders"), delays=added("orders.delays"))
def test_a_pause_and_the_number_of_workers_are_followed_though_somebody_added_a_partition_without_a_leader(
    damage: Damage,
) -> None:
    simulation = Simulation.serving(control={}, workers={"replicas": 3})
    damage(simulation)
    followed(simulation)


def test_a_new_partition_without_a_leader_is_served_once_kafka_says_where_it_begins_and_the_others_meanwhile() -> None:
    simulation = Simulation.serving(partitions=8)
    before = layout(simulation)
    simulation.kafka.unled.add(("orders.delays", 8))
    simulation.edit(partitions=9, paused=True)
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).before) == ("planned", replace(before, paused=True))
    assert len(simulation.kafka.registry.topics["orders"].start_offsets["orders.delays"]) == 8
    condition = simulation.condition(Condition.TOPICS_READY)
    assert (condition.status, condition.message) == ("False", "some partitions have no leader. Check the brokers")

    simulation.kafka.unled = set()
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).layout.partition_count) == ("serving", 9)
    assert len(simulation.kafka.registry.topics["orders"].start_offsets["orders.delays"]) == 9
