"""The actions beside a test run in order and at the given pace, and do not fail silently."""

import pytest
from delayed_topics_devcluster.pace import paced
from delayed_topics_devcluster.waiting import wait_until


def test_work_is_done_in_turn_until_the_block_ends() -> None:
    done: list[int] = []
    with paced(done.append, lambda: 10_000):
        wait_until(lambda: len(done) > 100, what="the action has run 100 times")
    many = len(done)
    assert done == list(range(many))


def test_nothing_is_done_at_a_pace_of_zero() -> None:
    done: list[int] = []
    asked: list[float] = []

    def pace() -> float:
        asked.append(0.0)
        return 0.0

    with paced(done.append, pace):
        wait_until(lambda: len(asked) > 3, what="the pace was requested several times")
    assert done == []


def test_what_fails_beside_the_block_is_raised_where_it_ends() -> None:
    tried: list[int] = []

    def fail(number: int) -> None:
        tried.append(number)
        raise OSError("no broker")

    with pytest.raises(OSError, match="no broker"), paced(fail, lambda: 1000):
        wait_until(lambda: bool(tried), what="the action has run")
    assert tried == [0]
