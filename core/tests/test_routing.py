"""Where a record goes: by its attempt, its level, the time that remains, and the cap."""

from delayed_topics_core.headers import Header, OwnHeaders, Root, write_hop, write_release
from delayed_topics_core.layout import LayoutSpec, evolve, initial
from delayed_topics_core.partitioner import murmur2, partition_for_key
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core.routing import DeadLetter, Hop, Policy, Source, Wait, decide_delays, decide_front, hop_on
from hypothesis import given
from hypothesis import strategies as st

LAYOUT = initial(LayoutSpec(delay_seconds=(0, 10, 60, 600), partitions=12))
POLICY = Policy(LAYOUT, retry_cap=3, ready_partitions=9)
T = 1_700_000_000_000


def source(partition: int = 4, appended_at_ms: int = T) -> Source:
    return Source(partition, 17, "topicid", appended_at_ms)


def test_a_first_attempt_with_delay_zero_is_due_at_its_append_time_in_the_same_partition() -> None:
    match decide_front([], source(), POLICY, T - 3):
        case Wait(due_at_ms=due, turn_at_ms=turn, ready_partition=partition):
            assert (due, turn, partition) == (T, T, 4)
        case other:
            raise AssertionError(other)


def test_a_retry_hops_to_the_kind_of_its_attempt() -> None:
    decision = decide_front([("dt-attempt", b"2")], source(), POLICY, T + 5)
    assert isinstance(decision, Hop)
    assert (decision.partition, decision.due_at_ms) == (10, T + 60_000)


def test_a_level_chooses_the_entry_of_the_list_and_above_the_last_the_last() -> None:
    assert [decide_front([("dt-delay-level", b"%d" % n)], source(), POLICY, T).due_at_ms - T for n in (2, 4, 18)] == [  # type: ignore[union-attr]
        10_000,
        600_000,
        600_000,
    ]


def test_an_attempt_above_the_cap_is_a_dead_letter_and_one_at_the_cap_is_not() -> None:
    assert isinstance(decide_front([("dt-attempt", b"3")], source(), POLICY, T), Hop)
    above = decide_front([("dt-attempt", b"4")], source(), POLICY, T)
    assert isinstance(above, DeadLetter)
    assert above.reason is DeadLetterReason.RETRY_CAP_EXCEEDED


def test_what_is_not_supported_yet_is_a_dead_letter_with_that_reason() -> None:
    for header, reason in (
        (("dt-deliver-at", b"5"), DeadLetterReason.DELIVER_AT_UNSUPPORTED),
        (("dt-target", b"elsewhere"), DeadLetterReason.TARGET_UNSUPPORTED),
    ):
        headers: list[Header] = [header]
        decision = decide_front(headers, source(), POLICY, T)
        assert isinstance(decision, DeadLetter)
        assert decision.reason is reason


def test_a_late_hop_takes_the_longest_kind_that_fits_and_if_none_fits_the_shortest() -> None:
    def partition(remaining_ms: int) -> int | None:
        decision = decide_front([("dt-attempt", b"3")], source(), POLICY, T + 600_000 - remaining_ms)
        return decision.partition if isinstance(decision, Hop) else None

    assert partition(599_000) == 11  # less than a second gone: its own kind
    assert partition(598_999) == 10
    assert partition(60_000) == 10
    assert partition(59_999) == 9
    assert partition(5_000) == 9  # none fits: the 10 s kind is the least behind
    assert partition(999) is None  # waited out in memory
    assert partition(-5) is None


