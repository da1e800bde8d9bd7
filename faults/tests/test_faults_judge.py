"""The judge finds one lost, early, doubled or swapped record among many, and no flaw in a clean run."""

from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_faults.copies import Copy, read_line
from delayed_topics_faults.judge import MAX_DOUBLED, Crash, Seen, Terms, Verdict, judge, longest_silence_ms

TERMS = Terms(front_id="F", delays_id="D", lane_delays=(0, 1), ready_partitions=2, healed_at_ms=0, late_ms=5000)
COUNT = 200
T0 = 1_700_000_000_000


def copy(partition: int, offset: int, at_ms: int, **own: str) -> Copy:
    headers = {name.replace("_", "-"): text for name, text in own.items()}
    return Copy(partition, offset, at_ms, True, "k", "v", "f", headers)


def clean() -> tuple[list[Copy], list[Copy], list[Copy], list[Copy]]:
    """Half of the records come out at once, half after a hop; one is a dead letter."""
    front: list[Copy] = []
    delays: list[Copy] = []
    ready: list[Copy] = []
    dead: list[Copy] = []
    for n in range(COUNT):
        partition, offset, at_ms = n % 2, n // 2, T0 + n
        root, origin = f"f:{partition}:{offset}:F", f"f:{partition}:{offset}"
        if n == 100:
            front.append(copy(partition, offset, at_ms, faults_expect="dead:HeaderTwice"))
            dead.append(copy(0, 0, at_ms, dt_root=root, dt_origin=origin, dt_reason="HeaderTwice"))
        elif n // 2 % 2:
            front.append(copy(partition, offset, at_ms, faults_expect="ready:1000"))
            hop = (1, len(delays))
            delays.append(copy(*hop, at_ms + 1, dt_root=root, dt_origin=origin, dt_hops="1"))
            made_from = f"d:{hop[0]}:{hop[1]}"
            ready.append(
                copy(partition, 1000 + n, at_ms + 1000, dt_root=root, dt_origin=made_from, dt_hops="1", dt_attempt="0")
            )
        else:
            front.append(copy(partition, offset, at_ms, faults_expect="ready:0"))
            ready.append(copy(partition, n, at_ms, dt_root=root, dt_origin=origin, dt_hops="0", dt_attempt="0"))
    return front, delays, ready, dead


def verdict(terms: Terms = TERMS, **changed: list[Copy]) -> Verdict:
    front, delays, ready, dead = clean()
    return judge(Seen(**{"front": front, "delays": delays, "ready": ready, "dead": dead, **changed}), terms)


def test_a_clean_run_has_no_broken_promise() -> None:
    found = verdict()

    assert not found.broken
    assert (found.records, found.dead_lettered, found.doubled, found.order_exempt) == (COUNT, 1, 0, 0)


def test_one_lost_record_is_found() -> None:
    _, _, ready, _ = clean()
    lost = ready.pop(77)

    found = verdict(ready=ready)

    assert found.lost == 1
    assert lost.own["dt-root"] in found.broken["L"][0]


def test_what_the_fault_itself_removed_is_not_lost() -> None:
    _, _, ready, _ = clean()
    gone = ready.pop(77).own["dt-root"]

    assert not verdict(replace(TERMS, removed=frozenset({gone})), ready=ready).broken


def test_one_early_record_is_found() -> None:
    _, _, ready, _ = clean()
    index = next(i for i, c in enumerate(ready) if c.own["dt-hops"] == "1")
    ready[index] = ready[index]._replace(at_ms=ready[index].at_ms - 1)

    assert verdict(ready=ready).early == 1
    assert verdict(replace(TERMS, skew_ms=1), ready=ready).early == 0


def test_one_late_record_is_found() -> None:
    _, _, ready, _ = clean()
    ready[-1] = ready[-1]._replace(at_ms=ready[-1].at_ms + 5001)

    found = verdict(ready=ready)

    assert (found.late, found.most_late_ms) == (1, 5001)
    assert not verdict(replace(TERMS, healed_at_ms=T0 + 10_000), ready=ready).broken, (
        "a record is not late before the end of the fault"
    )


def test_one_doubled_record_is_found_and_is_no_breach_after_a_crash() -> None:
    _, _, ready, _ = clean()
    ready.append(ready[40]._replace(offset=9000, at_ms=ready[40].at_ms + 300))
    crash_ms = ready[40].at_ms + 50

    assert (verdict(ready=ready).doubled, verdict(ready=ready).doubled_beyond) == (1, 1)
    after_crash = verdict(replace(TERMS, crashes=(Crash(at_ms=crash_ms),)), ready=ready)
    assert not after_crash.broken
    assert after_crash.most_back_ms == 50


def test_more_doubles_of_a_partition_than_a_crash_may_repeat_are_found() -> None:
    _, _, ready, _ = clean()
    again = [ready[0]._replace(offset=9000 + n) for n in range(MAX_DOUBLED + 1)]

    found = verdict(replace(TERMS, crashes=(Crash(at_ms=T0 + 500),)), ready=[*ready, *again])

    assert found.doubled_beyond == 1


