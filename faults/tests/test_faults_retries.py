"""The row about retries has a judge of its own, because a record that comes out twice may fail twice."""

import pytest
from delayed_topics_faults.copies import Copy
from delayed_topics_faults.judge import MAX_DOUBLED, Crash, Seen, Terms
from delayed_topics_faults.row import Trial
from delayed_topics_faults.rows.retries import Failing

CRASH_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("before_ms", "most_doubled", "beyond"),
    [(500, MAX_DOUBLED, 0), (3_000, MAX_DOUBLED, 1), (500, 0, 1)],
    ids=["right before the crash", "long before it", "with ExactlyOnce"],
)
def test_a_first_attempt_may_come_twice_only_if_it_was_not_committed(
    before_ms: int, most_doubled: int, beyond: int
) -> None:
    terms = Terms(
        front_id="F",
        delays_id="D",
        lane_delays=(0, 1),
        ready_partitions=1,
        crashes=(Crash(at_ms=CRASH_MS),),
        most_doubled=most_doubled,
    )
    came = [
        Copy(0, n, at_ms, True, "k", "v", "f", {"dt-id": "1-0", "dt-attempt": "0"})
        for n, at_ms in enumerate((CRASH_MS - before_ms, CRASH_MS + 2_000))
    ]

    found = Failing().judge(Seen((), (), came, ()), terms, Trial(injected="", context={"1-0": 0}))

    assert (found.doubled, found.doubled_beyond, set(found.broken)) == (1, beyond, {"D"} if beyond else set())
