"""What may be committed, and what a restart repeats: nothing that was finished."""

import pytest
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.window import (
    MAX_METADATA_CHARS,
    MAX_SPAN,
    Window,
    committed_topic_id,
    decode_metadata,
    encode_metadata,
)
from hypothesis import given
from hypothesis import strategies as st


def test_the_lowest_unfinished_offset_is_committed() -> None:
    window = Window(10)
    for offset in (10, 11, 12):
        window.take(offset)
    window.finish(12)
    window.finish(10)
    point = window.commit_point()
    assert point.offset == 11
    assert decode_metadata(11, point.metadata) == {12}


def test_an_empty_window_commits_its_position_without_metadata() -> None:
    window = Window(5)
    window.take(5)
    window.finish(5)
    assert window.commit_point() == (6, "")


def test_offsets_that_kafka_skips_count_as_finished() -> None:
    window = Window(0)
    window.take(0)
    window.take(7)
    window.finish(0)
    assert window.commit_point().offset == 7
    window.finish(7)
    assert window.commit_point() == (8, "")


def test_going_back_without_a_new_window_is_an_error() -> None:
    window = Window(3)
    window.take(3)
    with pytest.raises(ValueError, match="offset 3"):
        window.take(3)


def test_intake_waits_before_the_bitmap_would_not_fit() -> None:
    window = Window(0)
    for offset in range(MAX_SPAN):
        window.take(offset)
    assert window.span == MAX_SPAN
    for offset in range(1, MAX_SPAN, 2):
        window.finish(offset)
    restored = decode_metadata(0, window.commit_point().metadata)
    assert restored == set(range(1, MAX_SPAN, 2)), "a crash would repeat some of them"
    window.finish(0)
    assert window.span == MAX_SPAN - 2


def test_what_a_former_life_finished_far_above_does_not_hold_up_intake() -> None:
    window = Window(0, {24_500})
    assert window.span == 0
    assert [window.take(offset) for offset in (0, 24_500, 24_501)] == [True, False, True]
    window.finish(0)
    assert window.commit_point() == (24_501, "")


@pytest.mark.timeout(30)  # it took minutes when each offset cost a look at all of them
def test_a_long_restored_window_is_taken_in_at_once() -> None:
    window = Window(0, range(1, 100_000))
    for offset in range(100_000):
        window.take(offset)
    window.finish(0)
    assert window.commit_point() == (100_000, "")


@given(st.integers(0, 10**12), st.sets(st.integers(1, 60_000), max_size=4000))
def test_metadata_reads_back_and_always_fits(committed: int, above: set[int]) -> None:
    text = encode_metadata(committed, {committed + a for a in above})
    assert len(text) <= MAX_METADATA_CHARS
    read = decode_metadata(committed, text)
    assert read <= {committed + a for a in above}
    if max(above, default=0) <= MAX_SPAN:
        assert read == {committed + a for a in above}


def test_the_widest_window_fits_even_when_nothing_compresses() -> None:
    scattered = {offset for offset in range(1, MAX_SPAN) if (offset * 2654435761) % 2**32 < 2**31}
    assert decode_metadata(0, encode_metadata(0, scattered)) == scattered


@given(st.lists(st.integers(0, 200), unique=True, min_size=1, max_size=60).map(sorted), st.data())
def test_after_a_crash_exactly_the_unfinished_records_come_again(offsets: list[int], data: st.DataObject) -> None:
    window = Window(0)
    taken = [offset for offset in offsets if window.take(offset)]
    finished = set(data.draw(st.lists(st.sampled_from(taken), unique=True)))
    for offset in data.draw(st.permutations(sorted(finished))):
        window.finish(offset)
    point = window.commit_point()
    again = Window(point.offset, decode_metadata(point.offset, point.metadata))
    repeated = {offset for offset in offsets if offset >= point.offset and again.take(offset)}
    assert repeated == set(offsets) - finished
    for offset in repeated:
        again.finish(offset)
    assert again.commit_point() == (max(again.position, 0), "")


@pytest.mark.parametrize("metadata", ["something else", "dt1:!", "dt1:é", "dt1:aGVsbG8="])
def test_metadata_of_somebody_else_is_an_error_not_a_guess(metadata: str) -> None:
    with pytest.raises(UnreadableRecord, match="metadata"):
        decode_metadata(0, metadata)


@given(st.data(), st.integers(1, 60), st.sets(st.integers(0, 80)))
def test_finishing_all_at_once_is_finishing_each(data: st.DataObject, count: int, before: set[int]) -> None:
    windows = Window(0, before), Window(0, before)
    taken = [offset for offset in range(count) if windows[0].take(offset)]
    for offset in range(count):
        windows[1].take(offset)
    done = data.draw(st.lists(st.sampled_from(taken), unique=True)) if taken else []

    for offset in done:
        windows[0].finish(offset)
    windows[1].finish_all(done)

    assert windows[0].commit_point() == windows[1].commit_point()


@given(st.sets(st.integers(1, 60_000), max_size=4000), st.sampled_from(["", "uT1eKVuTQ2--Rhh9b73dqg"]))
def test_a_commit_says_which_topic_it_was_made_for(above: set[int], topic_id: str) -> None:
    text = encode_metadata(0, above, topic_id)
    assert len(text) <= MAX_METADATA_CHARS
    assert committed_topic_id(text) == (topic_id or None)
    assert decode_metadata(0, text) == decode_metadata(0, encode_metadata(0, above))


@pytest.mark.parametrize("metadata", [None, "", "a person's note", "dt1:eJxjZAAAAAMAAg=="])
def test_a_commit_by_others_is_for_any_topic(metadata: str | None) -> None:
    assert committed_topic_id(metadata) is None
