"""Each row of faults once, as short as it can be; the command plays them for long."""

import pytest
from delayed_topics_devcluster.broker import Broker
from delayed_topics_faults.campaign import campaign
from delayed_topics_faults.row import Row
from delayed_topics_faults.rows import ROWS
from delayed_topics_worker.config import Guarantee

pytestmark = pytest.mark.broker

SHORT: dict[str, dict[str, float]] = {
    "W4": {"pending": 50_000},
    "C1": {"front_partitions": 100, "delay_partitions": 100},
    "B2": {"cut_seconds": 5, "bad_seconds": 3},
    "B8": {"away_seconds": 6},
    "T2": {"records": 20_000},
    "T2-overload": {"overload_seconds": 10, "per_second": 1000},
    "W7": {"records": 5_000, "per_second": 1_000, "within_seconds": 20},
    "W5": {"most_p99_ms": 1_000},
}
"""What is shorter than in the command. Of W5 the command asks for 50 ms, which a machine that runs other tests too does not keep; here
it is whether any partition is held up for the seconds that the transaction is open."""
BY_COMMAND = frozenset({"B1", "B3", "B6", "B8", "B9"})
"""Rows of three brokers, or of long outages, whose limits in seconds a machine that runs all other tests too doesn't keep."""
QUICK = frozenset({"W1"})
"""What needs less than half a minute and no rights but a user's."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in sorted(set(ROWS) - BY_COMMAND)],
)
def test_the_promises_hold_under(name: str, broker: Broker) -> None:
    row = ROWS[name]()
    for field, value in SHORT.get(name, {}).items():
        assert hasattr(row, field)
        setattr(row, field, value)

    check(row, broker)


def test_nothing_comes_twice_with_guarantee_exactly_once_when_a_worker_is_killed(broker: Broker) -> None:
    check(ROWS["W1"](), broker, "ExactlyOnce")


def check(row: Row, broker: Broker, guarantee: Guarantee | None = None) -> None:
    row.bootstrap = broker.bootstrap
    outcome = campaign(row, trials=1, seed=7, say=print, guarantee=guarantee)

    assert outcome.clean, f"{outcome.verdict()}: {outcome.broken}, evidence in {outcome.evidence}"
    assert outcome.figures["records"] > 0
