"""A DelayedTopic whose records can be cancelled: its control topic comes, is kept as it has to be, and goes."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_crds import parse
from delayed_topics_operator.audits.freeze import unlike
from delayed_topics_operator.observation import Unusable
from delayed_topics_operator.plan import AlterSettings, CreateTopics, WriteRegistry
from delayed_topics_operator.reconcile import reconcile
from delayed_topics_operator_testing.team import Team, grant, with_quota
from delayed_topics_operator_testing.world import Kafka, Stopped, World, resource, usable

CONTROL = "orders.control"
THEIRS = {"cleanup.policy": "delete", "retention.ms": "1"}


def settled(world: World) -> World:
    world.settle()
    world.workers_come_up()
    world.settle()
    world.done.clear()
    return world


def made(**spec: Any) -> World:
    return settled(World(resource(control={}, **spec)))


def is_read(world: World) -> bool:
    """Whether workers are told to read the control topic."""
    layout = world.kafka.registry.layouts["orders"]
    assert layout.state == "serving"
    return layout.control


def shown(world: World) -> dict[str, str]:
    """Names of the topics in the status, by role."""
    return {topic.role: topic.name for topic in parse("DelayedTopic", world.raw).status.topics}


def test_without_it_there_is_no_control_topic() -> None:
    world = settled(World(resource()))
    assert set(world.kafka.topics) == {"orders", "orders.delays", "orders.ready", "orders.dead"}
    assert (is_read(world), "control" in shown(world)) == (False, False)


def test_a_control_topic_has_one_partition_and_is_compacted_and_kept_for_as_long_as_what_comes_in() -> None:
    world = made(partitions=5)
    control, front = world.kafka.topics[CONTROL], world.kafka.topics["orders"]
    assert (control.partitions, control.replication_factor) == (1, 3)
    assert control.config["cleanup.policy"] == "compact,delete"
    assert control.config["retention.ms"] == front.config["retention.ms"]
    assert front.config["cleanup.policy"] == "delete"
    assert (is_read(world), shown(world)["control"]) == (True, CONTROL)
    assert world.kafka.registry.topics["orders"].ids[CONTROL] == control.id
    assert reconcile(world.observe()).actions == ()


@pytest.mark.parametrize("live", [False, True])
def test_workers_are_told_of_it_when_it_is_there_wherever_the_operator_is_killed(live: bool) -> None:
    def begun() -> World:
        world = World(resource())
        if live:
            settled(world)
        world.edit(control={})
        return world

    undisturbed = begun()
    undisturbed.settle()
    for boundary in range(len(undisturbed.done)):
        world = begun()
        with pytest.raises(Stopped):
            world.settle(actions=boundary)
        layout = world.kafka.registry.layouts.get("orders")
        assert layout is None or layout.state == "serving" or not live, "what is served goes on"
        assert layout is None or not layout.control or CONTROL in world.kafka.registry.topics["orders"].ids
        world.settle()
        assert is_read(world)
        assert world.kafka.registry.topics == undisturbed.kafka.registry.topics
        assert world.kafka.topics == undisturbed.kafka.topics


def test_a_live_resource_gets_one_and_nothing_else_changes() -> None:
    world = settled(World(resource()))
    layout, topics = world.kafka.registry.layouts["orders"], copy.deepcopy(world.kafka.topics)
    world.edit(control={})
    world.settle()
    (created,) = (action for action in world.done if isinstance(action, CreateTopics))
    assert [spec.name for spec in created.specs] == [CONTROL]
    assert is_read(world)
    assert world.kafka.registry.layouts["orders"].layout == layout.layout
    assert {name: topic for name, topic in world.kafka.topics.items() if name != CONTROL} == topics


def test_what_is_changed_by_hand_is_repaired() -> None:
    world = made()
    world.kafka.topics[CONTROL].config |= {"cleanup.policy": "compact", "retention.ms": "1"}
    world.settle()
    (repaired,) = (action for action in world.done if isinstance(action, AlterSettings))
    assert (repaired.topic, repaired.settings["cleanup.policy"]) == (CONTROL, "compact,delete")
    assert world.kafka.topics[CONTROL].config["retention.ms"] == world.kafka.topics["orders"].config["retention.ms"]


def test_where_kafka_refuses_that_it_is_compacted_it_is_said_and_it_is_not_read() -> None:
    world = settled(World(resource(), kafka=Kafka(refuses=frozenset({"cleanup.policy"}))))
    world.edit(control={})
    world.settle()
    said = world.condition(Condition.TOPICS_READY)
    assert (said.status, said.reason) == ("False", Reason.SETTING_REFUSED)
    assert f"cleanup.policy=compact,delete of {CONTROL}" in said.message
    assert "a control topic alone has to be compacted" in said.message
    assert not is_read(world)


def test_when_it_is_asked_for_no_more_it_is_not_read_and_stays_as_it_is() -> None:
    world = made()
    world.raw["spec"].pop("control")
    world.edit()
    world.settle()
    assert [type(action) for action in world.done if not isinstance(action, WriteRegistry)] == []
    assert not is_read(world)
    assert world.condition(Condition.TOPICS_READY).status == "True"
    assert shown(world)["control"] == CONTROL
    kept = copy.deepcopy(world.kafka.topics[CONTROL])
    kept.config["retention.ms"] = world.kafka.topics[CONTROL].config["retention.ms"] = "1"
    world.settle()
    assert world.kafka.topics[CONTROL] == kept
    world.edit(control={})
    world.settle()
    assert (is_read(world), world.kafka.topics[CONTROL].id) == (True, kept.id)
    assert world.kafka.topics[CONTROL].config["retention.ms"] != "1"


@pytest.mark.parametrize("asked_for", [True, False])
def test_delete_deletes_it_though_it_is_asked_for_no_more(asked_for: bool) -> None:
    world = made(deletionPolicy="Delete")
    if not asked_for:
        del world.raw["spec"]["control"]
        world.settle()
    world.delete()
    world.settle()
    assert (world.gone, world.kafka.topics, world.kafka.registry.topics) == (True, {}, {})


@pytest.mark.parametrize("asked_for", [True, False])
def test_retain_keeps_and_names_it_and_the_same_resource_goes_on_with_it(asked_for: bool) -> None:
    world = made()
    if not asked_for:
        del world.raw["spec"]["control"]
        world.settle()
    before = copy.deepcopy(world.kafka.topics)
    world.children.clear()
    world.delete()
    (notice,) = reconcile(world.observe()).notices
    assert f"topics orders, orders.delays, orders.ready, orders.dead, {CONTROL}, group" in notice.message
    world.settle()
    assert (world.gone, world.kafka.topics) == (True, before)
    again = settled(World(resource(uid="another", control={}), kafka=world.kafka))
    assert (is_read(again), again.kafka.topics[CONTROL].id) == (True, before[CONTROL].id)


def test_with_kafka_away_it_is_named_among_what_stays() -> None:
    world = made(deletionPolicy="Delete")
    world.connection = Unusable(reason=Reason.KAFKA_UNREACHABLE, message="Kafka does not answer", since=world.now)
    world.children.clear()
    world.delete()
    world.later(301)
    (notice,) = reconcile(world.observe()).notices
    assert f"orders.dead, {CONTROL}, group" in notice.message


def test_somebody_elses_topic_of_that_name_is_no_obstacle_for_who_asks_for_none_and_is_left_alone() -> None:
    world = World(resource(deletionPolicy="Delete"))
    world.kafka.create(CONTROL, 7, config=THEIRS)
    theirs = copy.deepcopy(world.kafka.topics[CONTROL])
    settled(world)
    assert world.condition(Condition.READY).status == "True"
    assert "control" not in shown(world)
    world.delete()
    world.settle()
    assert (world.gone, world.kafka.topics) == (True, {CONTROL: theirs})


def test_whether_somebody_elses_topic_of_that_name_has_leaders_is_nobodys_matter() -> None:
    world = settled(World(resource()))
    world.kafka.create(CONTROL, 1)
    o = world.observe()
    assert o.kafka is not None
    theirs = o.kafka.topics[CONTROL]
    assert theirs is not None
    topics = {**o.kafka.topics, CONTROL: replace(theirs, leaders_known=False)}
    status = reconcile(replace(o, kafka=replace(o.kafka, topics=topics))).status
    assert status is not None
    (said,) = (c for c in status.conditions if c.type == Condition.TOPICS_READY)
    assert said.status == "True", said.message


def test_who_asks_for_one_where_somebody_has_made_it_claims_nothing_and_is_told_how_to_do_without() -> None:
    world = World(resource(control={}))
    world.kafka.create(CONTROL, 1, config=THEIRS)
    world.settle()
    said = world.condition(Condition.CLAIMED)
    assert (said.reason, world.done, set(world.kafka.topics)) == (Reason.TOPIC_FOREIGN, [], {CONTROL})
    assert CONTROL in said.message
    assert "remove spec.control" in said.message


def test_a_live_resource_does_not_take_somebody_elses_for_its_own_and_goes_on() -> None:
    world = settled(World(resource(deletionPolicy="Delete")))
    world.kafka.create(CONTROL, 1, config=THEIRS)
    before = copy.deepcopy(world.kafka.topics)
    world.edit(control={})
    world.settle()
    said = world.condition(Condition.TOPICS_READY)
    assert (said.status, said.reason) == ("False", Reason.TOPIC_FOREIGN)
    assert f"somebody else has made {CONTROL}" in said.message
    assert "remove spec.control" in said.message
    assert (is_read(world), world.kafka.topics) == (False, before)
    del world.raw["spec"]["control"]
    world.settle()
    assert world.condition(Condition.TOPICS_READY).status == "True"
    world.delete()
    world.settle()
    assert (world.gone, set(world.kafka.topics)) == (True, {CONTROL})


def test_one_that_somebody_made_in_the_place_of_ours_is_not_read_changed_or_deleted() -> None:
    world = made(deletionPolicy="Delete")
    world.kafka.delete(CONTROL)
    world.kafka.create(CONTROL, 1, config=THEIRS)
    theirs = copy.deepcopy(world.kafka.topics[CONTROL])
    world.settle()
    assert world.condition(Condition.TOPICS_READY).reason == Reason.TOPIC_FOREIGN
    assert (is_read(world), world.kafka.topics[CONTROL]) == (False, theirs)
    world.delete()
    world.settle()
    assert (world.gone, world.kafka.topics) == (True, {CONTROL: theirs})


def test_one_that_was_deleted_is_made_again_and_it_is_said_what_that_means() -> None:
    world = made()
    former = world.kafka.topics[CONTROL].id
    world.kafka.delete(CONTROL)
    (notice,) = reconcile(world.observe()).notices
    assert (notice.type, notice.reason) == ("Warning", Reason.TOPIC_MISSING)
    assert f"{CONTROL} (id {former}) was deleted by somebody else; what was cancelled there" in notice.message
    world.settle()
    told = [action.record for action in world.done if isinstance(action, WriteRegistry)]
    layouts = [(record.state, record.control) for record in told if isinstance(record, LayoutRecord)]
    assert layouts == [("serving", False), ("serving", True)]
    assert world.kafka.registry.topics["orders"].ids[CONTROL] == world.kafka.topics[CONTROL].id != former


def test_audits_go_on_though_the_control_topic_was_made_again() -> None:
    world = made()
    world.kafka.delete(CONTROL)
    world.settle()
    noted = world.kafka.registry.topics["orders"]
    assert noted.made_again == (CONTROL,)
    o = world.observe()
    assert o.kafka is not None
    assert unlike(noted, o.kafka.topics, o.wanted.names) is None


def test_one_that_somebody_grew_is_said_since_only_its_first_partition_is_read() -> None:
    world = made()
    world.kafka.topics[CONTROL].partitions = 3
    world.settle()
    said = world.condition(Condition.TOPICS_READY)
    assert (said.status, said.reason) == ("False", Reason.PARTITIONS_FOREIGN)
    assert f"{CONTROL} has 3 partitions" in said.message


def test_its_partition_counts_for_the_quota_until_it_is_deleted() -> None:
    team = Team(with_quota(partitions=6))
    world = team.add("orders", partitions=3, control={})
    team.settle()
    assert "and this asks for 7 in all its topics" in world.condition(Condition.CLAIMED).message
    del world.raw["spec"]["control"]
    world.edit()
    team.settle()
    assert (team.reason("orders", Condition.TOPICS_READY)[0], team.used().partitions) == ("True", 6)
    world.edit(control={})
    team.settle()
    assert team.reason("orders", Condition.TOPICS_READY) == ("False", Reason.GRANT_EXCEEDED)
    assert CONTROL not in team.kafka.topics

    team.connection = world.connection = with_quota(partitions=7)
    team.settle()
    assert (is_read(world), team.used().partitions) == (True, 7)
    team.restart()
    assert team.used().partitions == 7
    del world.raw["spec"]["control"]
    world.edit(delaySeconds=[0, 10, 60, 300])
    team.settle()
    assert "and this asks for 8 in all its topics" in world.condition(Condition.TOPICS_READY).message
    assert (is_read(world), team.used().partitions) == (False, 7)
    world.edit(control={})
    team.settle()
    assert is_read(world), "what there is stays"


def test_a_grant_of_one_partition_a_topic_is_enough_for_it() -> None:
    world = settled(World(resource(delaySeconds=[0], control={}), connection=usable(grant(maxPartitions=1))))
    assert is_read(world)


def test_the_plan_names_it() -> None:
    world = World(resource(control={}))
    world.annotate(plan_only="true")
    world.settle()
    assert f"claim orders, orders.delays, orders.ready, orders.dead, {CONTROL}" in (
        world.condition(Condition.PLANNED).message
    )
