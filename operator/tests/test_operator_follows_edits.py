"""A served DelayedTopic is edited, or somebody changes in Kafka what it needs."""

from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import LayoutRecord, encode
from delayed_topics_crds import parse
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.delayed_topic.reconcile.history import ROLLED_MS
from delayed_topics_operator.values.annotations import ACCEPT_LOSS
from delayed_topics_operator.values.plan import AlterSettings, ApplyChild, GrowTopic, WriteRegistry
from delayed_topics_operator_testing.simulation import Simulation, Stopped, member


def written(simulation: Simulation) -> list[str]:
    return [a.record.state for a in simulation.done if isinstance(a, WriteRegistry) and hasattr(a.record, "state")]


def test_a_new_delay_is_planned_then_given_a_partition_then_served() -> None:
    simulation = Simulation.serving(partitions=4)
    simulation.edit(delaySeconds=[0, 10, 60, 600], partitions=5)
    simulation.settle()
    steps = [type(action) for action in simulation.done]
    assert steps.index(WriteRegistry) < steps.index(GrowTopic)
    assert written(simulation) == ["planned", "serving"]
    record = simulation.kafka.registry.layouts["orders"]
    assert record.layout.ranges() == [(0, "main", "0-1"), (10, "delay", "2"), (60, "delay", "3"), (600, "delay", "4")]
    assert simulation.kafka.topics["orders.delays"].partitions == 5
    assert simulation.kafka.registry.topics["orders"].start_offsets["orders.delays"] == (0,) * 5


def test_partitions_that_are_appended_to_a_live_group_are_left_for_its_workers_to_begin() -> None:
    simulation = Simulation.serving(partitions=4)
    simulation.kafka.members["delayedtopics.orders"] = (member("orders-0"),)
    simulation.edit(delaySeconds=[0, 10, 60, 600])
    simulation.settle()
    record = simulation.kafka.registry.topics["orders"]
    assert len(record.start_offsets["orders.delays"]) == 5
    assert record.begun["orders.delays"] == 4
    assert simulation.kafka.registry.layouts["orders"].state == "serving"


def test_a_delay_that_left_the_list_is_served_on_and_comes_back_to_its_partitions() -> None:
    simulation = Simulation.serving(partitions=3, lanesPerDelay=1)
    simulation.edit(delaySeconds=[0, 60])
    simulation.settle()
    assert (10, "retired", "1") in simulation.kafka.registry.layouts["orders"].layout.ranges()
    assert simulation.condition(Condition.LAYOUT_CLAMPED).reason == Reason.COUNTS_ABOVE_SPEC
    simulation.done.clear()
    simulation.edit(delaySeconds=[0, 60, 10])
    simulation.settle()
    assert (10, "delay", "1") in simulation.kafka.registry.layouts["orders"].layout.ranges()
    assert not any(isinstance(action, GrowTopic) for action in simulation.done)


def test_growing_partitions_grows_the_ready_topic_before_the_front_topic() -> None:
    simulation = Simulation.serving(partitions=3)
    simulation.edit(partitions=8)
    simulation.settle()
    assert [a.topic for a in simulation.done if isinstance(a, GrowTopic)] == ["orders.ready", "orders.delays", "orders"]
    assert simulation.kafka.topics["orders"].partitions == 6


def test_the_status_has_one_entry_for_each_delay_however_often_partitions_are_raised() -> None:
    simulation = Simulation.serving(partitions=4)
    for partitions in range(5, 15):
        simulation.edit(partitions=partitions)
        simulation.settle()
    shown = parse("DelayedTopic", simulation.raw).status.layout
    layout = simulation.kafka.registry.layouts["orders"].layout
    assert shown is not None
    assert [(r.delay_seconds, r.role, r.partitions) for r in shown.ranges] == layout.ranges()
    assert len(shown.ranges) == 3


@pytest.mark.parametrize("boundary", range(6))
def test_an_operator_killed_while_growing_goes_on_where_it_was(boundary: int) -> None:
    undisturbed = Simulation.serving(partitions=3)
    undisturbed.edit(partitions=8)
    undisturbed.settle()
    simulation = Simulation.serving(partitions=3)
    simulation.edit(partitions=8)
    with pytest.raises(Stopped):
        simulation.settle(actions=boundary)
    simulation.settle()
    assert simulation.kafka.registry.layouts == undisturbed.kafka.registry.layouts
    assert simulation.kafka.registry.topics == undisturbed.kafka.registry.topics
    assert simulation.kafka.topics == undisturbed.kafka.topics


def refused_growth(simulation: Simulation, **spec: Any) -> None:
    """Edits the spec where Kafka, or a policy of it, refuses the number of partitions: only the registry can be written."""
    simulation.edit(**spec)
    plan = reconcile(simulation.observe())
    for action in plan.actions:
        if isinstance(action, WriteRegistry):
            simulation.execute(action)


