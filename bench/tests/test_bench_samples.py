"""The checker finds each kind of defect in a run, and counts it exactly."""

from pathlib import Path

import numpy as np
import pytest
from delayed_topics_bench.samples import (
    RECEIVED,
    SENT,
    Samples,
    Verdict,
    begun_late,
    due_under_load,
    judge,
    percentiles,
)

DELAY_US = 1_000_000
COUNT = 1000


def run_of(count: int = COUNT) -> Samples:
    """Returns a clean run: one record a millisecond, acknowledged a millisecond later and received 5 ms after its due time."""
    sent = np.zeros(count, SENT)
    sent["sent_us"] = np.arange(count) * 1000
    sent["acked_us"] = sent["sent_us"] + 1000
    sent["stamp_ms"] = np.arange(count)
    received = np.zeros(count, RECEIVED)
    received["number"] = np.arange(count)
    received["partition"] = received["number"] % 4
    received["stamp_ms"] = sent["stamp_ms"] + DELAY_US // 1000 + 2
    received["at_us"] = sent["stamp_ms"] * 1000 + DELAY_US + 5000
    return Samples(sent=sent, received=received)


def verdict_on(samples: Samples, kinds: int = 1) -> Verdict:
    return judge(samples, due_us=samples.stamp_us + DELAY_US, kinds=kinds)


def test_a_clean_run_is_clean() -> None:
    assert verdict_on(run_of()) == Verdict(records=COUNT)


def test_one_early_record_is_found() -> None:
    samples = run_of()
    samples.received["stamp_ms"][17] = samples.sent["stamp_ms"][17] + DELAY_US // 1000 - 1
    assert verdict_on(samples) == Verdict(records=COUNT, early=1)


def test_one_early_record_is_found_by_its_receipt_where_no_broker_tells_the_time() -> None:
    samples = run_of()
    samples.received["stamp_ms"] = -1
    samples.received["at_us"][17] -= 5001
    assert verdict_on(samples) == Verdict(records=COUNT, early=1)


def test_a_record_that_came_in_the_millisecond_in_which_it_was_due_is_not_early() -> None:
    """The broker's timestamps have whole milliseconds, while those of the sender have microseconds."""
    samples = run_of()
    due_us = samples.stamp_us + 1_000
    samples.received["stamp_ms"] = due_us[samples.received["number"]] // 1000
    assert judge(samples, due_us=due_us + 999).early == 0
    assert judge(samples, due_us=due_us + 1_000).early == len(samples.received)


def test_one_lost_record_is_found() -> None:
    samples = run_of()
    assert verdict_on(Samples(sent=samples.sent, received=np.delete(samples.received, 17))) == Verdict(
        records=COUNT, lost=1
    )


def test_what_the_broker_has_not_taken_is_not_lost() -> None:
    samples = run_of()
    samples.sent["acked_us"][17] = -1
    without = Samples(sent=samples.sent, received=np.delete(samples.received, 17))
    assert (verdict_on(without).lost, without.rejected, run_of().rejected) == (0, 1, 0)


def test_one_doubled_record_is_found_and_counts_by_its_first_receipt() -> None:
    samples = run_of()
    again = samples.received[[17]]
    again["at_us"] += 60_000_000
    doubled = Samples(sent=samples.sent, received=np.concatenate([samples.received, again]))
    assert verdict_on(doubled) == Verdict(records=COUNT, doubled=1)
    assert doubled.late_us(doubled.stamp_us + DELAY_US).max() == 5000


def test_two_swapped_records_of_a_partition_are_found_unless_their_delays_differ() -> None:
    samples = run_of()
    samples.received[[17, 21]] = samples.received[[21, 17]]
    assert verdict_on(samples) == Verdict(records=COUNT, disordered=1)
    assert verdict_on(samples, kinds=8).disordered == 0


def test_verdicts_add_up() -> None:
    total = Verdict(records=2, early=1) + Verdict(records=3, lost=1, doubled=2, disordered=1)
    assert total == Verdict(records=5, early=1, lost=1, doubled=2, disordered=1)


@pytest.mark.parametrize(("count", "p999"), [(1000, 1000.0), (10_000, 9991.0)])
def test_percentiles_are_measured_values_never_below_the_share(count: int, p999: float) -> None:
    late_us = np.random.default_rng(7).permutation(np.arange(1, count + 1)) * 1000
    found = percentiles(late_us)
    assert found == {"p50": count // 2 + 1.0, "p99": count // 100 * 99 + 1.0, "p999": p999, "max": float(count)}


def test_only_what_is_due_under_load_counts() -> None:
    samples = run_of(3 * COUNT)
    due_us = samples.stamp_us + DELAY_US
    counted = due_under_load(samples, due_us=due_us, warm_seconds=2)
    assert counted.nonzero()[0].tolist() == list(range(COUNT, 2 * COUNT)), (
        "due from 2 s on until the sending ends at 3 s"
    )


def test_a_run_whose_consumer_starts_after_the_warm_up_is_not_valid() -> None:
    """The first records would have waited for the consumer, and this wait would count as lateness."""
    samples = run_of(3 * COUNT)
    assert begun_late(samples, warm_seconds=2) is None
    samples.received["at_us"] = np.maximum(samples.received["at_us"], 2_600_000)
    assert begun_late(samples, warm_seconds=2) == "the first record was received only 3 s after the first was sent"
    nothing = Samples(sent=samples.sent, received=samples.received[:0])
    assert begun_late(nothing, warm_seconds=2) == "nothing was received"


def test_only_chosen_numbers_count() -> None:
    samples = run_of()
    samples.received["at_us"][:100] += 1_000_000
    chosen = np.arange(COUNT) >= 100
    assert percentiles(samples.late_us(samples.stamp_us + DELAY_US, numbers=chosen))["max"] == 5.0


def test_the_files_of_the_java_programs_are_read_as_they_are_written(tmp_path: Path) -> None:
    samples = run_of(3)
    samples.sent.tofile(tmp_path / "sent.bin")
    samples.received.tofile(tmp_path / "received.bin")
    assert (tmp_path / "sent.bin").stat().st_size == (tmp_path / "received.bin").stat().st_size == 72
    read = Samples.read(tmp_path)
    assert (read.sent == samples.sent).all()
    assert (read.received == samples.received).all()
