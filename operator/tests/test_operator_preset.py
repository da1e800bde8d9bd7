"""A DelayedTopic whose delay list has a name."""

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import parse
from delayed_topics_crds.delayed_topic import PRESETS, Preset
from delayed_topics_operator.delayed_topic.reconcile.translate import wanted
from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.simulation import Simulation, resource

EXAMPLE = Path(__file__).parents[2] / "examples" / "levels.yaml"
NAMED: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())["spec"]
DELAYS = PRESETS[NAMED["preset"]]
WRITTEN_OUT = {key: value for key, value in NAMED.items() if key != "preset"} | {"delaySeconds": list(DELAYS)}


def test_each_preset_that_may_be_written_has_a_delay_list() -> None:
    assert PRESETS.keys() == set(get_args(Preset))


def test_the_levels_of_rocketmq_are_those_of_its_brokers() -> None:
    message_delay_level = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    unit = {"s": 1, "m": 60, "h": 3600}
    assert PRESETS["RocketMQ18"] == tuple(int(level[:-1]) * unit[level[-1]] for level in message_delay_level.split())


@pytest.mark.parametrize("preset", PRESETS)
def test_from_a_preset_to_its_delay_list_and_back_nothing_changes_in_kafka(preset: Preset) -> None:
    delays = PRESETS[preset]
    named = NAMED | {"preset": preset, "partitions": len(delays)}
    written_out = {key: value for key, value in named.items() if key != "preset"} | {"delaySeconds": list(delays)}
    simulation = Simulation(resource())
    simulation.raw["spec"] = named
    simulation.settle()
    layout = simulation.kafka.registry.layouts["orders"].layout
    assert (layout.delay_seconds, layout.partition_delays) == (delays, delays)
    assert simulation.condition(Condition.LAYOUT_CLAMPED).reason == Reason.AS_DECLARED
    simulation.done.clear()
    for spec in (written_out, named):
        simulation.raw["spec"] = {}
        simulation.edit(**spec)
        simulation.settle()
        assert simulation.done == []


@pytest.mark.parametrize("spec", [{}, NAMED | WRITTEN_OUT], ids=["neither", "both"])
def test_what_another_definition_let_through_is_refused_in_the_words_of_ours(spec: dict[str, Any]) -> None:
    orders = parse("DelayedTopic", resource() | {"spec": spec})
    with pytest.raises(SpecInvalid, match="must have one of delaySeconds and preset, and not both"):
        wanted(orders)


@pytest.mark.api
def test_the_status_of_a_preset_shows_its_delays_and_writing_them_out_changes_nothing(harness: OperatorHarness) -> None:
    harness.api.apply({**harness.delayed_topic(), "spec": NAMED})
    harness.wait_until_served()
    before = (harness.resource() or {})["status"]
    assert before["delays"] == "1s,5s,10s,30s,1m,2m,3m,4m,5m,6m,7m,8m,9m,10m,20m,30m,1h,2h"
    ranges = [(kind["delaySeconds"], kind["partitions"]) for kind in before["layout"]["ranges"]]
    assert ranges == [(delay, f"{n}") for n, delay in enumerate(DELAYS)]

    harness.apply(**WRITTEN_OUT)

    def seen() -> bool:
        now = (harness.resource() or {})["status"]
        return bool(now["observedGeneration"] > before["observedGeneration"])

    harness.wait(seen, "the edit is seen")
    after = (harness.resource() or {})["status"]
    assert (after["layout"], after["delays"]) == (before["layout"], before["delays"])
