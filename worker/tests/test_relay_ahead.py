"""An alarm reports records that a broker has appended with a future time, for as long as they wait."""

from types import SimpleNamespace
from typing import cast

import pytest
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.reasons import Reason
from delayed_topics_core_testing.served import serving
from delayed_topics_engine import Seen
from delayed_topics_worker.ahead import AheadWatch
from delayed_topics_worker.assigned import AssignedPartition
from delayed_topics_worker.served import Served

LAYOUT = initial(LayoutSpec(delay_seconds=(0, 10), partitions=2, lanes_per_delay=1))


def partition(number: int = 0, *, ahead_ms: int = 0, offset: int = 7, paused: bool = False) -> AssignedPartition:
    served = Served.of("orders")
    served.layout = serving("orders", LAYOUT, paused=paused, broker_skew_ms=500)
    seen = cast(Seen, SimpleNamespace(ahead_ms=ahead_ms, lowest_unfinished=offset))
    owned = AssignedPartition(
        served=served, topic="orders", partition=number, generation=1, group_generation=1, assigned_at=0.0
    )
    owned.seen = seen
    return owned


def test_the_partition_that_waits_longest_is_named() -> None:
    (alarm,) = AheadWatch().alarms([partition(0, ahead_ms=60_000), partition(1, ahead_ms=600_000)], now=100.0)
    assert (alarm.topic, alarm.reason) == ("orders", Reason.NOT_RELEASING)
    assert alarm.message.startswith("records of orders [1] from offset 7 on wait")
    assert "10 min ahead of the brokers' time" in alarm.message


def test_the_time_that_passes_is_nothing_new() -> None:
    """The condition of the resource once changed its text every minute."""
    watch = AheadWatch()
    (first,) = watch.alarms([partition(ahead_ms=600_000)], now=100.0)
    (later,) = watch.alarms([partition(ahead_ms=480_000)], now=220.0)
    (other,) = watch.alarms([partition(ahead_ms=480_000), partition(1, ahead_ms=60_000)], now=220.0)
    assert first.message != later.message
    assert first.gist == later.gist != other.gist


@pytest.mark.parametrize(("ahead_ms", "paused"), [(1_500, False), (600_000, True)])
def test_what_brokers_clocks_may_differ_by_and_what_is_paused_is_no_alarm(ahead_ms: int, paused: bool) -> None:
    assert AheadWatch().alarms([partition(ahead_ms=ahead_ms, paused=paused)], now=100.0) == []


def test_where_other_records_come_next_the_alarm_lasts_until_the_one_that_waits_has_come_out_or_is_due() -> None:
    for last, now in [(partition(offset=8), 101.0), (partition(), 161.0)]:
        watch = AheadWatch()
        assert len(watch.alarms([partition(ahead_ms=60_000)], now=100.0)) == 1
        assert len(watch.alarms([partition()], now=101.0)) == 1
        assert watch.alarms([last], now=now) == []
        assert watch.alarms([partition()], now=102.0) == []