@pytest.mark.parametrize(
    ("refused", "back"),
    [
        ({"partitions": 5000}, {"partitions": 12}),
        ({"frontPartitions": 5000}, {"frontPartitions": 9}),
        ({"delaySeconds": [0, 10, 60, 600]}, {"delaySeconds": [0, 10, 60]}),
        ({"delaySeconds": [0, 5, 600]}, {"delaySeconds": [0, 60], "lanesPerDelay": 2}),
    ],
)
def test_a_growth_that_kafka_refuses_can_be_taken_back(refused: dict[str, Any], back: dict[str, Any]) -> None:
    simulation = Simulation.serving(partitions=12, lanesPerDelay=1)
    served = simulation.kafka.registry.layouts["orders"]
    refused_growth(simulation, **refused)
    planned = simulation.kafka.registry.layouts["orders"]
    assert planned.state == "planned"
    simulation.edit(**back)
    simulation.settle()
    now = simulation.kafka.registry.layouts["orders"]
    assert now.state == "serving"
    assert now.layout.generation >= planned.layout.generation
    assert now.layout.partition_delays[:12] == served.layout.partition_delays
    assert now.layout.partition_count == simulation.kafka.topics["orders.delays"].partitions <= 13
    assert now.front_partitions == simulation.kafka.topics["orders"].partitions <= 12
    assert simulation.condition(Condition.TOPICS_READY).status == "True"


def test_fewer_partitions_than_there_are_change_nothing_and_a_condition_says_so() -> None:
    simulation = Simulation.serving(partitions=8)
    simulation.edit(partitions=3)
    simulation.settle()
    assert simulation.kafka.topics["orders.delays"].partitions == 8
    clamped = simulation.condition(Condition.LAYOUT_CLAMPED)
    assert (clamped.status, clamped.reason) == ("True", Reason.COUNTS_ABOVE_SPEC)


def test_fewer_partitions_than_the_delays_need_are_clamped_and_a_condition_says_so() -> None:
    simulation = Simulation.serving(delaySeconds=[10, 20, 30], partitions=2)
    assert simulation.kafka.topics["orders.delays"].partitions == 3
    clamped = simulation.condition(Condition.LAYOUT_CLAMPED)
    assert (clamped.status, clamped.reason) == ("True", Reason.LAYOUT_CLAMPED)
    assert "Raise spec.partitions to 3" in clamped.message
    assert simulation.condition(Condition.READY).status == "True"


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        ({"retryCap": 9}, "retry_cap", 9),
        ({"paused": True}, "paused", True),
        ({"compression": "zstd"}, "compression", "zstd"),
    ],
)
def test_cap_pause_and_compression_are_followed_live_without_touching_pods(
    spec: dict[str, Any], field: str, value: object
) -> None:
    simulation = Simulation.serving()
    pods = simulation.children["StatefulSet", simulation.name]["spec"]["template"]
    simulation.edit(**spec)
    simulation.settle()
    record = simulation.kafka.registry.layouts["orders"]
    assert getattr(record, field) == value
    assert (record.state, record.layout.generation) == ("serving", 1)
    assert simulation.children["StatefulSet", simulation.name]["spec"]["template"] == pods


def test_the_registry_says_from_when_on_nothing_may_come_out_twice() -> None:
    simulation = Simulation.serving(guarantee="ExactlyOnce")

    def from_ms(**spec: Any) -> int | None:
        simulation.edit(**spec)
        simulation.settle()
        record = simulation.kafka.registry.layouts["orders"]
        assert record.state == "serving"
        return record.exactly_once_from_ms

    since_ms = from_ms(retryCap=9)
    assert since_ms is not None
    assert from_ms(retryCap=8) == since_ms
    assert from_ms(guarantee="AtLeastOnce") is None
    simulation.workers_come_up()
    simulation.may_roll = False
    assert from_ms(guarantee="ExactlyOnce") is None, "the workers with AtLeastOnce wait for their turn"
    simulation.may_roll = True
    simulation.later(2 * ROLLED_MS / 1000)
    assert from_ms() is None, "the workers with AtLeastOnce still run"
    simulation.workers_come_up()
    assert (from_ms() or 0) >= since_ms + 3 * ROLLED_MS, "the workers with AtLeastOnce were replaced"


