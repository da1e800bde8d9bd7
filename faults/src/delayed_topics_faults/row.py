"""A row of faults: what is done to the system, again and again."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final, get_args

from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import Broker, Brokers
from delayed_topics_devcluster.errors import NotInTimeError
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker.config import Guarantee
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_faults.judge import Seen, Terms, Verdict, judge
from delayed_topics_faults.testbed import Testbed

UNACKNOWLEDGED_ALARM_SECONDS: Final = 35.0
"""5 s from the first copy that isn't acknowledged. Before there is one, Kafka has to miss the broker (6 s); where that was the
group's coordinator, its members find the next one within their session (10 s), join, and look at their topics (5 s)."""


@dataclass(kw_only=True)
class Trial:
    """What was done in one trial. `terms`: fields of Terms that it changes. `notes`: broken promises that the row itself
    saw, by letter: A (no alarm), or a figure out of bounds. `counts`: what else the results say how many there were of. `told`: what
    the row's own judge has to know."""

    injected: str
    terms: dict[str, Any] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    told: Any = None

    def alarmed(self, worker: WorkerProcess, reason: Reason, *, timeout_seconds: float) -> None:
        """Promise A: the worker says so in time."""
        try:
            wait_until(
                lambda: reason in worker.alarm_reasons(),
                what=f"the alarm {reason} of {worker.member}",
                timeout_seconds=timeout_seconds,
            )
        except NotInTimeError as e:
            self.notes.append(("A", str(e)))

    def expect(self, met: bool, letter: str, otherwise: str) -> None:
        if not met:
            self.notes.append((letter, otherwise))


class Row(ABC):
    """Trials share what `open` makes: a broker, a delayed topic, workers."""

    name: ClassVar[str]
    fault: ClassVar[str]
    guarantees: ClassVar[tuple[Guarantee, ...]] = get_args(Guarantee)
    """Of the workers that it can be played with; the first, if nobody says which."""
    settle_seconds: float = 180
    bootstrap: str | None = None
    """Of a broker that others use too. A row that breaks or needs more than a plain one has brokers of its own anyway."""

    @contextmanager
    def testbed(self, directory: Path) -> Iterator[Testbed]:
        """One broker unless a row needs more."""
        with ExitStack() as stack:
            bootstrap = self.bootstrap or stack.enter_context(Broker()).bootstrap
            yield stack.enter_context(Testbed(directory, bootstrap))

    @abstractmethod
    def open(self, testbed: Testbed) -> None:
        """Before the first trial."""

    @abstractmethod
    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        """Returns when the fault is over; the rest is waited for."""

    def finish(self, testbed: Testbed, trial: Trial) -> tuple[Seen, list[str]]:
        """Waits until everything is out and committed; what there is then, and what never got there."""
        unfinished = [] if testbed.settled(self.settle_seconds) else testbed.unsettled()
        return self.read(testbed), [f"not finished after {self.settle_seconds:g} s: {text}" for text in unfinished]

    def read(self, testbed: Testbed) -> Seen:
        """What is judged of a trial."""
        return testbed.read()

    def judge(self, seen: Seen, terms: Terms, trial: Trial) -> Verdict:
        return judge(seen, terms)


class OnThreeBrokers(Row):
    """A row whose topics have three replicas."""

    @contextmanager
    def testbed(self, directory: Path) -> Iterator[Testbed]:
        with Brokers() as brokers, Testbed(directory, brokers.bootstrap, replication_factor=3) as testbed:
            self.brokers = brokers
            yield testbed
