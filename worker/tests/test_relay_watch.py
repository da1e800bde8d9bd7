"""The threads beside the worker's own: nothing that goes wrong there ends them."""

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_worker.topic_watch import TopicWatch


class Admin:
    """What no broker can be made to do: raises what nobody thought of, as often as it has `problems`."""

    def __init__(self, *problems: str) -> None:
        self.problems = list(problems)

    def describe_topics(self, names: Sequence[str]) -> dict[str, Any]:
        if self.problems:
            raise RuntimeError(self.problems.pop(0))
        return dict.fromkeys(names, SimpleNamespace(partitions=4))


def test_topics_are_seen_again_after_whatever_went_wrong_and_each_problem_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else partitions that are assigned later would never begin."""
    watch = TopicWatch(cast(KafkaAdmin, Admin("no thread", "no thread", "no memory")), lambda: 7.0)
    watch.look(["orders"])
    watch.start()

    def seen() -> bool:
        watch.look()
        return "orders" in watch.snapshot.topics

    try:
        wait_until(seen, what="the topics are seen")
    finally:
        watch.close()

    assert watch.snapshot.asked_at == 7.0
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [("no thread" in line, "no memory" in line) for line in said] == [(True, False), (False, True)]
