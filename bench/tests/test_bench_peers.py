"""All systems are measured by the same rules."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_bench import peers
from delayed_topics_bench.lateness import Late, loading
from delayed_topics_bench.peers import OURS, peer_tasks
from delayed_topics_bench.plan import Plan
from delayed_topics_bench.results import NOT_RECEIVED, PATIENCE_SECONDS
from delayed_topics_bench.samples import Verdict


class NoBroker:
    """A testbed that only records the arguments with which a Java program is started."""

    def __init__(self) -> None:
        self.started_with: dict[str, Any] = {}

    def new_directory(self) -> Path:
        return Path("samples")

    def topic(self, name: str, **_: Any) -> AbstractContextManager[str]:
        return nullcontext(name)

    def java(self, _: str, **arguments: Any) -> AbstractContextManager[None]:
        self.started_with = arguments
        return nullcontext()


def test_delayed_topics_have_the_patience_of_the_others_and_their_rejected_records_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requested: dict[str, Any] = {}

    def lateness(_: Any, **further: Any) -> Late:
        requested.update(further)
        return Late(
            late={},
            by_delay={},
            from_send={"p50": 1.0},
            ack_p999_ms=1.0,
            unfinished=5,
            rejected=3,
            problem="it began late",
            verdict=Verdict(records=100, lost=2),
        )

    monkeypatch.setattr(peers, "lateness", lateness)
    no_testbed: Any = None
    ours, *_ = peer_tasks(no_testbed, Plan(peer_rates=(1000,)))
    (entry,) = ours()
    assert (entry.key, entry.problem) == (OURS, "it began late")
    assert (entry.figures["1000"]["rejected"], entry.figures["1000"][NOT_RECEIVED]) == (3, 7)
    assert requested["patience_seconds"] == PATIENCE_SECONDS


def test_patience_begins_with_the_last_sending_however_long_nothing_comes() -> None:
    testbed: Any = NoBroker()
    with loading(testbed, front="f", ready="r", rate=1, seconds=1, size=1, longest_seconds=1, patience_seconds=60):
        assert (testbed.started_with["idle_seconds"], testbed.started_with["patience_seconds"]) == (60, 60)
    with loading(testbed, front="f", ready="r", rate=1, seconds=1, size=1, longest_seconds=10):
        assert (testbed.started_with["idle_seconds"], testbed.started_with["patience_seconds"]) == (40, 190)