def test_a_hop_is_served_at_its_due_time_and_one_not_due_by_then_hops_on() -> None:
    root = Root("f", 4, 17, "topicid")
    headers = write_hop([], OwnHeaders(attempt=1), root=root, origin=b"f:4:17", due_at_ms=T + 10_000)
    wait = decide_delays(headers, None, source(partition=9, appended_at_ms=T + 20), POLICY)
    assert isinstance(wait, Wait)
    assert (wait.turn_at_ms, wait.due_at_ms, wait.ready_partition, wait.root) == (T + 10_000, T + 10_000, 4, root)

    headers = write_hop([], OwnHeaders(attempt=1), root=root, origin=b"f:4:17", due_at_ms=T + 500_000)
    wait = decide_delays(headers, None, source(partition=9, appended_at_ms=T), POLICY)
    assert isinstance(wait, Wait)
    assert wait.turn_at_ms == T + 10_000
    onward = hop_on(wait, POLICY, T + 10_000)
    assert onward is not None
    assert (onward.partition, onward.due_at_ms) == (10, T + 500_000)


def test_a_direct_write_waits_the_delay_of_its_partition_and_a_record_without_headers_is_misrouted() -> None:
    direct = decide_delays([("dt-generation", b"1")], b"key", source(partition=10), POLICY)
    assert isinstance(direct, Wait)
    assert (direct.due_at_ms, direct.misrouted, direct.ready_partition) == (
        T + 60_000,
        False,
        partition_for_key(b"key", 9),
    )
    stray = decide_delays([("trace", b"1")], None, source(partition=10), POLICY)
    assert isinstance(stray, Wait)
    assert (stray.misrouted, stray.ready_partition, stray.root.door) == (True, 10 % 9, "d")


def test_a_retired_kind_is_served_at_its_delay_but_nothing_new_hops_there() -> None:
    policy = Policy(evolve(LAYOUT, LayoutSpec(delay_seconds=(0, 60), partitions=12)), 3, 9)
    served = decide_delays([("dt-generation", b"1")], b"k", source(partition=9), policy)
    assert isinstance(served, Wait)
    assert served.due_at_ms == T + 10_000
    late = decide_front([("dt-attempt", b"1")], source(), policy, T + 40_000)
    assert isinstance(late, Hop)
    assert policy.layout.partition_delays[late.partition] == 60


def test_java_and_we_agree_on_murmur2() -> None:
    # org.apache.kafka.common.utils.UtilsTest.testMurmur2
    for key, expected in {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }.items():
        assert murmur2(key) == expected & 0xFFFFFFFF


@given(
    attempt=st.integers(0, 3),
    remaining_ms=st.integers(-1_000_000, 700_000),
    delays=st.lists(st.integers(0, 600), min_size=1, max_size=5).map(tuple),
)
def test_no_hop_goes_to_delay_zero_or_a_retired_kind_and_none_changes_the_due_time(
    attempt: int, remaining_ms: int, delays: tuple[int, ...]
) -> None:
    policy = Policy(evolve(LAYOUT, LayoutSpec(delay_seconds=delays, partitions=12)), 3, 9)
    due = T + policy.layout.delay_for_attempt(attempt) * 1000
    decision = decide_front([("dt-attempt", b"%d" % attempt)], source(), policy, due - remaining_ms)
    assert not isinstance(decision, DeadLetter)
    assert decision.due_at_ms == due
    if isinstance(decision, Hop):
        assert policy.layout.partition_delays[decision.partition] in set(delays) - {0}
    else:
        assert remaining_ms < 1000 or due == T


@given(
    st.lists(
        st.sampled_from(["dt-attempt", "dt-released", "dt-root", "dt-origin", "dt-due-at", "dt-hops"]), max_size=4
    ),
    st.binary(max_size=6),
)
def test_a_released_copy_sent_back_never_gets_a_lower_attempt(dropped: list[str], forged: bytes) -> None:
    copy = write_release(
        [], OwnHeaders(attempt=2), root=Root("f", 1, 2, "t"), origin=b"f:1:2", due_at_ms=T, released_at_ms=T
    )
    again = [(name, value) for name, value in copy if name == "dt-released" or name not in dropped]
    decision = decide_front([*again, ("dt-root", forged)], source(), POLICY, T)
    assert isinstance(decision, Hop)
    assert decision.own.attempt == 3
