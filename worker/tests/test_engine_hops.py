"""A record reaches its due time hop by hop. The time is simulated."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import delayed_topics_engine as engine
from delayed_topics_core.headers import Header
from delayed_topics_core.layout import LayoutSpec, initial, ladder, most_hops
from delayed_topics_worker_testing.engine_records import MAX_DELAY_SECONDS, NOW_MS, Case, Setting
from hypothesis import given
from hypothesis import strategies as st


@dataclass(frozen=True)
class Arrival:
    """When a record was released, after how many hops, and how long the last hop took."""

    at_ms: int
    hops: int
    last_hop_ms: int


def simulate(case: Case, hops_take_ms: Iterator[int]) -> Arrival:
    """Does what workers do with a record until they release it, in simulated time."""
    now_ms, hops, took_ms = case.now_ms, 0, 0
    while True:
        record, policy = case.record(), case.setting.policy
        found = engine.decide(record, policy, now_ms)
        while isinstance(found, engine.Wait):
            now_ms = max(now_ms, found.turn_at_ms)
            found = engine.take_turn(record, found, policy, now_ms)
        if found.target == "ready":
            return Arrival(now_ms, hops, took_ms)
        assert found.target == "delays", found.reason
        hops, took_ms = hops + 1, next(hops_take_ms)
        now_ms += took_ms
        headers = [(name.decode(), value) for name, value in found.headers]
        case = replace(case, topic_letter="d", partition=found.partition, appended_at_ms=now_ms, headers=headers)


def front_record(spec: LayoutSpec, header: Header) -> Case:
    """Returns a record of a front topic that is read when it is appended."""
    return Case(
        setting=Setting(initial(spec), retry_cap=3, ready_partitions=9),
        topic_letter="f",
        partition=4,
        offset=17,
        appended_at_ms=NOW_MS,
        now_ms=NOW_MS,
        later_ms=NOW_MS,
        headers=[header],
    )


def hops_take_ms(random: Random) -> Iterator[int]:
    while True:
        yield random.randrange(101)


@given(st.integers(2, 60), st.integers(1, 4_000), st.integers(-10, MAX_DELAY_SECONDS * 1000), st.randoms())
def test_a_record_gets_to_any_due_time_never_early_and_late_by_no_more_than_its_last_hop_took(
    base: int, max_seconds: int, ahead_ms: int, random: Random
) -> None:
    spec = LayoutSpec(delay_seconds=(0, 3), partitions=4, ladder_seconds=ladder(max_seconds=max_seconds, base=base))
    case = front_record(spec, ("dt-deliver-at", b"%d" % (NOW_MS + ahead_ms)))

    arrival = simulate(case, hops_take_ms(random))

    due_at_ms = NOW_MS + max(0, ahead_ms)
    assert due_at_ms <= arrival.at_ms <= due_at_ms + arrival.last_hop_ms
    delays = tuple(sorted({3, *case.setting.layout.ladder_seconds}))
    assert arrival.hops <= most_hops(delays, max_delay_seconds=max(0, ahead_ms) // 1000)


@given(st.lists(st.integers(1, MAX_DELAY_SECONDS), min_size=1, max_size=4, unique=True), st.floats(0, 1), st.randoms())
def test_a_record_that_was_read_late_comes_out_in_time_after_few_hops_whatever_delays_there_are(
    delay_seconds: list[int], late_part: float, random: Random
) -> None:
    """A record with a delay of one day that was read some seconds late was once copied through the partition of one second, once a second
    for a day."""
    spec = LayoutSpec(delay_seconds=tuple(delay_seconds), partitions=12, lanes_per_delay=1)
    delay_ms = delay_seconds[-1] * 1000
    case = front_record(spec, ("dt-delay-level", b"%d" % len(delay_seconds)))

    arrival = simulate(replace(case, now_ms=NOW_MS + int(late_part * delay_ms)), hops_take_ms(random))

    due_at_ms = NOW_MS + delay_ms
    assert due_at_ms <= arrival.at_ms <= due_at_ms + arrival.last_hop_ms
    assert arrival.hops <= 8 * len(delay_seconds) + 1
