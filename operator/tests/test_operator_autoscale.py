"""How many workers autoscaling wants from minute to minute. Workers and loads are simulated."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from delayed_topics_operator.delayed_topic.reconcile.autoscale import decided
from delayed_topics_operator.delayed_topic.reconcile.load import LOOK_SECONDS, Load, Look
from hypothesis import given
from hypothesis import strategies as st

PARTITIONS = 12
STARTING_SECONDS = 12.0
"""The time until an added pod is ready; a removed pod is gone sooner."""
PAUSE_SECONDS = 2.0
"""The time in which nothing is released after workers came or went."""
Rate = Callable[[float], float]
"""Maps a time in seconds to the number of records that come due in that second."""


@dataclass
class Fleet:
    """Simulated workers. Each releases at most `worker_per_second` records, and all of them at most `together`. Only `room` workers
    find a node."""

    worker_per_second: float
    least: int = 1
    most: int = 10
    together: float = math.inf
    room: int = 1000
    wanted: int = 1
    load: Load = field(default_factory=Load)
    now: float = 0.0
    history: list[tuple[float, int]] = field(default_factory=list)
    lags: list[tuple[float, float]] = field(default_factory=list)
    _came: float = 0.0
    _released: float = 0.0
    _serving: int = 1
    _changed_at: float = -math.inf

    def run(self, seconds: float, rate: Rate) -> None:
        """Simulates this many seconds, one by one, and decides on the number of workers as often as the operator does."""
        end = self.now + seconds
        while self.now < end:
            self.now += 1
            self._came += rate(self.now)
            if self.now > self._changed_at + STARTING_SECONDS:
                self._serving = min(self.wanted, self.room)
            paused = self._changed_at <= self.now < self._changed_at + STARTING_SECONDS + PAUSE_SECONDS
            able = (
                0.0
                if paused and self._serving == min(self.wanted, self.room)
                else self._serving * self.worker_per_second
            )
            self._released = min(self._came, self._released + min(able, self.together))
            if self.now % LOOK_SECONDS == 0:
                self._look()

    def _look(self) -> None:
        settled = self.now > self._changed_at + STARTING_SECONDS + PAUSE_SECONDS
        key = ("orders", 0)
        self.load = self.load.after(
            Look(
                at_seconds=self.now,
                due={key: int(self._came)},
                released={key: int(self._released)},
                workers=min(self.wanted, self.room) if settled else 0,
                shared=self.wanted < PARTITIONS,
            )
        )
        self.lags.append((self.now, self._came - self._released))
        wanted, why = decided(self.load, self.wanted, self.least, min(self.most, PARTITIONS))
        assert self.least <= wanted <= min(self.most, PARTITIONS)
        if wanted != self.wanted:
            assert why
            self.history.append((self.now, wanted))
            self.wanted, self._changed_at = wanted, self.now

    @property
    def numbers(self) -> list[int]:
        return [wanted for _, wanted in self.history]


def steady(per_second: float) -> Rate:
    return lambda _: per_second


def test_a_fleet_that_is_too_small_is_told_to_grow_within_fifteen_seconds() -> None:
    fleet = Fleet(worker_per_second=10_000)
    fleet.run(600, steady(2_000))
    assert fleet.history == []

    fleet.run(60, steady(35_000))

    at, wanted = fleet.history[0]
    assert (at - 600 <= 15, wanted >= 4) == (True, True)
    fleet.run(240, steady(35_000))
    assert fleet.lags[-1][1] == 0, "the backlog is released as well"
    assert fleet.numbers == sorted(fleet.numbers)


def test_a_fleet_shrinks_when_fewer_have_been_enough_for_minutes_and_by_half_at_most() -> None:
    fleet = Fleet(worker_per_second=10_000, most=8)
    fleet.run(300, steady(70_000))
    assert fleet.wanted == 8
    quiet_from = fleet.now
    fleet.run(1800, steady(1_000))

    shrunk = [(at, wanted) for at, wanted in fleet.history if at > quiet_from]
    assert [wanted for _, wanted in shrunk] == [4, 2, 1]
    moments = [quiet_from, *(at for at, _ in shrunk)]
    assert all(b - a >= 300 for a, b in itertools.pairwise(moments))


def test_records_that_can_not_be_released_for_another_reason_bring_no_workers() -> None:
    fleet = Fleet(worker_per_second=0)
    fleet.run(600, steady(10_000))
    assert (fleet.history, fleet.lags[-1][1] > 1_000_000) == ([], True)


def test_a_partition_that_lags_alone_brings_no_workers_since_one_has_it_already() -> None:
    load = Load()
    for second in range(0, 60, 5):
        due, released = {("orders", 0): second * 10_000}, {("orders", 0): second * 5_000}
        load = load.after(Look(at_seconds=second, due=due, released=released, workers=1, shared=False))
    assert decided(load, 1, 1, 10) == (1, "")


def test_few_records_that_are_late_bring_no_workers() -> None:
    fleet = Fleet(worker_per_second=1)
    fleet.run(300, steady(3))
    assert fleet.history == []


def test_a_stall_of_seconds_brings_no_workers() -> None:
    fleet = Fleet(worker_per_second=20_000)
    fleet.run(300, steady(10_000))
    for seconds in range(1, 31):
        fleet.worker_per_second = 0
        fleet.run(seconds, steady(10_000))
        fleet.worker_per_second = 20_000
        fleet.run(120, steady(10_000))
        assert fleet.history == [], f"after a stall of {seconds} s"


def test_what_fewer_workers_could_not_do_before_is_remembered() -> None:
    """The load swings a little around what a certain number of workers can do."""
    fleet = Fleet(worker_per_second=10_000)
    fleet.run(4 * 3600, lambda now: 20_000 + 4_000 * math.sin(now / 700))
    assert fleet.wanted == 3
    assert fleet.numbers == sorted(fleet.numbers)


@pytest.mark.parametrize("per_second", range(9_600, 32_000, 400))
def test_a_load_at_the_edge_of_what_a_number_of_workers_can_do_never_makes_it_go_back_and_forth(
    per_second: int,
) -> None:
    fleet = Fleet(worker_per_second=10_000)
    fleet.run(3600, steady(per_second))
    assert turns(fleet.numbers, 1) <= 1
    settled = fleet.wanted
    fleet.run(3600, steady(per_second))
    assert fleet.wanted == settled
    assert (turns(fleet.numbers, 1) <= 1, settled * 10_000 >= per_second) == (True, True)


def test_an_operator_that_has_just_started_takes_no_worker_away_that_is_needed() -> None:
    fleet = Fleet(worker_per_second=10_000, wanted=4)
    fleet.run(3600, steady(36_000))
    assert fleet.history == []


def test_when_more_workers_release_no_more_it_grows_once_and_stays() -> None:
    fleet = Fleet(worker_per_second=10_000, together=15_000, most=6)
    fleet.run(3600, steady(20_000))
    assert (fleet.wanted, fleet.numbers == sorted(fleet.numbers)) == (6, True)


def test_workers_that_find_no_node_bring_no_others_for_minutes_and_go_when_the_load_does() -> None:
    fleet = Fleet(worker_per_second=10_000, most=8, room=3)
    fleet.run(900, steady(35_000))
    (first, _), (second, _) = fleet.history[:2]
    assert second - first >= 300
    assert fleet.wanted > 3
    fleet.run(1800, steady(1_000))
    assert fleet.wanted == 1


@st.composite
def loads(draw: st.DrawFn) -> Rate:
    """Generates a steady load with a wave and with noise; periods are from ten seconds to hours."""
    base = draw(st.floats(0, 80_000))
    wave, period = draw(st.floats(0, 0.2)), draw(st.floats(10, 10_000))
    noise, seed = draw(st.floats(0, 0.1)), draw(st.integers(0, 1000))
    return lambda now: base * (1 + wave * math.sin(now / period) + noise * math.sin(seed + now * now))


@given(loads(), st.floats(500, 20_000), st.integers(1, 10), st.integers(1, 4))
def test_a_load_that_stays_about_the_same_makes_it_grow_or_shrink_but_not_both_in_turn(
    rate: Rate, worker_per_second: float, most: int, start: int
) -> None:
    fleet = Fleet(worker_per_second=worker_per_second, most=most, wanted=min(start, most))
    fleet.run(1800, rate)
    assert turns(fleet.numbers, min(start, most)) <= 1
    settled = len(fleet.history)
    fleet.run(1800, rate)
    assert len(fleet.history) - settled <= 1


def turns(numbers: list[int], start: int) -> int:
    """Counts how often the number of workers changed its direction."""
    ways = [b > a for a, b in zip([start, *numbers], numbers, strict=False)]
    return sum(a != b for a, b in itertools.pairwise(ways))


@given(st.lists(st.tuples(st.integers(0, 200_000), st.integers(5, 120)), max_size=20))
def test_whatever_comes_the_bounds_hold_and_in_the_end_everything_is_released(steps: list[tuple[int, int]]) -> None:
    fleet = Fleet(worker_per_second=20_000, least=2, most=9, wanted=2)
    for per_second, seconds in steps:
        fleet.run(seconds, steady(per_second))
    fleet.run(1800, steady(0))
    assert (fleet.lags[-1][1], fleet.wanted) == (0, 2)
