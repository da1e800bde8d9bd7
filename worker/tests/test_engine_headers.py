"""How the engine treats `dt-` headers: what it believes, what it refuses and why, and what it copies unchanged."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import delayed_topics_engine as engine
import pytest
from delayed_topics_core.headers import MAX_ID_BYTES, OWN_HEADERS, Header, Root, foreign
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core_testing import copies
from delayed_topics_core_testing.attempts import ATTEMPTS
from delayed_topics_worker_testing.engine_records import (
    NOW_MS,
    NUMBERS,
    OUTAGE_BUDGET_SECONDS,
    POOLS,
    TOPIC_ID,
    Case,
    Cases,
    Setting,
    encoded,
    random_setting,
)
from hypothesis import given
from hypothesis import strategies as st

LAYOUT = initial(LayoutSpec(delay_seconds=(0, 10, 60), partitions=4))
FRONT = Case(
    setting=Setting(LAYOUT, retry_cap=100, ready_partitions=4),
    topic_letter="f",
    partition=3,
    offset=17,
    appended_at_ms=NOW_MS,
    now_ms=NOW_MS,
    later_ms=NOW_MS,
)
ROOT = Root("f", 3, 17, TOPIC_ID)
FOREIGN: list[Header] = [("trace", b"1"), ("trace", b"2"), ("null", None), ("", b""), ("Dt-Attempt", b"x")]


def copy_of(*headers: Header, case: Case = FRONT) -> engine.Copy:
    """Returns the first copy of a record with these headers, whether the engine makes it at once or when the record is due."""
    case = replace(case, headers=headers)
    found = engine.decide(case.record(), case.setting.policy, case.now_ms)
    return found if isinstance(found, engine.Copy) else copy_when_due(case, found)


def copy_when_due(case: Case, wait: engine.Wait) -> engine.Copy:
    """Returns the copy that the engine makes of a waiting record when it is due."""
    turn = engine.take_turn(case.record(), wait, case.setting.policy, wait.due_at_ms)
    assert isinstance(turn, engine.Copy)
    return turn


def headers_of(copy: engine.Copy) -> dict[bytes, bytes | None]:
    return dict(copy.headers)


def refused(*headers: Header, case: Case = FRONT) -> str:
    """Returns the reason and the error of a record that is refused for its headers."""
    copy = copy_of(*headers, case=case)
    assert copy.target == "dead-letter", copy.target
    return f"{copy.reason}: {(headers_of(copy)[b'dt-error'] or b'').decode()}"


def released(attempt: int, *headers: Header) -> Sequence[Header]:
    return copies.release(headers, attempt=attempt, root=ROOT, origin=b"d:1:2", due_at_ms=NOW_MS, released_at_ms=NOW_MS)


def test_a_record_without_own_headers_is_a_first_attempt_of_which_nothing_is_changed() -> None:
    copy = copy_of(*FOREIGN)
    assert copy.target == "ready"
    assert copy.headers == [
        *encoded(FOREIGN),
        (b"dt-id", ROOT.encode()),
        (b"dt-attempt", b"0"),
        (b"dt-root", ROOT.encode()),
        (b"dt-origin", b"f:3:17"),
        (b"dt-due-at", b"%d" % NOW_MS),
        (b"dt-released", b"0:%d" % NOW_MS),
        (b"dt-hops", b"0"),
    ]


def test_a_header_name_may_be_any_bytes() -> None:
    names = [(b"\xff\xfe", b"1"), (b"dt-id\x00", None), (b"", b"")]
    record = engine.Record(
        delay_seconds=None, partition=0, offset=7, topic_id="id", appended_at_ms=NOW_MS, key=None, headers=names
    )
    policy = FRONT.setting.policy
    wait = engine.decide(record, policy, NOW_MS)
    assert isinstance(wait, engine.Wait)
    released = engine.take_turn(record, wait, policy, NOW_MS)
    assert isinstance(released, engine.Copy)
    assert released.headers[:3] == names


def test_a_retry_that_copied_every_header_is_believed_only_where_a_client_may_speak() -> None:
    raised = [(name, b"2" if name == "dt-attempt" else value) for name, value in released(1, *FOREIGN)]
    copy = copy_of(*raised, case=replace(FRONT, partition=1, offset=5))
    found = headers_of(copy)
    assert (found[b"dt-attempt"], found[b"dt-id"], found[b"dt-hops"]) == (b"2", ROOT.encode(), b"1")
    assert (found[b"dt-root"], found[b"dt-origin"]) == (b"f:1:5:" + TOPIC_ID.encode(), b"f:1:5")


@pytest.mark.parametrize(
    ("headers", "attempt"),
    [
        (released(4), b"5"),
        ([header for header in released(4) if header[0] != "dt-attempt"], b"5"),
        ([("dt-attempt", b"9"), ("dt-released", b"4:6")], b"9"),
        ([("dt-attempt", b"1"), ("dt-released", b"forged")], b"1"),
    ],
)
def test_a_copy_whose_attempt_is_not_higher_counts_as_one_higher(headers: Sequence[Header], attempt: bytes) -> None:
    assert headers_of(copy_of(*headers))[b"dt-attempt"] == attempt


@pytest.mark.parametrize(("headers", "attempt"), ATTEMPTS)
def test_an_attempt_is_what_audits_take_it_for(headers: Sequence[Header], attempt: int) -> None:
    case = replace(FRONT, setting=replace(FRONT.setting, retry_cap=2**31 - 1))
    assert headers_of(copy_of(*headers, case=case))[b"dt-attempt"] == b"%d" % attempt


@pytest.mark.parametrize(
    "value", [b"-1", b" 5 ", b"1e9", b"+1", b"", None, b"9223372036854775808", "٣".encode(), b"0x1", b"1\x00", b"1.0"]
)
@pytest.mark.parametrize(
    "name", ["dt-attempt", "dt-delay-level", "dt-deliver-at", "dt-generation", "dt-created-at", "dt-done-at"]
)
def test_a_number_that_is_not_plain_decimal_is_refused(name: str, value: bytes | None) -> None:
    assert refused((name, value)).startswith(f"HeaderUnreadable: {name} must be a decimal number")


def test_an_own_header_twice_is_refused_and_one_that_is_not_believed_anyway_is_not() -> None:
    assert refused(("dt-attempt", b"1"), ("dt-attempt", b"1")) == (
        "HeaderTwice: a record can have dt-attempt only once, but this record has it twice"
    )
    assert copy_of(("trace", b"1"), ("trace", b"1"), ("dt-root", b"x"), ("dt-root", b"y")).target == "ready"


def test_level_zero_is_refused_since_levels_count_from_one() -> None:
    assert "Level 1 is the first" in refused(("dt-delay-level", b"0"))


def test_a_retry_may_say_its_whole_stack_trace_of_which_the_beginning_is_kept() -> None:
    copy = copy_of(("dt-error", b"Traceback" + b"x" * 100_000))
    assert copy.target == "ready"
    assert headers_of(copy)[b"dt-error"] == b"Traceback" + b"x" * (2048 - 9)


def test_an_unreadable_header_name_makes_a_dead_letter() -> None:
    record = replace(FRONT, headers=None).record()
    copy = engine.decide(record, FRONT.setting.policy, NOW_MS)
    assert isinstance(copy, engine.Copy)
    assert (copy.target, copy.reason) == ("dead-letter", "HeaderUnreadable")


def test_a_copied_ready_record_in_a_delays_partition_is_not_taken_for_a_hop() -> None:
    direct = replace(FRONT, topic_letter="d", partition=2, headers=released(0))
    wait = engine.decide(direct.record(), direct.setting.policy, NOW_MS)
    assert isinstance(wait, engine.Wait)
    assert wait.root == direct.root
    assert headers_of(copy_when_due(direct, wait))[b"dt-attempt"] == b"1"


@pytest.mark.parametrize(
    "root",
    [
        b"",
        b"f:1:2",
        b"x:1:2:id",
        b"f:-1:2:id",
        b"f:1:2:id:more",
        b"\xff",
        b"f:2147483648:2:id",  # above the highest number of a partition
        b"f:1:9223372036854775808:id",
        b"f:1:2:" + b"x" * 251,  # the first copy would have an id that is too long for a retry
    ],
)
def test_a_hop_with_a_damaged_root_is_refused(root: bytes) -> None:
    headers: list[Header] = [("dt-root", root), ("dt-origin", b"f:1:2"), ("dt-due-at", b"5")]
    why = "HeaderUnreadable: dt-root must be f or d, a partition, an offset and a topic id, with colons between them"
    assert refused(*headers, case=replace(FRONT, topic_letter="d", partition=0)) == why


def test_a_release_drops_what_only_mattered_on_the_way() -> None:
    copy = copy_of(("dt-delay-level", b"1"), ("dt-generation", b"4"))
    assert not {b"dt-delay-level", b"dt-generation"} & headers_of(copy).keys()


def test_a_dead_letter_keeps_its_consumers_error() -> None:
    capped = replace(FRONT, setting=replace(FRONT.setting, retry_cap=0))
    copy = copy_of(("dt-attempt", b"1"), ("dt-error", b"boom"), case=capped)
    assert (copy.reason, headers_of(copy)[b"dt-error"]) == ("RetryCapExceeded", b"boom")


names = st.sampled_from(sorted(OWN_HEADERS)) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
times_ms = st.integers(NOW_MS - 4_000_000, NOW_MS + 4_000_000)


@st.composite
def any_header(draw: st.DrawFn) -> Header:
    name = draw(names)
    return name, draw(st.sampled_from(POOLS.get(name, NUMBERS)) | st.none() | st.binary(max_size=24))


@st.composite
def any_case(draw: st.DrawFn) -> Case:
    setting = random_setting(Random(draw(st.integers(0, 2**32))))
    in_front = draw(st.booleans())
    now_ms = draw(times_ms)
    return Case(
        setting=setting,
        topic_letter="f" if in_front else "d",
        partition=draw(st.integers(0, 2**31 - 1 if in_front else setting.layout.partition_count - 1)),
        offset=draw(st.integers(0, 2**63 - 2)),
        appended_at_ms=draw(st.none() | times_ms),
        key=draw(st.none() | st.binary(max_size=20)),
        value=draw(st.none() | st.binary(max_size=5)),
        headers=draw(st.none() | st.lists(any_header(), max_size=8)),
        now_ms=now_ms,
        later_ms=now_ms + draw(st.integers(0, 4_000_000)),
    )


@given(any_case())
def test_whatever_comes_in_is_copied_as_docs_promise(case: Case) -> None:
    check(case)


@given(st.integers(0, 2**32))
def test_what_clients_and_workers_write_is_copied_as_docs_promise(seed: int) -> None:
    drawn = Cases(Random(seed))
    for _ in range(20):
        check(drawn.draw())


def check(case: Case) -> None:
    """Checks all that the engine may do with a record, from reading it to its last copy, against docs/headers.md."""
    record, policy = case.record(), case.setting.policy
    found = engine.decide(record, policy, case.now_ms)
    if isinstance(found, engine.Wait):
        check_wait(case, found)
        for now_ms in (found.due_at_ms, case.later_ms):
            check_turn(case, found, engine.take_turn(record, found, policy, now_ms), now_ms=now_ms)
    else:
        check_copy(case, found, now_ms=case.now_ms)
    size = len(case.value or b"")
    whole = engine.too_large(record, value_bytes=size, foreign_headers=True)
    check_copy(case, whole, now_ms=case.now_ms)
    bare = engine.too_large(record, value_bytes=size, foreign_headers=False)
    assert bare.headers == whole.headers[len(whole.headers) - len(bare.headers) :]
    assert all(name.decode() in OWN_HEADERS for name, _ in bare.headers)


def check_wait(case: Case, wait: engine.Wait) -> None:
    delay_seconds = case.delay_seconds
    appended_at_ms = case.now_ms if case.appended_at_ms is None else case.appended_at_ms
    requested_ms = next((int(value or b"") for name, value in case.headers or () if name == "dt-deliver-at"), None)
    if delay_seconds is None:
        assert wait.root == case.root
        assert wait.turn_at_ms == wait.due_at_ms
        listed = {appended_at_ms + 1000 * delay for delay in case.setting.layout.delay_seconds}
        due_at_ms = listed if requested_ms is None else {max(requested_ms, appended_at_ms)}
        assert wait.due_at_ms in due_at_ms, "a front record is due when it requests, or after a delay of the list"
        assert wait.due_at_ms < case.now_ms + 1000 or wait.due_at_ms == appended_at_ms
    elif wait.root == case.root:
        served_at_ms = appended_at_ms + 1000 * delay_seconds
        assert wait.due_at_ms == (served_at_ms if requested_ms is None else max(requested_ms, appended_at_ms))
        assert wait.turn_at_ms in (wait.due_at_ms, served_at_ms)
        assert wait.turn_at_ms <= served_at_ms + 999
    else:
        assert wait.turn_at_ms in (wait.due_at_ms, appended_at_ms + 1000 * delay_seconds)
        assert wait.turn_at_ms <= appended_at_ms + 1000 * delay_seconds + 999


def check_turn(case: Case, wait: engine.Wait, turn: engine.Wait | engine.Copy, *, now_ms: int) -> None:
    is_due, asked = now_ms >= wait.due_at_ms, case.asked
    assert (turn.root, turn.due_at_ms or wait.due_at_ms) == (wait.root, wait.due_at_ms)
    if isinstance(turn, engine.Wait):
        assert turn.turn_at_ms == (now_ms + 1000 if is_due else wait.due_at_ms)
        assert not is_due or case.is_target_missing
        return
    check_copy(case, turn, now_ms=now_ms)
    if not is_due:
        assert turn.target == "delays"
    elif asked is None:
        assert turn.target == "ready"
    elif not case.is_target_missing:
        assert turn.target == asked[0] if asked[0] in dict(case.setting.targets) else turn.reason == "TargetNotAllowed"
    elif now_ms - wait.due_at_ms >= OUTAGE_BUDGET_SECONDS * 1000:
        assert turn.reason == "TargetUnavailable"
    else:
        assert case.setting.layout.partition_delays[turn.partition] <= 60


def check_copy(case: Case, copy: engine.Copy, *, now_ms: int) -> None:
    given_headers = [] if case.headers is None else encoded(foreign(case.headers))
    own = copy.headers[len(given_headers) :]
    assert copy.headers[: len(given_headers)] == given_headers, "foreign headers pass unchanged and come first"
    found = dict(own)
    assert len(found) == len(own), "each header occurs once"
    assert {name.decode() for name in found} <= OWN_HEADERS
    attempt = int(found[b"dt-attempt"] or b"")
    assert 0 <= attempt <= 2**31, "at most one more than the highest attempt of a retry"
    assert (found[b"dt-root"], found[b"dt-origin"]) == (copy.root, case.origin)
    root = Root.decode(copy.root)
    assert len(found[b"dt-id"] or b"") <= MAX_ID_BYTES
    match copy.target:
        case "ready" | "invoices":
            asked, partitions = case.asked, {"ready": case.setting.ready_partitions, **case.setting.known_targets}
            assert copy.partition < partitions[copy.target]
            assert asked is None or asked[1] in (None, copy.partition)
            assert copy.due_at_ms is not None
            assert copy.due_at_ms <= now_ms, "never early"
            assert found[b"dt-due-at"] == b"%d" % copy.due_at_ms
            assert found[b"dt-released"] == b"%d:%d" % (attempt, now_ms)
            assert not {b"dt-deliver-at", b"dt-delay-level", b"dt-appended-at"} & found.keys()
            again = copy_of(*((name.decode(), value) for name, value in copy.headers), case=sent_back(case))
            if attempt < 2**31 - 1:
                assert headers_of(again)[b"dt-attempt"] == b"%d" % (attempt + 1), "sent back, it is the next attempt"
                assert again.target in (copy.target, "delays"), "sent back, it comes out in the same topic"
        case "delays":
            layout = case.setting.layout
            assert copy.partition == layout.partition_for(layout.partition_delays[copy.partition], root.partition)
            assert layout.partition_delays[copy.partition] in {*layout.delay_seconds, *layout.ladder_seconds} - {0}
            assert copy.due_at_ms is not None
            assert copy.due_at_ms > now_ms or case.is_target_missing
            check_hop_is_believed(case, copy, attempt=attempt)
        case "dead-letter":
            assert copy.partition == root.partition
            assert copy.reason in set(DeadLetterReason)
            assert found[b"dt-reason"] == (copy.reason or "").encode()
            assert found.get(b"dt-due-at") == (None if copy.due_at_ms is None else b"%d" % copy.due_at_ms)
            assert (found[b"dt-error"] or b"").isascii() or case.headers is not None


def sent_back(case: Case) -> Case:
    """Returns a record of the front topic under the same policy, due as soon as it is read."""
    return replace(FRONT, setting=replace(case.setting, retry_cap=2**31 - 1))


def check_hop_is_believed(case: Case, hop: engine.Copy, *, attempt: int) -> None:
    """Checks that the engine reads from a hop in the delays topic what it has written there."""
    headers = tuple((name.decode(), value) for name, value in hop.headers)
    place = Case(
        setting=case.setting,
        topic_letter="d",
        partition=hop.partition,
        offset=5,
        appended_at_ms=NOW_MS,
        headers=headers,
        now_ms=NOW_MS,
        later_ms=NOW_MS,
    )
    wait = engine.decide(place.record(), case.setting.policy, NOW_MS)
    assert isinstance(wait, engine.Wait)
    assert (wait.root, wait.due_at_ms) == (hop.root, hop.due_at_ms)
    before = dict(hop.headers)
    turn = engine.take_turn(place.record(), wait, place.setting.policy, wait.due_at_ms)
    if b"dt-target" in before and (isinstance(turn, engine.Wait) or turn.target in ("delays", "dead-letter")):
        return  # its target topic is missing, not allowed, or has not been looked for yet
    assert isinstance(turn, engine.Copy)
    released = headers_of(turn)
    assert released[b"dt-attempt"] == b"%d" % attempt
    for name in (b"dt-id", b"dt-hops", b"dt-group", b"dt-created-at", b"dt-done-at", b"dt-error", b"dt-target"):
        assert released.get(name) == before.get(name)


def test_stand_ins_of_other_tests_write_what_the_engine_writes() -> None:
    direct = replace(FRONT, headers=(("trace", b"1"), ("dt-group", b"billing"), ("dt-created-at", b"5")))
    by_engine = copy_of(*(direct.headers or ()), case=direct)
    assert by_engine.headers == encoded(
        copies.release(
            [("trace", b"1")],
            root=ROOT,
            origin=b"f:3:17",
            due_at_ms=NOW_MS,
            released_at_ms=NOW_MS,
            group=b"billing",
            created_at_ms=5,
        )
    )
    retry: list[Header] = [("trace", b"1"), ("dt-id", b"order-7"), ("dt-attempt", b"2"), ("dt-delay-level", b"3")]
    hop = copies.hop(retry, root=ROOT, origin=b"f:3:17", due_at_ms=NOW_MS + 60_000, attempt=2)
    assert copy_of(*retry).headers == encoded(hop)
    too_large = engine.too_large(replace(FRONT, headers=retry).record(), value_bytes=9, foreign_headers=True)
    assert too_large.headers == encoded(
        copies.dead_letter(
            retry,
            root=ROOT,
            origin=b"f:3:17",
            reason=DeadLetterReason.TOO_LARGE,
            error=b"the copy of 9 bytes was refused as too large",
            attempt=2,
        )
    )