def test_the_registry_keeps_former_lists_and_caps_and_growth_is_no_edit_of_them() -> None:
    simulation = Simulation.serving(delaySeconds=[0, 10], partitions=4, retryCap=5)

    def lists(**spec: Any) -> list[tuple[tuple[int, ...], int]]:
        simulation.edit(**spec)
        simulation.settle()
        record = simulation.kafka.registry.layouts["orders"]
        assert record.state == "serving"
        assert [entry.from_ms for entry in record.lists] == sorted(entry.from_ms for entry in record.lists)
        assert record.lists[0].from_ms == 0
        return [(entry.delay_seconds, entry.retry_cap) for entry in record.lists]

    assert lists(partitions=6) == [((0, 10), 5)]
    assert lists(delaySeconds=[0, 60]) == [((0, 10), 5), ((0, 60), 5)]
    assert lists(retryCap=3)[1:] == [((0, 60), 5), ((0, 60), 3)]


def test_many_edits_of_a_long_delay_list_fill_no_registry() -> None:
    """One record is limited, as the whole registry is what one operator holds."""
    delays = list(range(2_592_000 - 64, 2_592_000))
    simulation = Simulation.serving(delaySeconds=delays)
    first = len(encode(simulation.kafka.registry.layouts["orders"]))
    for n in range(60):
        simulation.later(60)
        simulation.edit(delaySeconds=delays[n:] + delays[:n])
        simulation.settle()
    record = simulation.kafka.registry.layouts["orders"]
    assert len(encode(record)) - first < 4096
    assert record.lists[-1].delay_seconds == record.layout.delay_seconds
    assert len(record.lists) > 5
    assert record.lists[0].from_ms > 0, "an audit sees that earlier lists are not known"


def test_while_a_growth_is_refused_the_registry_says_what_is_served_until_then() -> None:
    """A worker that starts meanwhile knows only the registry, and an audit judges by the delay list that was followed."""
    simulation = Simulation.serving(delaySeconds=[0, 10])
    served = simulation.kafka.registry.layouts["orders"]
    refused_growth(simulation, delaySeconds=[0, 60], retryCap=2, paused=True, partitions=50)
    planned = simulation.kafka.registry.layouts["orders"]
    assert planned.state == "planned"
    assert planned.layout != served.layout
    assert planned.served == replace(served, paused=True)
    assert planned.lists == served.lists
    refused_growth(simulation, retryCap=3, guarantee="ExactlyOnce")
    meanwhile = simulation.kafka.registry.layouts["orders"]
    assert (meanwhile.served, meanwhile.exactly_once_from_ms) == (planned.served, None)
    simulation.later(3600)
    simulation.serve()
    now = simulation.kafka.registry.layouts["orders"]
    assert now.served == now
    assert (now.exactly_once_from_ms or 0) > simulation.now.timestamp() * 1000
    assert [(entry.delay_seconds, entry.retry_cap) for entry in now.lists] == [((0, 10), 5), ((0, 60), 3)]


def test_a_paused_resource_is_ready_and_says_that_it_is_paused() -> None:
    simulation = Simulation.serving()
    simulation.edit(paused=True)
    simulation.serve()
    assert simulation.condition(Condition.READY).reason == Reason.PAUSED


def test_a_longer_delay_lengthens_the_retention_of_what_waits() -> None:
    simulation = Simulation.serving()
    before = int(simulation.kafka.topics["orders.delays"].config["retention.ms"])
    simulation.edit(delaySeconds=[0, 10, 60, 86_400])
    simulation.settle()
    assert int(simulation.kafka.topics["orders.delays"].config["retention.ms"]) == before + (86_400 - 60) * 1000


@pytest.mark.parametrize("topic", ["orders", "orders.ready", "orders.delays", "orders.dead"])
def test_settings_changed_by_hand_are_repaired_and_those_that_nobody_enforces_are_left(topic: str) -> None:
    simulation = Simulation.serving()
    live = simulation.kafka.topics[topic].config
    wanted = dict(live)
    live.update({"message.timestamp.type": "CreateTime", "retention.ms": "1000", "segment.bytes": "12345678"})
    simulation.settle()
    assert simulation.done == [
        AlterSettings(
            topic=topic,
            settings={"message.timestamp.type": "LogAppendTime", "retention.ms": wanted["retention.ms"]},
            present={"message.timestamp.type": "CreateTime", "retention.ms": "1000"},
        )
    ]
    assert live == {**wanted, "segment.bytes": "12345678"}


@pytest.mark.parametrize("topic", ["orders", "orders.ready", "orders.delays", "orders.dead"])
@pytest.mark.parametrize("retention", ["-1", "99999999999999"])
def test_what_somebody_set_beyond_the_promises_stays_and_no_record_goes_early(topic: str, retention: str) -> None:
    simulation = Simulation.serving()
    beyond = {"retention.ms": retention, "max.message.bytes": "99999999", "min.insync.replicas": "3"}
    simulation.kafka.topics[topic].config.update(beyond)
    simulation.settle()
    assert simulation.done == []
    condition = simulation.condition(Condition.TOPICS_READY)
    assert condition.status == "True"
    assert f"retention.ms of {topic} is {retention}" in condition.message


