"""Own headers: what is read, what is refused with which reason, and what passes unchanged."""

import pytest
from delayed_topics_core.errors import UnreadableHeader
from delayed_topics_core.headers import (
    OWN_HEADERS,
    Header,
    OwnHeaders,
    Root,
    foreign,
    origin,
    read_delays,
    read_front,
    write_dead_letter,
    write_hop,
    write_release,
)
from delayed_topics_core.reasons import DeadLetterReason
from hypothesis import given
from hypothesis import strategies as st

ROOT = Root("f", 3, 17, "AAAAAAAAQAmYcMFEMHnRVA")
FOREIGN: list[Header] = [("trace", b"1"), ("trace", b"2"), ("null", None), ("", b""), ("Dt-Attempt", b"x")]


def test_a_record_without_own_headers_is_a_first_attempt() -> None:
    assert read_front(FOREIGN) == OwnHeaders()


def test_a_retry_that_copied_every_header_is_believed_only_where_a_client_may_speak() -> None:
    released = write_release(FOREIGN, OwnHeaders(attempt=1), root=ROOT, origin=b"d:1:2", due_at_ms=5, released_at_ms=6)
    raised = [(name, b"2" if name == "dt-attempt" else value) for name, value in released]
    own = read_front(raised)
    assert (own.attempt, own.root, own.due_at_ms, own.hops) == (2, None, None, 0)
    assert own.id == ROOT.encode()


def test_a_copy_whose_attempt_is_not_higher_counts_as_one_higher() -> None:
    copied = write_release([], OwnHeaders(attempt=4), root=ROOT, origin=b"d:1:2", due_at_ms=5, released_at_ms=6)
    assert read_front(copied).attempt == 5
    without_attempt = [header for header in copied if header[0] != "dt-attempt"]
    assert read_front(without_attempt).attempt == 5
    assert read_front([("dt-attempt", b"9"), ("dt-released", b"4:6")]).attempt == 9
    assert read_front([("dt-attempt", b"1"), ("dt-released", b"forged")]).attempt == 1


@pytest.mark.parametrize(
    "value", [b"-1", b" 5 ", b"1e9", b"+1", b"", None, b"9223372036854775808", "٣".encode(), b"0x1", b"1\x00", b"1.0"]
)
@pytest.mark.parametrize(
    "name", ["dt-attempt", "dt-delay-level", "dt-deliver-at", "dt-generation", "dt-created-at", "dt-done-at"]
)
def test_a_number_that_is_not_plain_decimal_is_refused(name: str, value: bytes | None) -> None:
    with pytest.raises(UnreadableHeader, match=name) as refused:
        read_front([(name, value)])
    assert refused.value.reason is DeadLetterReason.HEADER_UNREADABLE


def test_an_own_header_twice_is_refused_and_a_foreign_one_is_not() -> None:
    with pytest.raises(UnreadableHeader) as refused:
        read_front([("dt-attempt", b"1"), ("dt-attempt", b"1")])
    assert refused.value.reason is DeadLetterReason.HEADER_TWICE
    assert read_front([("trace", b"1"), ("trace", b"1"), ("dt-root", b"x"), ("dt-root", b"y")]) == OwnHeaders()


def test_level_zero_is_refused_since_levels_count_from_one() -> None:
    with pytest.raises(UnreadableHeader, match="level 1 is the first"):
        read_front([("dt-delay-level", b"0")])


def test_own_headers_above_four_kib_are_refused() -> None:
    with pytest.raises(UnreadableHeader) as refused:
        read_front([("dt-error", b"x" * 5000)])
    assert refused.value.reason is DeadLetterReason.HEADERS_TOO_LARGE


def test_a_hop_is_read_back_with_its_root_and_due_time() -> None:
    own = OwnHeaders(id=b"order-7", attempt=2, group=b"billing", created_at_ms=1, done_at_ms=2, error=b"boom")
    copy = write_hop(FOREIGN, own, root=ROOT, origin=origin("f", 3, 17), due_at_ms=99)
    assert foreign(copy) == FOREIGN
    read = read_delays(copy)
    assert (read.root, read.due_at_ms, read.hops, read.hopped) == (ROOT, 99, 1, True)
    assert (read.id, read.attempt, read.group, read.created_at_ms, read.done_at_ms, read.error) == (
        b"order-7",
        2,
        b"billing",
        1,
        2,
        b"boom",
    )


def test_a_copied_ready_record_in_a_delays_partition_is_not_taken_for_a_hop() -> None:
    copied = write_release([], OwnHeaders(), root=ROOT, origin=b"f:1:2", due_at_ms=5, released_at_ms=6)
    own = read_delays(copied)
    assert not own.hopped
    assert own.attempt == 1


ROOTS_THAT_ARE_NONE = [
    b"",
    b"f:1:2",
    b"x:1:2:id",
    b"f:-1:2:id",
    b"f:1:2:id:more",
    b"\xff",
    b"f:2147483648:2:id",  # more than Kafka has partitions
    b"f:1:9223372036854775808:id",
    b"f:1:2:" + b"x" * 251,  # its first copy would have an id that no retry may have
]


@pytest.mark.parametrize("root", ROOTS_THAT_ARE_NONE)
def test_a_hop_with_a_damaged_root_is_refused(root: bytes) -> None:
    with pytest.raises(UnreadableHeader, match="dt-root"):
        read_delays([("dt-root", root), ("dt-origin", b"f:1:2"), ("dt-due-at", b"5")])


def test_a_release_drops_what_only_mattered_on_the_way() -> None:
    own = OwnHeaders(delay_level=2, generation=4)
    names = [name for name, _ in write_release([], own, root=ROOT, origin=b"f:3:17", due_at_ms=5, released_at_ms=6)]
    assert names == ["dt-id", "dt-attempt", "dt-root", "dt-origin", "dt-due-at", "dt-released", "dt-hops"]


def test_a_dead_letter_says_why_and_keeps_the_consumers_error() -> None:
    mine = dict(
        write_dead_letter([], OwnHeaders(), root=ROOT, origin=b"f:3:17", reason=DeadLetterReason.TOO_LARGE, error="é")
    )
    assert (mine["dt-reason"], mine["dt-error"]) == (b"TooLarge", b"\\xe9")
    theirs = dict(
        write_dead_letter(
            [],
            OwnHeaders(error=b"boom"),
            root=ROOT,
            origin=b"f:3:17",
            reason=DeadLetterReason.RETRY_CAP_EXCEEDED,
            error="cap",
        )
    )
    assert (theirs["dt-reason"], theirs["dt-error"]) == (b"RetryCapExceeded", b"boom")


any_headers = st.lists(
    st.tuples(st.sampled_from(sorted(OWN_HEADERS)) | st.text(max_size=8), st.none() | st.binary(max_size=24)),
    max_size=8,
)


@given(any_headers)
def test_whatever_comes_in_is_read_or_refused_and_foreign_headers_pass_unchanged(headers: list[Header]) -> None:
    for read in (read_front, read_delays):
        try:
            own = read(headers)
        except UnreadableHeader as e:
            own, refused = OwnHeaders(), e.reason
            assert refused in DeadLetterReason
        copy = write_hop(headers, own, root=ROOT, origin=b"f:3:17", due_at_ms=1)
        assert foreign(copy) == [header for header in headers if header[0] not in OWN_HEADERS]
        assert read_delays(copy).root == ROOT
