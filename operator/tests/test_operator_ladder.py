"""A DelayedTopic whose records have due times of their own."""

from delayed_topics_core.layout import Role
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import LayoutStatus, parse
from delayed_topics_operator.values.plan import AlterSettings, GrowTopic
from delayed_topics_operator_testing.simulation import Simulation

DAY_SECONDS = 86_400


def ranges(simulation: Simulation) -> list[tuple[int, Role, str]]:
    return simulation.kafka.registry.layouts["orders"].layout.ranges()


def shown(simulation: Simulation) -> LayoutStatus:
    layout = parse("DelayedTopic", simulation.raw).status.layout
    assert layout is not None
    return layout


def test_a_ladder_adds_partitions_to_those_that_were_asked_for() -> None:
    simulation = Simulation.serving(
        delaySeconds=[0, 4], partitions=3, lanesPerDelay=2, ladder={"maxSeconds": 16, "base": 4}
    )
    assert ranges(simulation) == [(0, "main", "0"), (4, "delay", "1-2"), (1, "ladder", "3-4"), (16, "ladder", "5-6")]
    assert simulation.condition(Condition.LAYOUT_CLAMPED).reason == Reason.AS_DECLARED
    record = simulation.kafka.registry.layouts["orders"]
    assert (record.layout.ladder_seconds, record.max_delay_seconds) == ((1, 4, 16), 30 * DAY_SECONDS)


def test_partitions_of_the_ladder_are_not_counted_among_those_to_ask_for() -> None:
    simulation = Simulation.serving(ladder={"base": 4}, delaySeconds=[10, 20, 30], partitions=2)
    clamped = simulation.condition(Condition.LAYOUT_CLAMPED)
    assert clamped.reason == Reason.LAYOUT_CLAMPED
    assert "spec.partitions is 2, but orders.delays has 3 partitions without those of the ladder" in clamped.message
    assert "Raise spec.partitions to 3" in clamped.message


def test_the_status_says_what_due_times_cost() -> None:
    simulation = Simulation.serving(ladder={}, maxDelaySeconds=7 * DAY_SECONDS)
    layout = shown(simulation)
    assert layout.ladder is not None
    # 17 delays of 1 s to 65,536 s: the longest nine times, each of the others once
    assert (layout.ladder.average_hops, layout.ladder.max_hops) == (8, 9 + 16)
    assert {r.delay_seconds for r in layout.ranges if r.role == "ladder"} == {2**n for n in range(17)}
    assert shown(Simulation.serving()).ladder is None


def test_records_are_kept_for_as_long_as_a_due_time_may_lie_ahead() -> None:
    def retention_seconds(simulation: Simulation) -> int:
        return int(simulation.kafka.topics["orders"].config["retention.ms"]) // 1000

    without, with_one = Simulation.serving(delaySeconds=[0, 10]), Simulation.serving(delaySeconds=[0, 10], ladder={})
    assert retention_seconds(with_one) - retention_seconds(without) == 30 * DAY_SECONDS - 10


def test_a_ladder_comes_to_a_topic_that_is_served_and_leaves_it_and_audits_know_when() -> None:
    simulation = Simulation.serving(delaySeconds=[0, 10], partitions=2)
    simulation.edit(ladder={"maxSeconds": 2}, maxDelaySeconds=DAY_SECONDS)
    simulation.settle()
    assert ranges(simulation) == [(0, "main", "0"), (10, "delay", "1"), (1, "ladder", "2"), (2, "ladder", "3")]
    assert any(isinstance(action, GrowTopic) for action in simulation.done)
    assert any(isinstance(action, AlterSettings) for action in simulation.done)
    simulation.edit(maxDelaySeconds=2 * DAY_SECONDS)
    simulation.settle()
    simulation.edit(ladder=None)
    simulation.settle()
    assert [(d, role) for d, role, _ in ranges(simulation)] == [
        (0, "main"),
        (10, "delay"),
        (1, "retired"),
        (2, "retired"),
    ]
    lists = simulation.kafka.registry.layouts["orders"].lists
    assert [entry.max_delay_seconds for entry in lists] == [None, DAY_SECONDS, 2 * DAY_SECONDS, None]
