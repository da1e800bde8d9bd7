"""The engine's windows, commits and queues do what Python's do, whatever happens to them."""

import zlib
from heapq import heappop, heappush
from random import Random

import delayed_topics_engine as engine
import pytest
from delayed_topics_core import window as core
from delayed_topics_core.errors import UnreadableRecord
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

SAME_BYTES = "ng" not in zlib.ZLIB_RUNTIME_VERSION
"""Python's zlib is zlib itself; others compress otherwise, and to the same meaning."""

topic_ids = st.sampled_from(["", "uT1eKVuTQ2--Rhh9b73dqg"])


def test_both_have_the_same_bounds() -> None:
    assert (engine.MAX_SPAN, engine.MAX_METADATA_CHARS) == (core.MAX_SPAN, core.MAX_METADATA_CHARS)


class Windows(RuleBasedStateMachine):
    """Takes, skips, finishes in any order, and starts again from what was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[int] = []
        self._begin(0, "")

    def _begin(self, start: int, metadata: str) -> None:
        self.pythons = core.Window(start, core.decode_metadata(start, metadata))
        self.engines = engine.Window(start, engine.decode_metadata(start, metadata))
        self.taken = []

    @rule(count=st.integers(1, 100))
    def take(self, count: int) -> None:
        for offset in range(self.pythons.position, self.pythons.position + count):
            fresh = self.pythons.take(offset)
            assert self.engines.take(offset) == fresh
            if fresh:
                self.taken.append(offset)

    @rule(gap=st.sampled_from([1, 2, 63, 64, 65, 1000, 200_000]))
    def skip(self, gap: int) -> None:
        offset = self.pythons.position + gap
        if gap <= 1000 or self.pythons.span == 0:  # Python's bitmap has a byte for eight of them
            assert self.pythons.take(offset) == self.engines.take(offset)
            if not self.pythons.is_finished(offset):
                self.taken.append(offset)

    @rule(ahead=st.integers(-3, 200))
    def reach_the_end(self, ahead: int) -> None:
        offset = self.pythons.position + ahead
        assert self.engines.skip_to(offset) == self.pythons.skip_to(offset) == (ahead > 0)

    @rule()
    def read_again(self) -> None:
        self.pythons, self.engines = self.pythons.renewed(), self.engines.renewed()
        self.taken = []

    @rule(data=st.data(), count=st.integers(1, 40))
    def finish(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.taken))):
            offset = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
            self.pythons.finish(offset)
            assert self.engines.finish(offset)
            assert not self.engines.finish(offset)

    @rule(count=st.integers(1, 300))
    def finish_first(self, count: int) -> None:
        done, self.taken = sorted(self.taken)[:count], sorted(self.taken)[count:]
        self.pythons.finish_all(done)
        for offset in done:
            assert self.engines.finish(offset)

    @rule(ahead=st.integers(0, 200))
    def finish_what_was_not_taken(self, ahead: int) -> None:
        offset = self.pythons.position + ahead
        self.pythons.finish(offset)
        assert not self.engines.finish(offset)

    @rule(back=st.integers(1, 50))
    def go_back(self, back: int) -> None:
        with pytest.raises(ValueError, match="taken already"):
            self.engines.take(self.engines.position - back)

    @rule(topic_id=topic_ids)
    def crash(self, topic_id: str) -> None:
        point = self.pythons.commit_point(topic_id)
        self._begin(point.offset, point.metadata)

    @invariant()
    def the_same(self) -> None:
        pythons, engines = self.pythons, self.engines
        assert engines.position == pythons.position
        assert engines.span == pythons.span
        assert engines.lowest_unfinished == pythons.lowest_unfinished
        for offset in range(pythons.lowest_unfinished - 2, min(pythons.position, pythons.lowest_unfinished + 70) + 3):
            assert engines.is_finished(offset) == pythons.is_finished(offset)
        for topic_id in ("", "uT1eKVuTQ2--Rhh9b73dqg"):
            _same_metadata(*pythons.commit_point(topic_id), *engines.commit_point(topic_id))


Windows.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
test_windows = Windows.TestCase


def _same_metadata(offset: int, pythons: str, engines_offset: int, engines: str) -> None:
    assert engines_offset == offset
    assert engines == pythons or not SAME_BYTES
    assert len(engines) <= engine.MAX_METADATA_CHARS
    finished = core.decode_metadata(offset, pythons)
    assert set(engine.decode_metadata(offset, pythons)) == finished == core.decode_metadata(offset, engines)
    assert engine.committed_topic_id(pythons) == core.committed_topic_id(engines) == core.committed_topic_id(pythons)


offsets = st.integers(0, 10**12)


@given(offsets, st.lists(st.integers(-100, 60_000), unique=True, max_size=3000), topic_ids)
def test_metadata_is_the_same(committed: int, above: list[int], topic_id: str) -> None:
    finished = [committed + place for place in above]
    pythons = core.encode_metadata(committed, finished, topic_id)
    _same_metadata(committed, pythons, committed, engine.encode_metadata(committed, finished, topic_id))


@given(st.integers(0, 2**32), st.integers(20_000, 60_000), topic_ids)
@settings(max_examples=10)
def test_metadata_that_would_not_fit_is_cut_at_the_same_offset(seed: int, span: int, topic_id: str) -> None:
    random = Random(seed)
    chosen = [offset for offset in range(span) if random.random() < 0.5]
    pythons = core.encode_metadata(0, chosen, topic_id)
    _same_metadata(0, pythons, 0, engine.encode_metadata(0, chosen, topic_id))


somebodys = st.sampled_from(["dt1:", "dt1:eJxjZAAAAAMAAg==", "dt1:eJxjZAAAAAMAAg==:id", "dt1:aGVsbG8=", "x"])


@given(st.one_of(st.text(max_size=40), st.tuples(somebodys, st.text(max_size=4), st.text(max_size=4)).map("".join)))
def test_any_metadata_is_read_or_refused_alike(metadata: str) -> None:
    try:
        finished = core.decode_metadata(5, metadata)
    except UnreadableRecord:
        with pytest.raises(ValueError, match="commit metadata"):
            engine.decode_metadata(5, metadata)
    else:
        assert engine.decode_metadata(5, metadata) == sorted(finished)
    assert engine.committed_topic_id(metadata) == core.committed_topic_id(metadata)


class Queues(RuleBasedStateMachine):
    """Records wait, are held again, and leave in the order of turns, those of equal turns in the order of offsets."""

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
    def the_same(self) -> None:
        assert self.engines.next_turn_at_ms == (self.waiting[0][0] if self.waiting else None)
        assert len(self.engines) == len(self.waiting)
        assert self.engines.due_count(self.now_ms) == sum(turn <= self.now_ms for turn, _ in self.waiting)


Queues.TestCase.settings = settings(max_examples=50, deadline=None)
test_queues = Queues.TestCase
