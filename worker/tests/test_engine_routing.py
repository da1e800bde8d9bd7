"""The engine decides where to send a record by its attempt, its delay level, the time that remains, and the retry cap."""

from collections.abc import Sequence
from dataclasses import replace

import delayed_topics_engine as engine
import pytest
from delayed_topics_core.headers import Header, Root
from delayed_topics_core.layout import LayoutSpec, evolve, initial, ladder
from delayed_topics_core_testing import copies
from delayed_topics_core_testing.partitioner import partition_for_key
from delayed_topics_worker_testing.engine_records import (
    MAX_DELAY_SECONDS,
    NOW_MS,
    OUTAGE_BUDGET_SECONDS,
    TOPIC_ID,
    Case,
    Setting,
)
from hypothesis import given
from hypothesis import strategies as st

FIRST = LayoutSpec(delay_seconds=(0, 10, 60, 600), partitions=12, lanes_per_delay=1)
SETTING = Setting(initial(FIRST), retry_cap=3, ready_partitions=9)
FRONT = Case(
    setting=SETTING, topic_letter="f", partition=4, offset=17, appended_at_ms=NOW_MS, now_ms=NOW_MS, later_ms=NOW_MS
)
DELAYS = replace(FRONT, topic_letter="d")
ROOT = Root("f", 4, 17, TOPIC_ID)
TARGET = ("dt-target", b"invoices:1")


def read(case: Case) -> engine.Wait | engine.Copy:
    return engine.decide(case.record(), case.setting.policy, case.now_ms)


def waits(case: Case) -> engine.Wait:
    found = read(case)
    assert isinstance(found, engine.Wait), found
    return found


def copied(case: Case, target: str) -> engine.Copy:
    found = read(case)
    assert isinstance(found, engine.Copy), found
    assert found.target == target
    return found


def taken(case: Case, now_ms: int) -> engine.Copy:
    """Returns the copy that the engine makes of a waiting record at that time."""
    turn = engine.take_turn(case.record(), waits(case), case.setting.policy, now_ms)
    assert isinstance(turn, engine.Copy), turn
    return turn


def with_headers(case: Case, *headers: Header) -> Case:
    return replace(case, headers=headers)


def hopped(due_in_ms: int, *, attempt: int = 1) -> Sequence[Header]:
    return copies.hop([], root=ROOT, origin=b"f:4:17", due_at_ms=NOW_MS + due_in_ms, attempt=attempt)


def test_a_first_attempt_with_delay_zero_is_due_at_its_append_time_in_the_same_partition() -> None:
    wait = waits(replace(FRONT, now_ms=NOW_MS - 3))
    assert (wait.due_at_ms, wait.turn_at_ms) == (NOW_MS, NOW_MS)
    assert (taken(FRONT, NOW_MS).target, taken(FRONT, NOW_MS).partition) == ("ready", 4)


def test_a_retry_hops_to_the_delay_of_its_attempt() -> None:
    hop = copied(replace(with_headers(FRONT, ("dt-attempt", b"2")), now_ms=NOW_MS + 5), "delays")
    assert (hop.partition, hop.due_at_ms) == (10, NOW_MS + 60_000)


def test_a_level_chooses_the_entry_of_the_list_and_above_the_last_the_last() -> None:
    due = [copied(with_headers(FRONT, ("dt-delay-level", b"%d" % level)), "delays").due_at_ms for level in (2, 4, 18)]
    assert due == [NOW_MS + 10_000, NOW_MS + 600_000, NOW_MS + 600_000]


def test_a_retry_that_has_a_level_waits_by_the_level() -> None:
    hop = copied(with_headers(FRONT, ("dt-attempt", b"1"), ("dt-delay-level", b"4")), "delays")
    assert hop.due_at_ms == NOW_MS + 600_000