def test_replicas_that_are_being_moved_raise_no_least_number_in_sync() -> None:
    simulation = Simulation.serving()
    for topic in simulation.kafka.topics.values():
        topic.replication_factor = 6
    simulation.settle()
    assert simulation.done == []


def test_a_topic_with_fewer_replicas_than_have_to_be_in_sync_is_repaired() -> None:
    simulation = Simulation.serving()
    simulation.kafka.topics["orders"].replication_factor = 1
    simulation.settle()
    assert simulation.kafka.topics["orders"].config["min.insync.replicas"] == "1"


def test_an_edit_of_the_replication_factor_is_answered_with_what_moves_replicas() -> None:
    simulation = Simulation.serving(replicationFactor=3)
    simulation.edit(replicationFactor=2)
    simulation.settle()
    assert simulation.done == []
    condition = simulation.condition(Condition.TOPICS_READY)
    assert (condition.status, condition.reason) == ("True", Reason.REPLICATION_DIFFERS)
    assert "orders.delays has 3" in condition.message
    assert "kafka-reassign-partitions" in condition.message


def test_partitions_of_the_delays_topic_that_somebody_added_are_said_until_the_layout_takes_them_in() -> None:
    simulation = Simulation.serving(partitions=3)
    simulation.kafka.topics["orders.delays"].partitions = 5
    simulation.settle()
    assert simulation.condition(Condition.TOPICS_READY).reason == Reason.PARTITIONS_FOREIGN
    assert "Raise spec.partitions" in simulation.condition(Condition.TOPICS_READY).message
    simulation.edit(partitions=5)
    simulation.settle()
    assert simulation.condition(Condition.TOPICS_READY).status == "True"


def test_a_front_topic_that_its_users_grew_is_followed() -> None:
    simulation = Simulation.serving(partitions=3)
    simulation.kafka.topics["orders"].partitions = 6
    simulation.settle()
    assert simulation.kafka.topics["orders.ready"].partitions == 6
    record = simulation.kafka.registry.layouts["orders"]
    assert (record.front_partitions, record.ready_partitions, record.state) == (6, 6, "serving")
    assert simulation.kafka.registry.topics["orders"].start_offsets["orders"] == (0,) * 6


@pytest.mark.parametrize("topic", ["orders", "orders.delays"])
@pytest.mark.parametrize("again", [False, True])
def test_a_topic_with_waiting_records_that_is_gone_is_never_replaced_by_guess(topic: str, *, again: bool) -> None:
    simulation = Simulation.serving()
    old = simulation.kafka.topics[topic].id
    simulation.kafka.delete(topic)
    if again:
        simulation.kafka.create(topic, 3)
    simulation.settle()
    assert simulation.done == []
    condition = simulation.condition(Condition.TOPICS_READY)
    assert condition.reason == (Reason.TOPIC_RECREATED if again else Reason.TOPIC_MISSING)
    assert f"{ACCEPT_LOSS}={old}" in condition.message
    simulation.raw["metadata"]["annotations"][ACCEPT_LOSS] = old
    if again:
        simulation.settle()
        assert (simulation.done, simulation.condition(Condition.TOPICS_READY).reason) == ([], Reason.TOPIC_FOREIGN)
        simulation.kafka.delete(topic)
    simulation.settle()
    assert simulation.kafka.registry.topics["orders"].ids[topic] == simulation.kafka.topics[topic].id != old
    assert ("orders", 0) in simulation.kafka.committed["delayedtopics.orders"]
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    assert simulation.kafka.registry.topics["orders"].made_again == (topic,)


def test_more_partitions_than_kafka_takes_is_a_condition_and_nothing_is_done() -> None:
    simulation = Simulation.serving()
    simulation.edit(lanesPerDelay=6000)
    simulation.settle()
    assert simulation.done == []
    assert simulation.condition(Condition.TOPICS_READY).reason == Reason.SPEC_INVALID
    assert reconcile(simulation.observe()).actions == ()


def test_workers_learn_how_many_there_are_to_be_before_some_are_taken_away() -> None:
    """Workers that will not come back leave the group at once, so that their partitions do not wait for a session to end."""
    simulation = Simulation.serving(workers={"replicas": 3})
    simulation.edit(workers={"replicas": 1})
    simulation.settle()
    written, applied = simulation.done
    assert isinstance(written, WriteRegistry)
    assert isinstance(written.record, LayoutRecord)
    assert (written.record.workers, written.record.state) == (1, "serving")
    assert isinstance(applied, ApplyChild)
    assert applied.manifest["spec"]["replicas"] == 1
