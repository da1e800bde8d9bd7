"""A DelayedTopic is edited while one of its topics is missing: its workers go on with what they can serve."""

from typing import Any

import pytest
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_operator.values.plan import WriteRegistry
from delayed_topics_operator_testing.simulation import Simulation


@pytest.mark.parametrize(
    "edit",
    [
        {"retryCap": 9},
        {"retryCap": 1},
        {"paused": True},
        {"compression": "zstd"},
        {"guarantee": "ExactlyOnce"},
        {"workers": {"replicas": 3}},
        {"maxDelaySeconds": 500},
        {"outageBudgetSeconds": 60},
        {"ready": {"allowedTopics": ["orders.fast"]}},
    ],
    ids=str,
)
def test_the_layout_serves_on_when_anything_but_its_partitions_changes(edit: dict[str, Any]) -> None:
    simulation = Simulation.serving(delaySeconds=[0, 10, 60], ladder={"maxSeconds": 100})
    simulation.kafka.delete("orders.ready")
    simulation.edit(**edit)
    simulation.settle()
    simulation.workers_come_up()
    simulation.settle()
    records = [action.record for action in simulation.done if isinstance(action, WriteRegistry)]
    layouts = [record for record in records if isinstance(record, LayoutRecord)]
    assert layouts, "workers learn of the edit"
    assert [layout.state for layout in layouts] == ["serving"] * len(layouts)
