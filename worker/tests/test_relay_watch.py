"""No error ends the background threads of a worker."""

import itertools
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_worker.topic_watch import TopicWatch


class Admin:
    """Raises an unexpected error for each of `problems`, which no broker can be made to cause. `asked`: the topics of each later call."""

    def __init__(self, *problems: str) -> None:
        self.problems = list(problems)
        self.asked: list[Sequence[str]] = []

    def describe_topics(self, names: Sequence[str]) -> dict[str, Any]:
        if self.problems:
            raise RuntimeError(self.problems.pop(0))
        self.asked.append(names)
        return dict.fromkeys(names, SimpleNamespace(partitions=4))


def test_topics_are_seen_again_after_whatever_went_wrong_and_each_problem_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise partitions that are assigned later would never begin."""
    watch = TopicWatch(cast(KafkaAdmin, Admin("no thread", "no thread", "no memory")), lambda: 7.0)
    watch.follow(["orders"])
    watch.start()

    def seen() -> bool:
        watch.look()
        return "orders" in watch.snapshot.topics

    try:
        wait_until(seen, what="the topics are seen")
    finally:
        watch.close()

    assert watch.snapshot.asked_at == {"orders": 7.0}
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [("no thread" in line, "no memory" in line) for line in warnings] == [(True, False), (False, True)]


def test_thousands_of_topics_are_asked_about_in_turn_and_those_that_a_partition_waits_for_first() -> None:
    admin, now = Admin(), itertools.count()
    watch = TopicWatch(cast(KafkaAdmin, admin), lambda: float(next(now)))
    topics = [f"topic-{n}" for n in range(2500)]
    watch.follow(topics)
    watch.start()

    def look(first: Sequence[str]) -> None:
        before = len(admin.asked)
        watch.look(first)
        wait_until(lambda: len(admin.asked) > before, what="the topics are described again")

    try:
        wait_until(lambda: bool(watch.snapshot.topics), what="the first look")
        assert not watch.snapshot.is_younger(0.0, topics)
        look(topics[-2:])
        look(())
        wait_until(lambda: watch.snapshot.is_younger(0.0, topics), what="every topic was described")
        look(topics[-2:])
        watch.follow(topics[:5])
        wait_until(lambda: len(watch.snapshot.topics) == 5, what="former topics are forgotten")
    finally:
        watch.close()

    assert admin.asked == [
        topics[:1000],
        [*topics[-2:], *topics[1000:1998]],
        [*topics[1998:-2], *topics[:500]],
        [*topics[-2:], *topics[500:1498]],
        topics[:5],
    ]
