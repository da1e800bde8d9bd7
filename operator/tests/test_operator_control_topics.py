"""A DelayedTopic whose records can be cancelled: its control topic is created, kept as it should be, and deleted."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_crds import parse
from delayed_topics_operator.audits.reconcile.auditable import unlike
from delayed_topics_operator.connection.reconcile.usable import Unusable
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.values.plan import AlterSettings, CreateTopics, WriteRegistry
from delayed_topics_operator_testing.namespace_simulation import NamespaceSimulation, grant, with_quota
from delayed_topics_operator_testing.simulation import Kafka, Simulation, Stopped, resource, usable

CONTROL = "orders.control"
THEIRS = {"cleanup.policy": "delete", "retention.ms": "1"}


def made(**spec: Any) -> Simulation:
    return Simulation.serving(control={}, **spec)


def is_read(simulation: Simulation) -> bool:
    """Returns whether the registry tells workers to read the control topic."""
    layout = simulation.kafka.registry.layouts["orders"]
    assert layout.state == "serving"
    return layout.control


def shown(simulation: Simulation) -> dict[str, str]:
    """Returns the names of the topics in the status, by role."""
    return {topic.role: topic.name for topic in parse("DelayedTopic", simulation.raw).status.topics}


def test_without_it_there_is_no_control_topic() -> None:
    simulation = Simulation.serving()
    assert set(simulation.kafka.topics) == {"orders", "orders.delays", "orders.ready", "orders.dead"}
    assert (is_read(simulation), "control" in shown(simulation)) == (False, False)


def test_a_control_topic_has_one_partition_and_is_compacted_and_kept_for_as_long_as_what_comes_in() -> None:
    simulation = made(partitions=5)
    control, front = simulation.kafka.topics[CONTROL], simulation.kafka.topics["orders"]
    assert (control.partitions, control.replication_factor) == (1, 3)
    assert control.config["cleanup.policy"] == "compact,delete"
    assert control.config["retention.ms"] == front.config["retention.ms"]
    assert front.config["cleanup.policy"] == "delete"
    assert (is_read(simulation), shown(simulation)["control"]) == (True, CONTROL)
    assert simulation.kafka.registry.topics["orders"].ids[CONTROL] == control.id
    assert reconcile(simulation.observe()).actions == ()


@pytest.mark.parametrize("live", [False, True])
def test_workers_are_told_of_it_when_it_is_there_wherever_the_operator_is_killed(live: bool) -> None:
    def begun() -> Simulation:
        simulation = Simulation(resource())
        if live:
            simulation.serve()
        simulation.edit(control={})
        return simulation

    undisturbed = begun()
    undisturbed.settle()
    for boundary in range(len(undisturbed.done)):
        simulation = begun()
        with pytest.raises(Stopped):
            simulation.settle(actions=boundary)
        layout = simulation.kafka.registry.layouts.get("orders")
        assert layout is None or layout.state == "serving" or not live, "a served topic stays served"
        assert layout is None or not layout.control or CONTROL in simulation.kafka.registry.topics["orders"].ids
        simulation.settle()
        assert is_read(simulation)
        assert simulation.kafka.registry.topics == undisturbed.kafka.registry.topics
        assert simulation.kafka.topics == undisturbed.kafka.topics


def test_a_live_resource_gets_one_and_nothing_else_changes() -> None:
    simulation = Simulation.serving()
    layout, topics = simulation.kafka.registry.layouts["orders"], copy.deepcopy(simulation.kafka.topics)
    simulation.edit(control={})
    simulation.settle()
    (created,) = (action for action in simulation.done if isinstance(action, CreateTopics))
    assert [spec.name for spec in created.specs] == [CONTROL]
    assert is_read(simulation)
    assert simulation.kafka.registry.layouts["orders"].layout == layout.layout
    assert {name: topic for name, topic in simulation.kafka.topics.items() if name != CONTROL} == topics


def test_what_is_changed_by_hand_is_repaired() -> None:
    simulation = made()
    simulation.kafka.topics[CONTROL].config |= {"cleanup.policy": "compact", "retention.ms": "1"}
    simulation.settle()
    (repaired,) = (action for action in simulation.done if isinstance(action, AlterSettings))
    assert (repaired.topic, repaired.settings["cleanup.policy"]) == (CONTROL, "compact,delete")
    assert (
        simulation.kafka.topics[CONTROL].config["retention.ms"]
        == simulation.kafka.topics["orders"].config["retention.ms"]
    )


def test_a_control_topic_of_an_older_version_is_compacted_as_often_and_in_as_small_pieces_from_now_on() -> None:
    simulation = made()
    wanted = dict(simulation.kafka.topics[CONTROL].config)
    for setting in ("max.compaction.lag.ms", "segment.bytes"):
        del simulation.kafka.topics[CONTROL].config[setting]
    simulation.settle()
    (repaired,) = (action for action in simulation.done if isinstance(action, AlterSettings))
    assert repaired.topic == CONTROL
    assert repaired.settings == {"max.compaction.lag.ms": "3600000", "segment.bytes": "16777216"}
    assert simulation.kafka.topics[CONTROL].config == wanted


def test_where_kafka_refuses_that_it_is_compacted_often_it_is_said_and_it_is_read() -> None:
    simulation = Simulation(resource(control={}), kafka=Kafka(refuses=frozenset({"max.compaction.lag.ms"}))).serve()
    condition = simulation.condition(Condition.TOPICS_READY)
    assert condition.status == "True"
    assert "Workers take longer to read the control topic when they start" in condition.message
    assert is_read(simulation)


def test_where_kafka_refuses_that_it_is_compacted_it_is_said_and_it_is_not_read() -> None:
    simulation = Simulation(resource(), kafka=Kafka(refuses=frozenset({"cleanup.policy"}))).serve()
    simulation.edit(control={})
    simulation.settle()
    condition = simulation.condition(Condition.TOPICS_READY)
    assert (condition.status, condition.reason) == ("False", Reason.SETTING_REFUSED)
    assert f"cleanup.policy=compact,delete for topic {CONTROL}" in condition.message
    assert "only a control topic must be compacted" in condition.message
    assert not is_read(simulation)


def test_when_it_is_asked_for_no_more_it_is_not_read_and_stays_as_it_is() -> None:
    simulation = made()
    simulation.raw["spec"].pop("control")
    simulation.edit()
    simulation.settle()
    assert [type(action) for action in simulation.done if not isinstance(action, WriteRegistry)] == []
    assert not is_read(simulation)
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    assert shown(simulation)["control"] == CONTROL
    kept = copy.deepcopy(simulation.kafka.topics[CONTROL])
    kept.config["retention.ms"] = simulation.kafka.topics[CONTROL].config["retention.ms"] = "1"
    simulation.settle()
    assert simulation.kafka.topics[CONTROL] == kept
    simulation.edit(control={})
    simulation.settle()
    assert (is_read(simulation), simulation.kafka.topics[CONTROL].id) == (True, kept.id)
    assert simulation.kafka.topics[CONTROL].config["retention.ms"] != "1"


@pytest.mark.parametrize("asked_for", [True, False])
def test_delete_deletes_it_though_it_is_asked_for_no_more(asked_for: bool) -> None:
    simulation = made(deletionPolicy="Delete")
    if not asked_for:
        del simulation.raw["spec"]["control"]
        simulation.settle()
    simulation.delete()
    simulation.settle()
    assert (simulation.gone, simulation.kafka.topics, simulation.kafka.registry.topics) == (True, {}, {})


@pytest.mark.parametrize("asked_for", [True, False])
def test_retain_keeps_and_names_it_and_the_same_resource_goes_on_with_it(asked_for: bool) -> None:
    simulation = made()
    if not asked_for:
        del simulation.raw["spec"]["control"]
        simulation.settle()
    before = copy.deepcopy(simulation.kafka.topics)
    simulation.children.clear()
    simulation.delete()
    (notice,) = reconcile(simulation.observe()).notices
    assert f"topics orders, orders.delays, orders.ready, orders.dead, {CONTROL}, group" in notice.message
    simulation.settle()
    assert (simulation.gone, simulation.kafka.topics) == (True, before)
    again = Simulation(resource(uid="another", control={}), kafka=simulation.kafka).serve()
    assert (is_read(again), again.kafka.topics[CONTROL].id) == (True, before[CONTROL].id)


def test_with_kafka_away_it_is_named_among_what_stays() -> None:
    simulation = made(deletionPolicy="Delete")
    simulation.connection = Unusable(
        reason=Reason.KAFKA_UNREACHABLE, message="Kafka does not answer", since=simulation.now
    )
    simulation.children.clear()
    simulation.delete()
    simulation.later(301)
    (notice,) = reconcile(simulation.observe()).notices
    assert f"orders.dead, {CONTROL}, group" in notice.message


def test_somebody_elses_topic_of_that_name_is_no_obstacle_for_who_asks_for_none_and_is_left_alone() -> None:
    simulation = Simulation(resource(deletionPolicy="Delete"))
    simulation.kafka.create(CONTROL, 7, config=THEIRS)
    theirs = copy.deepcopy(simulation.kafka.topics[CONTROL])
    simulation.serve()
    assert simulation.condition(Condition.READY).status == "True"
    assert "control" not in shown(simulation)
    simulation.delete()
    simulation.settle()
    assert (simulation.gone, simulation.kafka.topics) == (True, {CONTROL: theirs})


def test_whether_somebody_elses_topic_of_that_name_has_leaders_is_nobodys_matter() -> None:
    simulation = Simulation.serving()
    simulation.kafka.create(CONTROL, 1)
    o = simulation.observe()
    assert o.kafka is not None
    theirs = o.kafka.topics[CONTROL]
    assert theirs is not None
    topics = {**o.kafka.topics, CONTROL: replace(theirs, leaders_known=False)}
    status = reconcile(replace(o, kafka=replace(o.kafka, topics=topics))).status
    assert status is not None
    (condition,) = (c for c in status.conditions if c.type == Condition.TOPICS_READY)
    assert condition.status == "True", condition.message


def test_who_asks_for_one_where_somebody_has_made_it_claims_nothing_and_is_told_how_to_do_without() -> None:
    simulation = Simulation(resource(control={}))
    simulation.kafka.create(CONTROL, 1, config=THEIRS)
    simulation.settle()
    condition = simulation.condition(Condition.CLAIMED)
    assert (condition.reason, simulation.done, set(simulation.kafka.topics)) == (Reason.TOPIC_FOREIGN, [], {CONTROL})
    assert CONTROL in condition.message
    assert "remove spec.control" in condition.message


def test_a_live_resource_does_not_take_somebody_elses_for_its_own_and_goes_on() -> None:
    simulation = Simulation.serving(deletionPolicy="Delete")
    simulation.kafka.create(CONTROL, 1, config=THEIRS)
    before = copy.deepcopy(simulation.kafka.topics)
    simulation.edit(control={})
    simulation.settle()
    condition = simulation.condition(Condition.TOPICS_READY)
    assert (condition.status, condition.reason) == ("False", Reason.TOPIC_FOREIGN)
    assert f"somebody else has created {CONTROL}" in condition.message
    assert "remove spec.control" in condition.message
    assert (is_read(simulation), simulation.kafka.topics) == (False, before)
    del simulation.raw["spec"]["control"]
    simulation.settle()
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    simulation.delete()
    simulation.settle()
    assert (simulation.gone, set(simulation.kafka.topics)) == (True, {CONTROL})


def test_a_control_topic_that_somebody_made_in_the_place_of_ours_is_not_read_changed_or_deleted() -> None:
    simulation = made(deletionPolicy="Delete")
    simulation.kafka.delete(CONTROL)
    simulation.kafka.create(CONTROL, 1, config=THEIRS)
    theirs = copy.deepcopy(simulation.kafka.topics[CONTROL])
    simulation.settle()
    assert simulation.condition(Condition.TOPICS_READY).reason == Reason.TOPIC_FOREIGN
    assert (is_read(simulation), simulation.kafka.topics[CONTROL]) == (False, theirs)
    simulation.delete()
    simulation.settle()
    assert (simulation.gone, simulation.kafka.topics) == (True, {CONTROL: theirs})


def test_a_control_topic_that_was_deleted_is_made_again_and_it_is_said_what_that_means() -> None:
    simulation = made()
    former = simulation.kafka.topics[CONTROL].id
    simulation.kafka.delete(CONTROL)
    (notice,) = reconcile(simulation.observe()).notices
    assert (notice.type, notice.reason) == ("Warning", Reason.TOPIC_MISSING)
    assert (
        f"deleted topic {CONTROL} (id {former}), and the operator creates it again. Waiting records that were cancelled"
        in notice.message
    )
    simulation.settle()
    written = [action.record for action in simulation.done if isinstance(action, WriteRegistry)]
    layouts = [(record.state, record.control) for record in written if isinstance(record, LayoutRecord)]
    assert layouts == [("serving", False), ("serving", True)]
    assert simulation.kafka.registry.topics["orders"].ids[CONTROL] == simulation.kafka.topics[CONTROL].id != former


def test_audits_go_on_though_the_control_topic_was_made_again() -> None:
    simulation = made()
    simulation.kafka.delete(CONTROL)
    simulation.settle()
    recorded = simulation.kafka.registry.topics["orders"]
    assert recorded.made_again == (CONTROL,)
    o = simulation.observe()
    assert o.kafka is not None
    assert unlike(recorded, o.kafka.topics, o.wanted.names) is None


def test_a_control_topic_that_somebody_grew_is_said_since_only_its_first_partition_is_read() -> None:
    simulation = made()
    simulation.kafka.topics[CONTROL].partitions = 3
    simulation.settle()
    condition = simulation.condition(Condition.TOPICS_READY)
    assert (condition.status, condition.reason) == ("False", Reason.PARTITIONS_FOREIGN)
    assert f"{CONTROL} has 3 partitions" in condition.message


def test_its_partition_counts_for_the_quota_until_it_is_deleted() -> None:
    tenant = NamespaceSimulation(with_quota(partitions=6))
    simulation = tenant.add("orders", partitions=3, control={})
    tenant.settle()
    assert "and this one asks for 7 in all its topics" in simulation.condition(Condition.CLAIMED).message
    del simulation.raw["spec"]["control"]
    simulation.edit()
    tenant.settle()
    assert (tenant.reason("orders", Condition.TOPICS_READY)[0], tenant.used().partitions) == ("True", 6)
    simulation.edit(control={})
    tenant.settle()
    assert tenant.reason("orders", Condition.TOPICS_READY) == ("False", Reason.GRANT_EXCEEDED)
    assert CONTROL not in tenant.kafka.topics

    tenant.connection = simulation.connection = with_quota(partitions=7)
    tenant.settle()
    assert (is_read(simulation), tenant.used().partitions) == (True, 7)
    tenant.restart()
    assert tenant.used().partitions == 7
    del simulation.raw["spec"]["control"]
    simulation.edit(delaySeconds=[0, 10, 60, 300])
    tenant.settle()
    assert "and this one asks for 8 in all its topics" in simulation.condition(Condition.TOPICS_READY).message
    assert (is_read(simulation), tenant.used().partitions) == (False, 7)
    simulation.edit(control={})
    tenant.settle()
    assert is_read(simulation), "a control topic that exists is kept"


def test_a_grant_of_one_partition_a_topic_is_enough_for_it() -> None:
    simulation = Simulation(resource(delaySeconds=[0], control={}), connection=usable(grant(maxPartitions=1))).serve()
    assert is_read(simulation)


def test_the_plan_names_it() -> None:
    simulation = Simulation(resource(control={}))
    simulation.annotate(plan_only="true")
    simulation.settle()
    assert f"claim orders, orders.delays, orders.ready, orders.dead, {CONTROL}" in (
        simulation.condition(Condition.PLANNED).message
    )