def test_an_attempt_above_the_cap_is_a_dead_letter_and_one_at_the_cap_is_not() -> None:
    copied(with_headers(FRONT, ("dt-attempt", b"3")), "delays")
    above = copied(with_headers(FRONT, ("dt-attempt", b"4")), "dead-letter")
    assert above.reason == "RetryCapExceeded"
    assert (b"dt-error", b"attempt 4 is above the retry cap of 3") in above.headers


def with_targets(case: Case, target: bytes, **targets: int) -> Case:
    """`targets`: the allowed ready topics, and how many partitions each has; 0: the topic is missing."""
    return replace(
        case,
        setting=replace(case.setting, targets=list(targets.items())),
        headers=[*(case.headers or ()), ("dt-target", target)],
    )


def test_a_record_is_released_into_the_ready_topic_that_it_asks_for() -> None:
    for target, partition in ((b"invoices", 4 % 3), (b"invoices:2", 2)):
        case = with_targets(FRONT, target, shipments=9, invoices=3)
        released = taken(case, NOW_MS)
        assert (released.target, released.partition) == ("invoices", partition)
        assert (b"dt-target", target) in released.headers, "its retries come out there too"


def test_the_topic_that_a_record_asks_for_goes_with_it_through_hops() -> None:
    hop = copied(with_targets(with_headers(FRONT, ("dt-attempt", b"1")), b"invoices:1", invoices=3), "delays")
    assert (b"dt-target", b"invoices:1") in hop.headers
    again = replace(DELAYS, partition=9, headers=[(name.decode(), value) for name, value in hop.headers])
    released = taken(replace(again, setting=replace(SETTING, targets=[("invoices", 3)])), NOW_MS + 10_000)
    assert (released.target, released.partition) == ("invoices", 1)


@pytest.mark.parametrize("target", [b"elsewhere", b"orders.ready", b"elsewhere:0"])
def test_a_ready_topic_that_is_not_allowed_is_a_dead_letter_that_names_it(target: bytes) -> None:
    dead = copied(with_targets(FRONT, target, invoices=3), "dead-letter")
    assert dead.reason == "TargetNotAllowed"
    topic = target.partition(b":")[0]
    assert (b"dt-error", b"dt-target must be one of spec.ready.allowedTopics, but it is " + topic) in dead.headers
    assert (b"dt-target", target) in dead.headers


@pytest.mark.parametrize(
    "target", [b"", b"invoices:", b":1", b"a b", b"invoices:x", b"invoices:2147483648", b"x" * 250]
)
def test_a_target_that_names_no_topic_is_a_dead_letter(target: bytes) -> None:
    dead = copied(with_targets(FRONT, target, invoices=3), "dead-letter")
    assert dead.reason == "HeaderUnreadable"
    assert any(b"must be a topic or topic:partition" in (value or b"") for _, value in dead.headers)


def test_what_is_not_allowed_any_more_when_it_is_due_is_a_dead_letter() -> None:
    case = with_targets(DELAYS, b"invoices", shipments=1)
    assert taken(replace(case, headers=[*hopped(10_000), TARGET]), NOW_MS + 10_000).reason == "TargetNotAllowed"


@pytest.mark.parametrize(("target", "partitions"), [(b"invoices", 0), (b"invoices:3", 3)])
def test_a_record_whose_topic_is_missing_waits_in_the_delays_topic_until_the_outage_budget_is_over(
    target: bytes, partitions: int
) -> None:
    case = with_targets(FRONT, target, invoices=partitions)
    hop = taken(case, NOW_MS)
    assert (hop.target, hop.due_at_ms) == ("delays", NOW_MS)
    assert SETTING.layout.partition_delays[hop.partition] == 60
    later = replace(
        DELAYS,
        setting=case.setting,
        partition=hop.partition,
        appended_at_ms=NOW_MS + 5,
        headers=[(name.decode(), value) for name, value in hop.headers],
    )
    wait = waits(later)
    assert wait.turn_at_ms == NOW_MS + 60_005, "an overdue record is not tried again at once"
    onward = engine.take_turn(later.record(), wait, case.setting.policy, wait.turn_at_ms)
    assert isinstance(onward, engine.Copy)
    assert (onward.target, onward.due_at_ms) == ("delays", NOW_MS)
    over = engine.take_turn(later.record(), wait, case.setting.policy, NOW_MS + OUTAGE_BUDGET_SECONDS * 1000)
    assert isinstance(over, engine.Copy)
    assert (over.target, over.reason) == ("dead-letter", "TargetUnavailable")
    there = replace(case.setting, targets=[("invoices", 4)])
    assert taken(replace(later, setting=there), NOW_MS + 60_005).target == "invoices"


