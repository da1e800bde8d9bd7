"""How counts become a verdict and a message."""

import json
from dataclasses import replace

import pytest
from delayed_topics_audit.account import MAX_RESULT_BYTES, BlindSpot, Counted, PartitionAccount, judge, unseen
from delayed_topics_audit.flaws import BROKEN_PROMISES
from hypothesis import example, given
from hypothesis import strategies as st

FRONT = PartitionAccount(
    topic_letter="f", partition=3, produced=100, released=60, hopped=30, dead_lettered=4, cancelled=0, pending=6, lost=0
)
CLEAN = Counted(topic="orders", partitions=[FRONT], max_late_ms=7)
LOST = replace(CLEAN, partitions=[replace(FRONT, released=59, lost=1)], offenders={"lost": ["f:3:17"]})
CUT = BlindSpot(sentence="retention has removed records of orders", hides_outcomes=True)


def test_a_clean_run_is_verified_and_says_what_it_counted() -> None:
    result = judge(CLEAN)
    assert result.verdict == "Verified"
    assert (
        "100 records in orders and orders.delays: 60 released, 30 hopped, 4 dead-lettered, 6 pending" in result.message
    )


def test_what_was_cancelled_is_a_term_of_the_law_and_no_broken_promise() -> None:
    result = judge(replace(CLEAN, partitions=[replace(FRONT, dead_lettered=1, cancelled=3)]))
    assert (result.verdict, result.account and result.account.cancelled) == ("Verified", 3)
    assert "30 hopped, 1 dead-lettered, 3 cancelled, 6 pending" in result.message


def test_a_window_that_ends_before_now_says_that_it_does_not_follow_later_hops() -> None:
    """An audit of one day once reported `Verified`, and its message gave no hint that a record could be lost after a later hop."""
    sentence = "hops that workers made at or after the end of the window belong to a later window"
    of_a_day = replace(CLEAN, ends_before_now=True)
    assert sentence in judge(of_a_day).message.lower()
    assert sentence not in judge(CLEAN).message.lower()
    without_hops = replace(of_a_day, partitions=[replace(FRONT, released=90, hopped=0)])
    assert sentence not in judge(without_hops).message.lower()


def test_an_empty_topic_is_verified() -> None:
    assert judge(Counted(topic="orders", partitions=[])).verdict == "Verified"


def test_a_loss_violates_and_is_named() -> None:
    result = judge(LOST)
    assert result.verdict == "Violated"
    assert result.message.startswith("1 record was lost (f:3:17): the offset is committed")
    assert json.loads(result.encode())["offenders"] == {"lost": ["f:3:17"]}


def test_a_double_that_a_crash_explains_is_told_and_any_other_violates() -> None:
    within = judge(replace(CLEAN, flaws={"doubled": 2}))
    assert within.verdict == "Verified"
    assert "2 copies were doubled within the promise" in within.message
    beyond = judge(replace(CLEAN, flaws={"doubled": 2, "doubled_beyond_promise": 1}))
    assert beyond.verdict == "Violated"
    assert beyond.message.startswith("1 copy was doubled: the same root and attempt came out before")


def test_doubles_of_which_nobody_knows_the_reason_make_it_unknown() -> None:
    for unsure in ("unexplained", "untold", "set_back", "perhaps_too_many"):
        result = judge(replace(CLEAN, flaws={"doubled": 4, unsure: 4}))
        assert (result.verdict, "within the promise because" in result.message) == ("Unknown", False)
        assert result.message.startswith("4 copies were doubled")


def test_an_unknown_verdict_that_a_later_audit_may_know_better_leaves_the_chain_where_it_was() -> None:
    """The next link once began behind these records, so that no audit ever judged them."""
    unclear = replace(CLEAN, flaws={"doubled": 4, "untold": 4})
    assert (judge(unclear).unfinished, judge(replace(unclear, known_later=True)).unfinished) == (False, True)
    assert '"unfinished": true' in judge(replace(unclear, known_later=True)).encode()
    violated = judge(replace(LOST, flaws={"lost": 1, "doubled": 4, "untold": 4}, known_later=True))
    assert (violated.verdict, violated.unfinished) == ("Violated", False), (
        "or the next link would report the loss again"
    )


def test_what_has_been_due_for_minutes_makes_no_clean_audit() -> None:
    overdue = replace(CLEAN, flaws={"overdue": 4}, offenders={"overdue": ["f:3:94"]}, overdue_ms=600_000)
    shortly, long = judge(overdue), judge(replace(overdue, overdue_ms=259_200_000))
    assert (shortly.verdict, long.verdict) == ("Verified", "Unknown")
    assert "6 pending, of which 4 are overdue" in shortly.message
    assert (
        "4 records are overdue (f:3:94) by up to 259,200 s. What is overdue is due and was not released" in long.message
    )
    assert long.account is not None
    assert long.account.overdue == 4


