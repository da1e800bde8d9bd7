"""A window determines what is committed, so that a restart repeats no finished record. A queue keeps the order of waiting records."""

from heapq import heappop, heappush
from random import Random

import delayed_topics_engine as engine
import pytest
from delayed_topics_core.commit_metadata import committed_topic_id, decode_metadata
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_engine import MAX_METADATA_CHARS, MAX_SPAN
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

TOPIC_ID = "uT1eKVuTQ2--Rhh9b73dqg"
topic_ids = st.sampled_from(["", TOPIC_ID])


def taken(count: int, *, start: int = 0) -> engine.Window:
    window = engine.Window(start)
    for offset in range(start, start + count):
        window.take(offset)
    return window


def test_the_lowest_unfinished_offset_is_committed() -> None:
    window = taken(3, start=10)
    window.finish(12)
    window.finish(10)
    offset, metadata = window.commit_point()
    assert offset == 11
    assert engine.decode_metadata(11, metadata) == [12]


def test_an_empty_window_commits_its_position_without_metadata() -> None:
    window = taken(1, start=5)
    window.finish(5)
    assert window.commit_point() == (6, "")


def test_offsets_that_kafka_skips_count_as_finished() -> None:
    window = taken(1)
    window.take(7)
    window.finish(0)
    assert window.commit_point() == (7, "")
    window.finish(7)
    assert window.commit_point() == (8, "")


def test_going_back_without_a_new_window_is_an_error() -> None:
    window = taken(4)
    with pytest.raises(ValueError, match="offset 3 was taken before"):
        window.take(3)


def test_intake_waits_before_the_bitmap_would_not_fit() -> None:
    window = taken(MAX_SPAN)
    assert window.span == MAX_SPAN
    odd = list(range(1, MAX_SPAN, 2))
    for offset in odd:
        window.finish(offset)
    assert engine.decode_metadata(*window.commit_point()) == odd, "a crash would repeat some of these offsets"
    window.finish(0)
    assert window.span == MAX_SPAN - 2


def test_what_a_former_life_finished_far_above_does_not_hold_up_intake() -> None:
    window = engine.Window(0, [24_500])
    assert window.span == 0
    assert [window.take(offset) for offset in (0, 24_500, 24_501)] == [True, False, True]
    window.finish(0)
    assert window.commit_point() == (24_501, "")


class Windows(RuleBasedStateMachine):
    """Takes, skips and finishes offsets in any order, and restarts from the commit. Two sets of offsets are the model to compare with."""

    def __init__(self) -> None:
        super().__init__()
        self.window = engine.Window(0)
        self.position = 0
        self.unfinished: set[int] = set()
        self.finished: set[int] = set()
        """All finished offsets, except those that a restart repeats."""

    @property
    def lowest(self) -> int:
        return min(self.unfinished, default=self.position)

    def taken(self, offset: int) -> None:
        fresh = offset not in self.finished
        assert self.window.take(offset) == fresh
        self.position = offset + 1
        if fresh:
            self.unfinished.add(offset)

    @rule(count=st.integers(1, 100))
    def take(self, count: int) -> None:
        for offset in range(self.position, self.position + count):
            self.taken(offset)

    @rule(gap=st.sampled_from([1, 2, 63, 64, 65, 1000, 200_000]))
    def skip(self, gap: int) -> None:
        self.taken(self.position + gap)

    @rule(ahead=st.integers(-3, 200))
    def reach_the_end(self, ahead: int) -> None:
        assert self.window.skip_to(self.position + ahead) == (ahead > 0)
        self.position = max(self.position, self.position + ahead)

    @rule()
    def read_again(self) -> None:
        self.window = self.window.renewed()
        self.position = self.lowest
        self.unfinished = set()
        self.finished.discard(self.position)  # as after a commit: the bitmap begins above the committed offset

    @rule(data=st.data(), count=st.integers(1, 40))
    def finish(self, data: st.DataObject, count: int) -> None:
        chosen = sorted(self.unfinished)
        for _ in range(min(count, len(chosen))):
            offset = chosen.pop(data.draw(st.integers(0, len(chosen) - 1)))
            assert self.window.finish(offset)
            assert not self.window.finish(offset)
            self.unfinished.discard(offset)
            self.finished.add(offset)

    @rule(count=st.integers(1, 300))
    def finish_first(self, count: int) -> None:
        for offset in sorted(self.unfinished)[:count]:
            assert self.window.finish(offset)
            self.unfinished.discard(offset)
            self.finished.add(offset)

    @rule(ahead=st.integers(0, 200))
    def finish_what_was_not_taken(self, ahead: int) -> None:
        assert not self.window.finish(self.position + ahead)
        self.finished.add(self.position + ahead)

    @rule(back=st.integers(1, 50))
    def go_back(self, back: int) -> None:
        with pytest.raises(ValueError, match="was taken before"):
            self.window.take(self.position - back)

    @rule(topic_id=topic_ids)
    def crash(self, topic_id: str) -> None:
        offset, metadata = self.window.commit_point(topic_id)
        assert offset == self.lowest
        kept = set(engine.decode_metadata(offset, metadata))
        above = {done for done in self.finished if done > offset}
        assert kept == {done for done in above if done <= max(kept, default=0)}, "only the highest are left out"
        if max(above, default=0) - offset <= MAX_SPAN:
            assert kept == above
        self.window = engine.Window(offset, sorted(kept))
        self.finished = kept
        self.position = offset
        self.unfinished = set()

    @invariant()
    def agrees_with_model(self) -> None:
        assert self.window.position == self.position
        assert self.window.lowest_unfinished == self.lowest
        assert self.window.span == self.position - self.lowest
        for offset in range(self.lowest - 2, min(self.position, self.lowest + 70) + 3):
            assert self.window.is_finished(offset) == (offset < self.lowest or offset in self.finished)
        offset, metadata = self.window.commit_point(TOPIC_ID)
        assert len(metadata) <= MAX_METADATA_CHARS
        assert engine.committed_topic_id(metadata) == TOPIC_ID
        assert self.window.commit_point() == (offset, engine.encode_metadata(offset, self._above(offset)))

    def _above(self, offset: int) -> list[int]:
        return sorted(done for done in self.finished if done > offset)