def test_a_record_whose_topic_nobody_has_looked_for_yet_is_looked_at_again_soon() -> None:
    case = replace(with_targets(FRONT, b"invoices"), setting=replace(SETTING, targets=[("invoices", None)]))
    held = engine.take_turn(case.record(), waits(case), case.setting.policy, NOW_MS + 7)
    assert isinstance(held, engine.Wait)
    assert (held.turn_at_ms, held.due_at_ms) == (NOW_MS + 107, NOW_MS)


def test_a_record_whose_topic_is_missing_waits_in_memory_where_no_delay_is_short_enough() -> None:
    setting = Setting(initial(LayoutSpec(delay_seconds=(0, 600), partitions=1)), 3, 9)
    case = with_targets(replace(FRONT, partition=0, setting=setting), b"invoices", invoices=0)
    held = engine.take_turn(case.record(), waits(case), case.setting.policy, NOW_MS + 7)
    assert isinstance(held, engine.Wait)
    assert (held.turn_at_ms, held.due_at_ms) == (NOW_MS + 1007, NOW_MS)


def deliver_at(at_ms: int) -> Header:
    return ("dt-deliver-at", b"%d" % at_ms)


def with_ladder(*, max_seconds: int, base: int) -> Setting:
    spec = LayoutSpec(delay_seconds=(0, 3), partitions=4, ladder_seconds=ladder(max_seconds=max_seconds, base=base))
    return Setting(initial(spec), retry_cap=3, ready_partitions=9)


LADDER = replace(FRONT, setting=with_ladder(max_seconds=64, base=2))


def test_a_due_time_without_a_ladder_is_a_dead_letter_that_keeps_it() -> None:
    for at_ms in (5, NOW_MS + 10_000):
        dead = copied(with_headers(FRONT, deliver_at(at_ms)), "dead-letter")
        assert dead.reason == "NoLadder"
        assert (b"dt-deliver-at", b"%d" % at_ms) in dead.headers


def test_a_due_time_that_is_too_far_ahead_is_a_dead_letter() -> None:
    furthest_ms = NOW_MS + MAX_DELAY_SECONDS * 1000
    copied(with_headers(LADDER, deliver_at(furthest_ms)), "delays")
    for at_ms in (furthest_ms + 1, 2**63 - 1):
        dead = copied(with_headers(LADDER, deliver_at(at_ms)), "dead-letter")
        assert dead.reason == "MaxDelayExceeded"
        why = b"dt-deliver-at must be at most 3600 s ahead (spec.maxDelaySeconds), but it is %d ms since the epoch"
        assert (b"dt-error", why % at_ms) in dead.headers


def test_a_due_time_in_the_past_is_now_and_one_within_a_second_is_waited_out_in_memory() -> None:
    for at_ms, due_at_ms in ((0, NOW_MS), (NOW_MS - 1, NOW_MS), (NOW_MS + 999, NOW_MS + 999)):
        assert waits(with_headers(LADDER, deliver_at(at_ms))).due_at_ms == due_at_ms


