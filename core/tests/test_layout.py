"""Layouts: examples of partition tables, and properties that hold over any sequence of edits."""

from dataclasses import replace

import pytest
from delayed_topics_core.layout import (
    Layout,
    LayoutSpec,
    evolve,
    format_ranges,
    initial,
    ladder,
    most_hops,
    parse_ranges,
    surplus,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("delay_seconds", "partitions", "lanes", "main", "table"),
    [
        ((0, 10, 60, 600), 12, 1, 9, [0] * 9 + [10, 60, 600]),
        ((10, 20, 30), 3, 1, 1, [10, 20, 30]),
        ((10, 20, 30), 2, 1, 1, [10, 20, 30]),
        ((5, 5, 60), 4, 1, 3, [5, 5, 5, 60]),
        ((0, 60), 8, 3, 5, [0] * 5 + [60] * 3),
    ],
)
def test_the_first_table_is_as_documented(
    delay_seconds: tuple[int, ...], partitions: int, lanes: int, main: int, table: list[int]
) -> None:
    spec = LayoutSpec(delay_seconds=delay_seconds, partitions=partitions, lanes_per_delay=lanes)
    layout = initial(spec)
    assert (spec.main_partitions, spec.front_partitions) == (main, main)
    assert list(layout.partition_delays) == table
    assert surplus(layout, spec) == max(0, len(table) - partitions)


@pytest.mark.parametrize(
    ("delay_seconds", "partitions", "front", "table"),
    [
        ((0, 10, 60, 600), 12, 9, [0] * 3 + [10] * 3 + [60] * 3 + [600] * 3),
        ((0, 10), 12, 11, [0] + [10] * 11),
        ((0, 10, 60, 600), 6, 3, [0, 0, 0, 10, 60, 600]),
        ((0, 10, 60), 2, 1, [0, 10, 60]),
        ((10, 20, 30), 12, 10, [10] * 4 + [20] * 4 + [30] * 4),
        ((10, 0, 30), 8, 6, [10] * 4 + [0] * 2 + [30] * 2),
        ((5, 5), 4, 4, [5] * 4),
        ((0,), 4, 4, [0] * 4),
    ],
)
def test_without_a_number_of_lanes_all_delays_that_records_wait_for_share_the_partitions(
    delay_seconds: tuple[int, ...], partitions: int, front: int, table: list[int]
) -> None:
    spec = LayoutSpec(delay_seconds=delay_seconds, partitions=partitions)
    layout = initial(spec)
    assert list(layout.partition_delays) == table
    assert spec.front_partitions == front
    assert surplus(layout, spec) == max(0, len(table) - partitions)


def test_a_new_delay_gets_its_share_of_the_partitions_that_are_free() -> None:
    first = initial(LayoutSpec(delay_seconds=(0, 10), partitions=7))
    assert first.partition_delays == (0, *[10] * 6)
    instead = evolve(first, LayoutSpec(delay_seconds=(0, 60), partitions=7))
    assert instead.partition_delays == (*first.partition_delays, 60)
    grown = evolve(instead, LayoutSpec(delay_seconds=(0, 60, 600), partitions=12))
    assert grown.partition_delays == (*instead.partition_delays, 0, 60, 600, 600)


def test_a_first_delay_that_replaces_another_gets_its_share_because_all_records_wait_for_it() -> None:
    first = initial(LayoutSpec(delay_seconds=(60,), partitions=3))
    assert evolve(first, LayoutSpec(delay_seconds=(120,), partitions=3)).partition_delays == (60, 60, 60, 120, 120, 120)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(1, 40))
def test_a_topic_whose_lanes_are_shares_has_as_many_partitions_as_asked_for_or_one_for_each_delay(
    delay_seconds: list[int], partitions: int
) -> None:
    spec = LayoutSpec(delay_seconds=tuple(delay_seconds), partitions=partitions)
    layout = initial(spec)
    assert layout.partition_count == max(partitions, len(set(delay_seconds)))
    assert evolve(layout, spec) is layout


def test_equal_delays_share_their_partitions() -> None:
    layout = initial(LayoutSpec(delay_seconds=(5, 5, 60), partitions=4, lanes_per_delay=1))
    assert layout.delay_for_attempt(0) == layout.delay_for_attempt(1) == 5
    assert (
        layout.partition_for(layout.delay_for_attempt(1), 2)
        == layout.partition_for(layout.delay_for_attempt(0), 2)
        == 2
    )


def test_attempts_beyond_the_list_wait_the_last_delay_and_levels_above_it_too() -> None:
    layout = initial(LayoutSpec(delay_seconds=(0, 10, 60), partitions=6))
    assert [layout.delay_for_attempt(n) for n in (0, 1, 2, 3, 1000)] == [0, 10, 60, 60, 60]
    assert [layout.delay_for_level(n) for n in (1, 2, 3, 4, 18)] == [0, 10, 60, 60, 60]