@pytest.mark.parametrize("flaw", sorted({check.name for check in BROKEN_PROMISES} - {"lost"}))
def test_whatever_is_not_as_promised_violates(flaw: str) -> None:
    """The flaw `lost` is excluded, because it follows from the counts of a partition."""
    result = judge(replace(CLEAN, flaws={"doubled": 1, flaw: 1}))
    assert (result.verdict, result.message[:2]) == ("Violated", "1 ")


def test_late_records_are_told_and_break_no_promise() -> None:
    result = judge(replace(CLEAN, flaws={"late": 5}, max_late_ms=65_000))
    assert result.verdict == "Verified"
    assert "5 late, the latest by 65,000 ms" in result.message


def test_a_partition_that_does_not_add_up_violates_and_is_named() -> None:
    result = judge(replace(CLEAN, partitions=[FRONT, replace(FRONT, topic_letter="d", partition=1, released=61)]))
    assert result.verdict == "Violated"
    assert "partition orders.delays-1 doesn't add up: 100 produced, but 101 accounted for" in result.message


def test_what_hides_outcomes_makes_a_loss_uncertain() -> None:
    result = judge(LOST, [CUT])
    assert result.verdict == "Unknown"
    assert f". {CUT.sentence.capitalize()}. " in result.message


def test_what_is_hidden_does_not_excuse_what_is_seen() -> None:
    assert judge(replace(CLEAN, flaws={"doubled": 1, "doubled_beyond_promise": 1}), [CUT]).verdict == "Violated"


def test_what_may_hide_a_loss_matters_only_if_something_seems_lost() -> None:
    perhaps = replace(CUT, only_losses=True)
    assert judge(CLEAN, [perhaps]).verdict == "Verified"
    assert judge(LOST, [perhaps]).verdict == "Unknown"


def test_what_may_hide_the_first_of_two_copies_is_told_even_if_nothing_seems_lost() -> None:
    """Without a first copy that was removed, the second is no double, and the first may have been early. The message once said nothing."""
    message = judge(CLEAN, [replace(CUT, only_losses=True)]).message
    assert f"{CUT.sentence.capitalize()}. No record is missing, but if one had come out there before" in message
    assert "come out there before" not in judge(LOST, [replace(CUT, only_losses=True)]).message
    assert "come out there before" not in judge(CLEAN).message


def test_more_than_a_few_attempts_without_their_beginning_make_it_unknown() -> None:
    assert judge(replace(CLEAN, ended=5_000, unread_roots=5)).verdict == "Verified"
    result = judge(replace(CLEAN, ended=5_000, unread_roots=6))
    assert result.verdict == "Unknown"
    assert "of 5,000 attempts that ended, 6 can't be judged" in result.message


def test_a_foreign_writer_makes_it_unknown_but_hides_no_loss() -> None:
    foreign = {"foreign": 1}
    assert judge(replace(CLEAN, flaws=foreign)).verdict == "Unknown"
    assert judge(replace(LOST, flaws=foreign)).verdict == "Violated"


def test_releases_without_the_brokers_time_make_it_unknown() -> None:
    result = judge(replace(CLEAN, untimed={"orders.ready": 3}))
    assert result.verdict == "Unknown"
    assert result.message.startswith("topic orders.ready has 3 records without the broker's time")
    assert "LogAppendTime" in result.message


def test_a_window_that_can_not_be_read_is_unknown() -> None:
    assert (unseen([CUT]).verdict, unseen([CUT]).message) == ("Unknown", CUT.sentence)


@example(["\U0001f4a3" * 300] * 10, [BlindSpot(sentence="\U0001f4a3" * 3000, hides_outcomes=True)])
@given(
    st.lists(st.text(min_size=1, max_size=300), max_size=10),
    st.lists(st.text(max_size=3000).map(lambda s: BlindSpot(sentence=s, hides_outcomes=True)), max_size=5),
)
def test_the_result_fits_a_termination_message_and_keeps_the_verdict(names: list[str], spots: list[BlindSpot]) -> None:
    counted = replace(LOST, offenders=dict.fromkeys(("lost", "early", "late", "doubled"), names))
    text = judge(counted, spots).encode()
    assert len(text.encode()) <= MAX_RESULT_BYTES
    assert json.loads(text)["account"]["lost"] == 1