Windows.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
test_windows = Windows.TestCase


@given(st.integers(0, 10**12), st.lists(st.integers(-100, 60_000), unique=True, max_size=3000), topic_ids)
def test_metadata_reads_back_and_always_fits(committed: int, above: list[int], topic_id: str) -> None:
    text = engine.encode_metadata(committed, [committed + place for place in above], topic_id)
    assert len(text) <= MAX_METADATA_CHARS
    assert engine.committed_topic_id(text) == (topic_id or None)
    finished = engine.decode_metadata(committed, text)
    every = sorted(committed + place for place in above if place > 0)
    assert finished == every[: len(finished)]
    if max(above, default=0) <= MAX_SPAN:
        assert finished == every
    assert decode_metadata(committed, text) == set(finished), "clients without the engine read the same"


@given(st.integers(0, 2**32), st.integers(20_000, 60_000), topic_ids)
@settings(max_examples=10)
def test_metadata_that_would_not_fit_lacks_the_highest_offsets(seed: int, span: int, topic_id: str) -> None:
    random = Random(seed)
    chosen = [offset for offset in range(1, span) if random.random() < 0.5]
    text = engine.encode_metadata(0, chosen, topic_id)
    assert len(text) <= MAX_METADATA_CHARS
    finished = engine.decode_metadata(0, text)
    assert finished == chosen[: len(finished)]
    assert finished[-1] > MAX_SPAN / 2


beginnings = st.sampled_from(["dt1:", "dt1:eJxjZAAAAAMAAg==", "dt1:eJxjZAAAAAMAAg==:id", "dt1:aGVsbG8=", "x"])


@given(st.one_of(st.text(max_size=40), st.tuples(beginnings, st.text(max_size=4), st.text(max_size=4)).map("".join)))
def test_any_metadata_is_read_or_refused_by_both_alike(metadata: str) -> None:
    assert committed_topic_id(metadata) == engine.committed_topic_id(metadata)
    try:
        finished = decode_metadata(5, metadata)
    except UnreadableRecord:
        with pytest.raises(ValueError, match="commit metadata"):
            engine.decode_metadata(5, metadata)
    else:
        assert engine.decode_metadata(5, metadata) == sorted(finished)


@pytest.mark.parametrize("metadata", ["", "a person's note", "dt1:eJxjZAAAAAMAAg=="])
def test_a_commit_by_others_is_for_any_topic(metadata: str) -> None:
    assert engine.committed_topic_id(metadata) is None


class Queues(RuleBasedStateMachine):
    """Records leave the queue in the order of their turns, and in the order of their offsets where turns are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[int, int]] = []
        self.engines = engine.Pending()
        self.next_offset = 0
        self.now_ms = 0

    @rule(turn_at_ms=st.integers(0, 50), late=st.booleans())
    def add(self, turn_at_ms: int, late: bool) -> None:
        turn_at_ms += self.now_ms * late
        heappush(self.waiting, (turn_at_ms, self.next_offset))
        self.engines.add(turn_at_ms, self.next_offset)
        self.next_offset += 1

    @rule(passed_ms=st.integers(0, 10), most=st.integers(1, 5))
    def pop(self, passed_ms: int, most: int) -> None:
        self.now_ms += passed_ms
        for _ in range(most):
            due = bool(self.waiting) and self.waiting[0][0] <= self.now_ms
            assert self.engines.pop(self.now_ms) == (heappop(self.waiting)[1] if due else None)

    @invariant()
    def agrees_with_model(self) -> None:
        assert self.engines.next_turn_at_ms == (self.waiting[0][0] if self.waiting else None)
        assert len(self.engines) == len(self.waiting)
        assert self.engines.due_count(self.now_ms) == sum(turn <= self.now_ms for turn, _ in self.waiting)


Queues.TestCase.settings = settings(max_examples=50, deadline=None)
test_queues = Queues.TestCase