@pytest.mark.parametrize(
    ("crashes", "allowed"),
    [
        ([Crash(at_ms=T0 + 800)], True),
        ([Crash(at_ms=T0 + 3300)], False),
        ([Crash(at_ms=T0 + 3300, since_ms=T0 + 800)], True),
        ([Crash(at_ms=T0 + 800, partitions=frozenset({"f:0", "d:1"}))], True),
        ([Crash(at_ms=T0 + 800, partitions=frozenset({"f:1"}))], False),
        ([Crash(at_ms=T0 - 2000), Crash(at_ms=T0 + 5000)], False),
    ],
    ids=[
        "right before the crash",
        "three seconds before it, while commits are answered at once",
        "three seconds before it, while Kafka took no commits",
        "of a partition of the worker that died",
        "of a partition of another worker",
        "between two crashes",
    ],
)
def test_a_crash_may_repeat_only_what_was_not_committed_yet(crashes: list[Crash], *, allowed: bool) -> None:
    _, _, ready, _ = clean()
    of_partition = [c for c in ready if c.own["dt-origin"].startswith("f:0:")]
    again = [c._replace(offset=c.offset + 9000, at_ms=c.at_ms + 4000) for c in of_partition]

    found = verdict(replace(TERMS, crashes=crashes), ready=[*ready, *again])

    assert found.doubled == len(again)
    assert (found.doubled_beyond, set(found.broken)) == ((0, set()) if allowed else (len(again), {"D"}))


def test_crashes_that_may_have_repeated_the_same_copies_may_each_repeat_that_many() -> None:
    _, _, ready, _ = clean()
    again = [ready[0]._replace(offset=9000 + n) for n in range(30)]
    crashes = [Crash(at_ms=T0 + 500), Crash(at_ms=T0 + 900), Crash(at_ms=T0 + 9000)]

    found = verdict(replace(TERMS, crashes=crashes, most_doubled=10), ready=[*ready, *again])

    assert found.doubled_beyond == 10


def test_a_record_that_came_twice_by_hops_that_nobody_saw_is_found() -> None:
    _, _, ready, _ = clean()
    released = next(c for c in ready if c.own["dt-hops"] == "1")
    again = released._replace(offset=9000, own={**released.own, "dt-origin": "d:0:900"})

    found = verdict(replace(TERMS, crashes=(Crash(at_ms=released.at_ms),)), ready=[*ready, again])

    assert (found.doubled, found.doubled_beyond) == (1, 1)


def test_a_record_that_was_released_and_then_hopped_counts_from_its_release() -> None:
    """For example, a record that gets a later due time just after its worker died. Its first hop was made long before."""
    _, delays, ready, _ = clean()
    released = next(c for c in ready if c.own["dt-hops"] == "1")
    delays.append(released._replace(partition=0, offset=900, at_ms=released.at_ms + 300))
    again = released._replace(offset=9000, at_ms=released.at_ms + 5000, own={**released.own, "dt-origin": "d:0:900"})

    found = verdict(replace(TERMS, crashes=(Crash(at_ms=released.at_ms + 40),)), delays=delays, ready=[*ready, again])

    assert not found.broken
    assert (found.doubled, found.most_back_ms) == (1, 40)


def test_a_doubled_hop_counts_for_the_crash_that_repeated_the_hop() -> None:
    _, delays, ready, _ = clean()
    released = next(c for c in ready if c.own["dt-hops"] == "1")
    root = released.own["dt-root"]
    hop = next(c for c in delays if c.own["dt-root"] == root)
    delays.append(hop._replace(offset=900, at_ms=hop.at_ms + 300))
    ready.append(
        released._replace(offset=9000, at_ms=released.at_ms + 300, own={**released.own, "dt-origin": "d:1:900"})
    )

    found = verdict(replace(TERMS, crashes=(Crash(at_ms=hop.at_ms + 20),)), delays=delays, ready=ready)

    assert not found.broken
    assert (found.doubled, found.most_back_ms) == (1, 20)


@pytest.mark.parametrize("hops", ["0", "1"])
def test_two_swapped_records_are_found(hops: str) -> None:
    _, _, ready, _ = clean()
    first, second = [i for i, c in enumerate(ready) if c.own["dt-hops"] == hops and c.partition == 0][10:12]
    ready[first], ready[second] = (
        ready[first]._replace(offset=ready[second].offset),
        ready[second]._replace(offset=ready[first].offset),
    )

    assert verdict(ready=ready).out_of_order == 1


