"""A benchmark reports which records were overtaken, and for which of them no order is promised."""

from delayed_topics_bench.overtaken import overtakings
from delayed_topics_core.headers import Header
from delayed_topics_worker_testing.harness import Seen


def copy(offset: int, due_at_ms: int, *, hops: int = 1, partition: int = 0) -> Seen:
    headers: list[Header] = [
        ("dt-root", b"f:0:%d" % due_at_ms),
        ("dt-due-at", b"%d" % due_at_ms),
        ("dt-hops", b"%d" % hops),
    ]
    return Seen(partition=partition, offset=offset, key=None, value=None, headers=headers, at_ms=due_at_ms + 3)


def test_what_was_read_too_late_to_be_hopped_may_overtake_what_was_hopped_and_nothing_else_may() -> None:
    copies = [copy(0, 10), copy(1, 30, hops=0), copy(2, 20), copy(3, 50), copy(4, 40), copy(5, 60)]
    late, wrong = overtakings([*reversed(copies), copy(0, 5, partition=1)])
    assert (late.exempt, wrong.exempt) == (True, False)
    assert str(wrong) == (
        "f:0:40 (ready 0:4, 1 hops, due 40, 3 ms late) was overtaken by f:0:50 (ready 0:3, 1 hops, due 50, 3 ms late)"
    )