def test_a_kind_that_left_the_list_is_retired_and_used_again_when_it_returns() -> None:
    first = initial(LayoutSpec(delay_seconds=(0, 10, 60), partitions=4))
    without = evolve(first, LayoutSpec(delay_seconds=(0, 60), partitions=4))
    assert [(d, role) for d, role, _ in without.ranges()] == [(0, "main"), (10, "retired"), (60, "delay")]
    back = evolve(without, LayoutSpec(delay_seconds=(0, 10, 60), partitions=4))
    assert back.partition_for(10, 0) == first.partition_for(10, 0)


def test_an_unchanged_manifest_gives_the_same_generation() -> None:
    spec = LayoutSpec(delay_seconds=(0, 10), partitions=4)
    layout = initial(spec)
    assert evolve(layout, spec) is layout


def test_more_partitions_are_appended_to_the_main_kind() -> None:
    spec = LayoutSpec(delay_seconds=(0, 10), partitions=4, lanes_per_delay=1)
    grown = evolve(initial(spec), replace(spec, partitions=6))
    assert grown.partition_delays == (0, 0, 0, 10, 0, 0)
    assert grown.ranges() == [(0, "main", "0-2,4-5"), (10, "delay", "3")]


@pytest.mark.parametrize(
    ("max_seconds", "base", "delays"),
    [(1, 2, (1,)), (8, 2, (1, 2, 4, 8)), (15, 2, (1, 2, 4, 8)), (100, 10, (1, 10, 100)), (59, 60, (1,))],
)
def test_a_ladder_has_the_powers_of_its_base(max_seconds: int, base: int, delays: tuple[int, ...]) -> None:
    assert ladder(max_seconds=max_seconds, base=base) == delays


def test_a_ladder_comes_on_top_of_the_partitions_that_were_asked_for_and_shares_those_of_equal_delays() -> None:
    spec = LayoutSpec(delay_seconds=(0, 4), partitions=4, lanes_per_delay=2, ladder_seconds=(1, 2, 4))
    layout = initial(spec)
    assert layout.ranges() == [(0, "main", "0-1"), (4, "delay", "2-3"), (1, "ladder", "4-5"), (2, "ladder", "6-7")]
    assert surplus(layout, spec) == 0
    without = evolve(layout, replace(spec, ladder_seconds=()))
    assert [role for _, role, _ in without.ranges()] == ["main", "delay", "retired", "retired"]
    assert evolve(without, spec).kinds == layout.kinds


@given(st.integers(2, 12), st.integers(1, 5000), st.integers(0, 100_000))
def test_no_due_time_takes_more_hops_than_is_said(base: int, max_seconds: int, ahead_seconds: int) -> None:
    delays = ladder(max_seconds=max_seconds, base=base)
    hops, remaining = 0, ahead_seconds
    while remaining:
        hops, remaining = hops + 1, remaining - max(delay for delay in delays if delay <= remaining)
    assert hops <= most_hops(delays, max_delay_seconds=ahead_seconds)
    within = base * delays[-1] - 1
    assert most_hops(delays, max_delay_seconds=within) == (base - 1) * len(delays)


def test_delays_of_a_ladder_that_are_longer_than_any_due_time_is_ahead_count_no_hop() -> None:
    assert most_hops(ladder(max_seconds=65_536, base=2), max_delay_seconds=3599) == 12


specs = st.builds(
    LayoutSpec,
    ladder_seconds=st.sampled_from([(), (), ladder(max_seconds=16, base=2), ladder(max_seconds=30, base=5)]),
    delay_seconds=st.lists(st.integers(0, 30), min_size=1, max_size=8).map(tuple),
    partitions=st.integers(1, 40),
    lanes_per_delay=st.none() | st.integers(1, 4),
)


@given(st.lists(specs, min_size=1, max_size=8))
def test_over_any_edits_a_partition_keeps_its_delay_and_every_attempt_has_a_partition(edits: list[LayoutSpec]) -> None:
    layout: Layout | None = None
    homes: dict[int, tuple[int, ...]] = {}
    for spec in edits:
        before = () if layout is None else layout.partition_delays
        generation = 0 if layout is None else layout.generation
        layout = initial(spec) if layout is None else evolve(layout, spec)
        assert layout.partition_delays[: len(before)] == before
        assert layout.generation in (generation, generation + 1)
        for attempt in range(len(spec.delay_seconds) + 2):
            delay = layout.delay_for_attempt(attempt)
            assert layout.partition_delays[layout.partition_for(delay, attempt)] == delay
        for delay, wanted in spec.wanted().items():
            lanes = next(kind.partitions for kind in layout.kinds if kind.delay_seconds == delay)
            shared = spec.lanes_per_delay is None and delay != spec.kinds[0]
            assert len(lanes) >= (1 if shared else wanted)
            assert lanes[: len(homes.get(delay, ()))] == homes.get(delay, ())
        homes = {kind.delay_seconds: kind.partitions for kind in layout.kinds}


@given(st.sets(st.integers(0, 500)))
def test_ranges_read_back(numbers: set[int]) -> None:
    ordered = tuple(sorted(numbers))
    assert parse_ranges(format_ranges(ordered)) == ordered