def test_another_way_is_exempt_from_order_only_for_what_was_read_late() -> None:
    _, delays, ready, _ = clean()
    index = next(i for i, c in enumerate(ready) if c.own["dt-hops"] == "1")
    root = ready[index].own["dt-root"]
    straight = ready[index]._replace(
        offset=5000, own={**ready[index].own, "dt-hops": "0", "dt-origin": root.removesuffix(":F")}
    )
    without_hop = [c for c in delays if c.own["dt-root"] != root]

    def moved(at_ms: int) -> Verdict:
        return verdict(delays=without_hop, ready=[*ready[:index], straight._replace(at_ms=at_ms), *ready[index + 1 :]])

    late = moved(straight.at_ms)
    assert (late.out_of_order, late.order_exempt) == (0, 1)
    assert moved(straight.at_ms - 1).out_of_order == 1


@pytest.mark.parametrize("part", ["key", "value", "foreign"])
def test_one_changed_record_is_found(part: str) -> None:
    _, _, ready, _ = clean()
    other: Any = {part: "x"}
    ready[5] = ready[5]._replace(**other)

    assert verdict(ready=ready).changed == 1


def test_a_record_in_the_wrong_ready_partition_is_found() -> None:
    _, _, ready, _ = clean()
    ready[5] = ready[5]._replace(partition=1 - ready[5].partition, offset=9000)

    assert "S" in verdict(ready=ready).broken


def test_a_dead_letter_for_another_reason_is_found() -> None:
    _, _, _, dead = clean()
    dead[0] = dead[0]._replace(own={**dead[0].own, "dt-reason": "TooLarge"})

    assert "L" in verdict(dead=dead).broken


def test_a_line_of_the_reader() -> None:
    line = "1\t7\t1700\tL\tnull\tab12:3\t0\tdt-root=f:1:2:x\tdt-error=a%20b\tdt-id"

    found = read_line(line)

    assert found.place == (1, 7)
    assert (found.log_append, found.key, found.value) == (True, "null", "ab12:3")
    assert found.own == {"dt-root": "f:1:2:x", "dt-error": "a b", "dt-id": ""}


def test_a_due_time_of_a_records_own_is_held_against_that_and_has_no_order() -> None:
    front, _, ready, _ = clean()
    at = next(i for i, c in enumerate(front) if c.own["faults-expect"] == "ready:1000")
    root = f"f:{front[at].partition}:{front[at].offset}:F"
    front[at] = copy(front[at].partition, front[at].offset, front[at].at_ms, faults_expect=f"at:{T0 + 1500}")
    index = next(i for i, c in enumerate(ready) if c.own["dt-root"] == root)
    for at_ms, early, late in ((T0 + 1499, 1, 0), (T0 + 1500, 0, 0), (T0 + 6501, 0, 1)):
        ready[index] = ready[index]._replace(at_ms=at_ms, offset=9999)
        found = verdict(front=front, ready=ready)
        assert (found.early, found.late, found.out_of_order) == (early, late, 0)


@pytest.mark.parametrize(
    ("reason", "doubled", "broken"),
    [("Cancelled", 0, set()), ("TooLarge", 0, {"L"}), ("", 0, set()), ("Cancelled, and released", 1, {"D"})],
)
def test_a_record_that_is_cancelled_when_it_is_due_has_one_of_two_ends(
    reason: str, doubled: int, broken: set[str]
) -> None:
    """`reason`: the reason of the dead letter, if the record has one."""
    front, _, ready, dead = clean()
    front[0] = front[0]._replace(own={"faults-expect": "race:0"})
    if reason:
        released = ready[0]
        dead.append(copy(0, 1, T0, dt_root="f:0:0:F", dt_origin="f:0:0", dt_reason=reason.partition(",")[0]))
        if "released" not in reason:
            ready.remove(released)
    found = verdict(front=front, ready=ready, dead=dead)
    assert (found.doubled, set(found.broken)) == (doubled, broken)


@pytest.mark.parametrize(
    ("first_sent_at_ms", "sent_at_ms", "hop_at_ms", "silence_ms"),
    [
        (T0, T0 + 10, None, 6990),
        (T0, T0 + 6500, None, 500),
        (T0, T0 + 10, T0 + 6000, 1000),
        (T0 - 7000, T0 + 6500, None, 7000),
    ],
    ids=[
        "it waited since the copy before",
        "it was sent long after that",
        "a hop came between",
        "it was the partition's first copy",
    ],
)
def test_a_silence_counts_while_a_copy_waits_for_kafka(
    first_sent_at_ms: int, sent_at_ms: int, hop_at_ms: int | None, silence_ms: int
) -> None:
    def ready(offset: int, at_ms: int, sent_at_ms: int, origin: str) -> Copy:
        return copy(0, offset, at_ms, dt_origin=origin, dt_released=f"0:{sent_at_ms}")

    copies = [
        ready(0, T0, first_sent_at_ms, "f:0:0"),
        ready(1, T0 + 5000, T0 + 5000, "f:1:0"),  # a copy from another partition ends no silence of this one
        ready(2, T0 + 7000, sent_at_ms, "f:0:1"),
    ]
    hops = [copy(1, 0, hop_at_ms, dt_origin="f:0:2")] if hop_at_ms else []
    assert longest_silence_ms(Seen([], hops, copies, [])) == silence_ms