def test_a_due_time_decides_before_a_level_and_an_attempt() -> None:
    headers = (deliver_at(NOW_MS + 500), ("dt-delay-level", b"2"), ("dt-attempt", b"2"))
    assert waits(with_headers(LADDER, *headers)).due_at_ms == NOW_MS + 500


def test_a_due_time_is_reached_by_the_longest_delay_that_fits_of_list_and_ladder() -> None:
    delays = LADDER.setting.layout.partition_delays
    for remaining_ms, delay in ((1_000, 1), (3_999, 3), (4_000, 4), (63_999, 32), (1_000_000, 64)):
        assert delays[copied(with_headers(LADDER, deliver_at(NOW_MS + remaining_ms)), "delays").partition] == delay


def test_a_direct_write_may_have_a_due_time() -> None:
    direct = replace(LADDER, topic_letter="d", partition=LADDER.setting.layout.partition_delays.index(4))
    sooner, later = (waits(with_headers(direct, deliver_at(NOW_MS + ms))) for ms in (2_000, 50_000))
    assert (sooner.due_at_ms, sooner.turn_at_ms) == (NOW_MS + 2_000, NOW_MS + 2_000)
    assert (later.due_at_ms, later.turn_at_ms) == (NOW_MS + 50_000, NOW_MS + 4_000)


@pytest.mark.parametrize(
    ("remaining_ms", "partition"),
    [
        (525_000, 11),  # an eighth of the delay is over: the partition of the delay itself
        (480_001, 11),  # the longest delay that fits would take more than eight hops: the next longer delay
        (480_000, 10),
        (60_000, 10),
        (59_999, 9),
        (5_000, 9),  # no delay fits: after 10 s the record is the least late
    ],
)
def test_a_late_hop_takes_the_longest_delay_that_fits_and_if_none_fits_the_shortest(
    remaining_ms: int, partition: int
) -> None:
    late = replace(with_headers(FRONT, ("dt-attempt", b"3")), now_ms=NOW_MS + 600_000 - remaining_ms)
    assert copied(late, "delays").partition == partition


@pytest.mark.parametrize("remaining_ms", [999, -5])
def test_less_than_a_second_is_waited_out_in_memory(remaining_ms: int) -> None:
    waits(replace(with_headers(FRONT, ("dt-attempt", b"3")), now_ms=NOW_MS + 600_000 - remaining_ms))


def test_a_hop_is_released_at_its_due_time_in_the_partition_of_its_root() -> None:
    case = replace(DELAYS, partition=9, appended_at_ms=NOW_MS + 20, headers=hopped(10_000))
    wait = waits(case)
    assert (wait.turn_at_ms, wait.due_at_ms) == (NOW_MS + 10_000, NOW_MS + 10_000)
    assert (taken(case, NOW_MS + 10_000).partition, wait.root) == (4, ROOT.encode())


def test_a_hop_that_is_not_due_when_its_partitions_delay_is_over_hops_on() -> None:
    case = replace(DELAYS, partition=9, headers=hopped(490_000))
    wait = waits(case)
    assert wait.turn_at_ms == NOW_MS + 10_000
    onward = engine.take_turn(case.record(), wait, SETTING.policy, NOW_MS + 10_000)
    assert isinstance(onward, engine.Copy)
    assert (onward.target, onward.partition, onward.due_at_ms) == ("delays", 10, NOW_MS + 490_000)
    assert (b"dt-hops", b"2") in onward.headers


def test_a_direct_write_waits_the_delay_of_its_partition_and_goes_where_its_key_belongs() -> None:
    case = replace(with_headers(DELAYS, ("dt-generation", b"1")), partition=10, key=b"key")
    direct = waits(case)
    assert (direct.due_at_ms, direct.misrouted) == (NOW_MS + 60_000, False)
    assert taken(case, NOW_MS + 60_000).partition == partition_for_key(b"key", 9)


