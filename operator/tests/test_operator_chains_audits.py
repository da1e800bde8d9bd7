"""Where an audit window begins: where serving began, or where the last audit of the chain ended."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.carried import Carried
from delayed_topics_core.delay_list import DelayList
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_core.registry import AuditedRecord
from delayed_topics_crds.audit import Window as Asked
from delayed_topics_operator.audits.reconcile.chain import ended
from delayed_topics_operator.audits.reconcile.observation import Waiting
from delayed_topics_operator.audits.targets import CLOCKS_MS
from delayed_topics_operator_testing.frozen import AUDITED, IDS, NAMES, NOW, WITH_CONTROL, freeze_it


def window(*chain: AuditedRecord, since_last: bool = True) -> AuditWindow:
    frozen, link = freeze_it(Asked(since_last=since_last), *chain)
    assert isinstance(frozen, AuditWindow), frozen
    assert link.asked_ms <= {AUDITED.since_ms - CLOCKS_MS}
    return frozen


@pytest.mark.parametrize("since_last", [False, True])
def test_the_first_audit_begins_where_serving_began(since_last: bool) -> None:
    frozen = window(since_last=since_last)
    assert (frozen.from_offsets["orders"], frozen.from_offsets["orders.ready"]) == ((7, 0), (0, 0))
    assert frozen.roots_from_offsets == {}
    assert (frozen.retry_cap, frozen.least_ready_partitions, frozen.ready_partitions) == (5, 1, 2)


def test_the_next_one_begins_where_the_last_one_ended_and_new_partitions_where_they_began() -> None:
    frozen = window(AUDITED)
    assert frozen.from_offsets["orders"] == (40, 0)
    assert frozen.from_offsets["orders.delays"] == (0, 30)
    assert frozen.committed_offsets == {"orders": (50, 50), "orders.delays": (50, 50)}


def test_an_audit_reads_from_when_the_oldest_of_what_was_pending_began() -> None:
    offsets, ends = {"orders": (40,), "orders.delays": (34, 30)}, {**AUDITED.ends, "orders.delays": (36, 35)}
    frozen = window(replace(AUDITED, offsets=offsets, ends=ends))
    assert frozen.roots_from_offsets == {"orders": (33, 0), "orders.delays": (33, 30)}
    assert frozen.from_offsets["orders.ready"] == (32, 0), "from the last end, and all of the new partition"
    assert [frozen.from_offsets[f"orders.{kind}"] for kind in ("dead", "delays")] == [(33, 0), (34, 30)]


def test_an_audit_knows_what_has_come_since_the_last_one() -> None:
    frozen = window(AUDITED)
    assert frozen.new_from_offsets == {"orders.delays": (0, 35), "orders.ready": (32, 0), "orders.dead": (45, 0)}
    assert frozen.unseen == ()
    assert ended(frozen, None).ends == {name: frozen.end_offsets[name] for name in AUDITED.ends}


def test_a_link_knows_what_the_one_before_has_written_for_it_and_other_audits_do_not() -> None:
    written = Carried(folder="orders-audit-0a1b2c3d", sha256="ab")
    before = replace(AUDITED, carried=written)
    assert (window(before).carries, window(before).carried) == (True, written)
    assert AuditWindow.decode(window(before).encode()) == window(before)
    of_everything = window(before, since_last=False)
    assert (of_everything.carries, of_everything.carried) == (False, None)
    assert ended(window(before), None).carried is None, "this link wrote no output, so the next one reads from Kafka"


def test_a_chain_never_goes_back_behind_what_it_has_accounted_for() -> None:
    ahead = replace(AUDITED, offsets={"orders": (55,), "orders.delays": (0, 30)})
    frozen = window(ahead)
    assert frozen.committed_offsets["orders"] == (50, 50), "the group was reset to earlier offsets"
    assert ended(frozen, None).offsets == {"orders": (55, 50), "orders.delays": (50, 50)}


def test_an_audit_of_everything_leaves_the_chain_aside() -> None:
    assert window(AUDITED, since_last=False).from_offsets["orders"] == (7, 0)


def test_a_topic_that_was_made_again_begins_a_chain_of_its_own() -> None:
    before = AuditedRecord(
        topic="orders",
        ids={**IDS, "orders": "former"},
        offsets=AUDITED.offsets,
        since_ms=1,
        ready_partitions=1,
        ends=AUDITED.ends,
    )
    assert window(before).from_offsets["orders"] == (7, 0)


def test_a_producers_open_transaction_is_not_waited_for() -> None:
    frozen, _ = freeze_it(Asked(), stable=55)
    assert isinstance(frozen, AuditWindow), frozen
    assert (frozen.end_offsets["orders"], frozen.end_offsets["orders.ready"]) == ((55, 55), (60, 60))
    behind, _ = freeze_it(Asked(), stable=40)
    assert isinstance(behind, AuditWindow), behind
    assert behind.end_offsets["orders"] == behind.committed_offsets["orders"], "never below the committed offsets"


def test_records_behind_a_transaction_that_stays_open_are_told() -> None:
    """No worker reads them, so no offset of the window shows them. In partition 0, a record of the last ten minutes is at offset 33, and
    partition 1 has none. The window once said nothing of them."""
    long_ago = NOW - timedelta(minutes=10)
    for stable, held in ((60, None), (55, "1"), (33, "1"), (32, "0-1")):
        frozen, link = freeze_it(Asked(), stable=stable)
        assert isinstance(frozen, AuditWindow), frozen
        said = [sentence.split(" behind ")[0] for sentence in frozen.unserved]
        assert said == ([f"topic orders has records in partitions {held}"] if held else []), stable
        assert link.asked_ms == ({int(long_ago.timestamp() * 1000)} if held else set())
    of_yesterday = Asked(to=NOW - timedelta(days=1))
    _, link = freeze_it(of_yesterday, stable=55)
    assert of_yesterday.to is not None
    assert link.asked_ms == {int(of_yesterday.to.timestamp() * 1000)}, "what came after the window does not matter"


def test_ends_are_looked_up_such_that_no_copy_is_of_a_record_above_them() -> None:
    _, link = freeze_it(Asked())
    order = [topic for topic, which in link.looked_up if which != "earliest"]
    assert set(order[:2]) == {"orders.ready", "orders.dead"}
    assert order[2:4] == ["orders.delays", "orders"]


def test_partitions_that_are_added_meanwhile_are_waited_for() -> None:
    starts = {"orders": (7, 0, 0), "orders.delays": (0, 0)}
    frozen, _ = freeze_it(Asked(), meanwhile=lambda now: replace(now.topics["orders"], start_offsets=starts))
    assert isinstance(frozen, Waiting), frozen
    assert "changed while the operator read the offsets" in frozen.message


def test_windows_meet_where_one_ends_and_the_other_begins() -> None:
    first = window(AUDITED)
    link = ended(first, pending_since_ms=AUDITED.since_ms)
    assert link.offsets == first.committed_offsets
    assert window(link).from_offsets["orders"] == first.committed_offsets["orders"]
    assert ended(first, None).since_ms == first.frozen_at_ms


def test_a_window_between_two_times_ends_before_the_second_and_reads_from_where_its_attempts_began() -> None:
    begin, end = NOW - timedelta(hours=2), NOW - timedelta(hours=1)
    frozen, link = freeze_it(Asked(from_=begin, to=end))
    assert isinstance(frozen, AuditWindow), frozen
    begin_ms, end_ms = (int(at.timestamp() * 1000) for at in (begin, end))
    assert link.asked_ms == {begin_ms, end_ms, begin_ms - 10_000 - CLOCKS_MS}
    assert frozen.from_offsets["orders"] == (33, 60), "partition 1 has no record that new, so its end counts"
    assert frozen.to_offsets == {"orders": (33, 60), "orders.delays": (33, 60)}
    assert frozen.committed_offsets == {"orders": (33, 50), "orders.delays": (33, 50)}
    assert frozen.roots_from_offsets == {"orders": (33, 60), "orders.delays": (33, 60)}


WITH_LADDER = initial(LayoutSpec(delay_seconds=(0, 10), partitions=2, ladder_seconds=(1, 60)))
FORMER = DelayList(delay_seconds=(0, 10), retry_cap=3, from_ms=0, max_delay_seconds=7200)
EDITS = ({"lists": (FORMER,)}, {"highest_retry_cap": 9}, {"ready_topics": (AllowedTopic("invoices", 1),)})


@pytest.mark.parametrize("edited", EDITS)
def test_an_edit_that_records_may_have_followed_meanwhile_is_waited_for(edited: dict[str, Any]) -> None:
    frozen, _ = freeze_it(Asked(), meanwhile=lambda now: replace(now.layouts["orders"], **edited))
    assert isinstance(frozen, Waiting), frozen


@pytest.mark.parametrize(
    ("declared", "longest_seconds"),
    [
        ({"layout": WITH_LADDER, "max_delay_seconds": 3600}, 3600),
        ({"layout": WITH_LADDER, "max_delay_seconds": 3600, "lists": (FORMER,)}, 7200),
        ({"max_delay_seconds": 3600, "lists": (replace(FORMER, max_delay_seconds=None),)}, 10),
    ],
    ids=["ahead", "ahead once", "no ladder"],
)
def test_a_window_between_two_times_reads_from_where_due_times_that_were_far_ahead_began(
    declared: dict[str, Any], longest_seconds: int
) -> None:
    begin = NOW - timedelta(days=1)
    _, link = freeze_it(Asked(from_=begin), **declared)
    begin_ms = int(begin.timestamp() * 1000)
    assert link.asked_ms == {begin_ms, begin_ms - longest_seconds * 1000 - CLOCKS_MS}


def unseen(beginning: int) -> tuple[str, ...]:
    frozen, _ = freeze_it(Asked(from_=NOW - timedelta(hours=1)), beginning=beginning)
    assert isinstance(frozen, AuditWindow), frozen
    return frozen.unseen


def test_a_window_says_what_retention_may_have_removed_of_it() -> None:
    """Kafka looks a time up among the records that are left, so the answer does not show that earlier ones were removed."""
    assert unseen(beginning=32) == (), "a record that is left is older than the window, so none is missing"
    assert [sentence.split(". ")[0] for sentence in unseen(beginning=33)] == [
        f"retention has removed records of {name}, partitions 0" for name in NAMES.topics
    ]
    assert (
        "Partition 0 begins at offset 33. It is unknown whether a removed record came after" in unseen(beginning=33)[0]
    )


def test_a_window_says_what_retention_removes_while_it_is_frozen() -> None:
    """Kafka once removed records before it looked the time up, and after the operator had asked what was left."""
    frozen, _ = freeze_it(Asked(from_=NOW - timedelta(hours=1)), removed_meanwhile=33)
    assert isinstance(frozen, AuditWindow), frozen
    assert len(frozen.unseen) == len(NAMES.topics)
    link, _ = freeze_it(Asked(since_last=True), AUDITED, removed_meanwhile=33)
    assert isinstance(link, AuditWindow), link
    assert len(link.perhaps_unseen) == 2


def test_a_window_of_which_nothing_is_left_says_so() -> None:
    assert len(unseen(beginning=60)) == len(NAMES.topics)


def test_a_link_says_what_retention_may_have_removed_of_uncommitted_outcomes() -> None:
    frozen, _ = freeze_it(Asked(since_last=True), AUDITED, beginning=33)
    assert isinstance(frozen, AuditWindow), frozen
    assert [sentence.split(", ")[0] for sentence in frozen.perhaps_unseen] == [
        f"retention has removed records of {name}" for name in (NAMES.ready, NAMES.dead_letter)
    ]
    assert frozen.from_offsets[NAMES.ready][0] == 32, "below the begin of the topic, which the audit reports"


def test_a_window_without_a_begin_begins_where_serving_did() -> None:
    frozen, _ = freeze_it(Asked(to=NOW))
    assert isinstance(frozen, AuditWindow), frozen
    assert frozen.from_offsets["orders"] == (7, 0)


def test_a_window_that_ends_in_the_future_is_waited_for() -> None:
    frozen, _ = freeze_it(Asked(to=NOW + timedelta(minutes=5)))
    assert isinstance(frozen, Waiting), frozen
    assert "2026-01-02 00:05:00 UTC" in frozen.message


INVOICES, SHIPMENTS = AllowedTopic("invoices", 5_000_000), AllowedTopic("shipments", 6_000_000, 8_000_000)


def of_ready_topics(asked: Asked, *chain: AuditedRecord, missing: Sequence[str] = ()) -> AuditWindow:
    frozen, _ = freeze_it(asked, *chain, allowed=(INVOICES, SHIPMENTS, INVOICES), missing=missing)
    assert isinstance(frozen, AuditWindow), frozen
    return frozen


def test_other_ready_topics_are_read_from_when_they_were_allowed_and_former_ones_too() -> None:
    frozen = of_ready_topics(Asked())
    assert frozen.targets == ("invoices", "shipments")
    assert (frozen.from_offsets["invoices"], frozen.end_offsets["shipments"]) == ((33, 60), (60, 60))
    assert frozen.topic_ids["invoices"] == "id-invoices"
    assert frozen.perhaps_unseen == ()


@pytest.mark.parametrize(
    ("asked", "since"),
    [
        (Asked(), "the topic was allowed"),
        (Asked(since_last=True), "the topic was allowed"),
        (Asked(to=NOW), "the topic was allowed"),
        (Asked(from_=NOW - timedelta(hours=1), to=NOW), "2026-01-01 23:00:00 UTC"),
    ],
    ids=["everything", "first link", "to", "from and to"],
)
def test_what_retention_may_have_removed_of_another_ready_topic_may_hide_a_loss(asked: Asked, since: str) -> None:
    def perhaps(beginning: int) -> tuple[str, ...]:
        frozen, _ = freeze_it(asked, allowed=(INVOICES, SHIPMENTS), beginning=beginning)
        assert isinstance(frozen, AuditWindow), frozen
        assert not any("invoices" in sentence for sentence in frozen.unseen), "it can only hide losses"
        return frozen.perhaps_unseen

    assert perhaps(0) == perhaps(32) == (), "nothing was removed, or an older record is left"
    assert sorted(perhaps(33)) == [
        f"retention has removed records of {name}, partitions 0. Partition 0 begins at offset 33. "
        f"It is unknown whether a removed record came after {since}"
        for name in ("invoices", "shipments")
    ]


def test_a_chain_knows_what_has_come_there_since_the_last_one_and_begins_anew_in_one_that_was_made_again() -> None:
    last = ended(of_ready_topics(Asked(since_last=True)), AUDITED.since_ms)
    assert last.ends["invoices"] == (60, 60)
    assert of_ready_topics(Asked(since_last=True), last).new_from_offsets["invoices"] == (60, 60)
    before = replace(last, ids={**last.ids, "invoices": "another"})
    assert of_ready_topics(Asked(since_last=True), before).new_from_offsets["invoices"] == (0, 0)
    without = replace(last, ends={name: end for name, end in last.ends.items() if name != "invoices"})
    assert "invoices" not in of_ready_topics(Asked(since_last=True), without).new_from_offsets


def test_another_ready_topic_that_was_made_again_may_hide_a_loss_and_audits_of_everything_say_so_ever_after() -> None:
    """A topic that was missing at one link and exists at the next was created again, too."""
    sentence = "topic invoices was deleted and created again. Records may have been released into the former one"
    last = ended(of_ready_topics(Asked(since_last=True)), AUDITED.since_ms)
    missing = of_ready_topics(Asked(since_last=True), last, missing=["invoices"])
    link = of_ready_topics(Asked(since_last=True), replace(last, ids={**last.ids, "invoices": "another"}))
    assert (of_ready_topics(Asked(), last).perhaps_unseen, link.perhaps_unseen) == ((), (sentence,))
    for after in (ended(missing, None), ended(AuditWindow.decode(link.encode()), None)):
        assert of_ready_topics(Asked(since_last=True), after).perhaps_unseen == (), "that link has accounted for it"
        assert of_ready_topics(Asked(), after).perhaps_unseen == (sentence,)


@pytest.mark.parametrize("asked", [Asked(since_last=True), Asked(from_=NOW - timedelta(hours=1))], ids=str)
def test_ready_topics_that_are_not_noted_any_more_may_hide_a_loss(asked: Asked) -> None:
    def unrecorded(until_ms: int) -> int:
        frozen, _ = freeze_it(asked, AUDITED, ready_topics_forgotten_ms=until_ms)
        assert isinstance(frozen, AuditWindow), frozen
        return sum("there were too many to note them all" in sentence for sentence in frozen.perhaps_unseen)

    begin_ms = int(asked.from_.timestamp() * 1000) if asked.from_ else AUDITED.since_ms
    assert (unrecorded(0), unrecorded(begin_ms - CLOCKS_MS), unrecorded(begin_ms - CLOCKS_MS + 1)) == (0, 0, 1)


def test_another_ready_topic_that_is_missing_may_hide_a_loss_and_the_others_are_read() -> None:
    frozen = of_ready_topics(Asked(), missing=["invoices"])
    assert frozen.targets == ("shipments",)
    assert frozen.perhaps_unseen == ("records may have been released into topic invoices, which does not exist",)


def control_id(**recorded: Any) -> str | None:
    frozen, _ = freeze_it(Asked(), **recorded)
    assert isinstance(frozen, AuditWindow), frozen
    return frozen.control_id


def test_an_audit_knows_whether_records_could_ever_be_cancelled_and_by_which_topic() -> None:
    assert control_id() == ""
    assert control_id(control=True, ids=WITH_CONTROL) == "id-control"
    assert control_id(control=False, ids=WITH_CONTROL) == "id-control", "spec.control was removed, and the topic stays"
    assert control_id(control=True, ids=WITH_CONTROL, made_again=[NAMES.control]) is None
    assert control_id(control=True) is None, "the registry does not record its id"


def test_a_control_topic_that_came_while_the_offsets_were_looked_up_counts() -> None:
    assert control_id(meanwhile=lambda now: replace(now.topics["orders"], ids=WITH_CONTROL)) == "id-control"