def test_a_record_without_own_headers_in_the_delays_topic_is_misrouted() -> None:
    case = replace(with_headers(DELAYS, ("trace", b"1")), partition=10)
    stray = waits(case)
    assert (stray.misrouted, stray.root) == (True, b"d:10:17:" + TOPIC_ID.encode())
    assert taken(case, NOW_MS + 60_000).partition == 1


def test_a_retired_delay_is_still_served_but_nothing_new_hops_there() -> None:
    layout = evolve(SETTING.layout, replace(FIRST, delay_seconds=(0, 60)))
    retired = Setting(layout, 3, 9)
    direct = replace(with_headers(DELAYS, ("dt-generation", b"1")), setting=retired, partition=9)
    assert waits(direct).due_at_ms == NOW_MS + 10_000
    late = replace(with_headers(FRONT, ("dt-attempt", b"1")), setting=retired, now_ms=NOW_MS + 40_000)
    assert layout.partition_delays[copied(late, "delays").partition] == 60


@given(
    attempt=st.integers(0, 3),
    remaining_ms=st.integers(-1_000_000, 700_000),
    delays=st.lists(st.integers(0, 600), min_size=1, max_size=5).map(tuple),
)
def test_no_hop_goes_to_delay_zero_or_a_retired_one_and_none_changes_the_due_time(
    attempt: int, remaining_ms: int, delays: tuple[int, ...]
) -> None:
    layout = evolve(SETTING.layout, replace(FIRST, delay_seconds=delays))
    due_at_ms = NOW_MS + layout.delay_for_attempt(attempt) * 1000
    case = replace(
        with_headers(FRONT, ("dt-attempt", b"%d" % attempt)),
        setting=Setting(layout, 3, 9),
        now_ms=due_at_ms - remaining_ms,
    )
    found = read(case)
    assert found.due_at_ms == due_at_ms
    if isinstance(found, engine.Copy):
        assert layout.partition_delays[found.partition] in set(delays) - {0}
    else:
        assert remaining_ms < 1000 or due_at_ms == NOW_MS


@given(
    st.lists(
        st.sampled_from(["dt-attempt", "dt-released", "dt-root", "dt-origin", "dt-due-at", "dt-hops"]), max_size=4
    ),
    st.binary(max_size=6),
)
def test_a_released_copy_that_is_sent_back_never_gets_a_lower_attempt(dropped: list[str], forged: bytes) -> None:
    released = copies.release([], attempt=2, root=ROOT, origin=b"f:1:2", due_at_ms=NOW_MS, released_at_ms=NOW_MS)
    again = [(name, value) for name, value in released if name == "dt-released" or name not in dropped]
    assert (b"dt-attempt", b"3") in copied(with_headers(FRONT, *again, ("dt-root", forged)), "delays").headers


@given(st.binary(min_size=1, max_size=40), st.integers(1, 100))
def test_a_key_finds_the_partition_that_java_gives_it(key: bytes, partitions: int) -> None:
    case = replace(DELAYS, setting=Setting(SETTING.layout, 3, partitions), key=key)
    assert taken(case, NOW_MS + 600_000).partition == partition_for_key(key, partitions)


def test_what_is_not_due_is_not_released() -> None:
    case = replace(FRONT, now_ms=NOW_MS - 5)
    wait = waits(case)
    assert isinstance(engine.take_turn(case.record(), wait, SETTING.policy, NOW_MS - 1), engine.Wait)
    assert taken(case, NOW_MS).target == "ready"


@pytest.mark.parametrize(("delays", "partitions"), [([], [0]), ([0, 5], [0])])
def test_a_layout_that_has_no_partition_for_a_delay_is_refused(delays: list[int], partitions: list[int]) -> None:
    with pytest.raises(ValueError, match="must have"):
        engine.Policy(
            delay_seconds=delays,
            ladder_seconds=(),
            partition_delays=partitions,
            retry_cap=0,
            ready_partitions=1,
            max_delay_seconds=0,
            targets=(),
            outage_budget_seconds=0,
        )
