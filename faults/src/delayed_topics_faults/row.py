"""A row of the fault table: one kind of fault, which trials inject repeatedly."""

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
"""The alarm comes 5 s after the first copy that isn't acknowledged. Before that, Kafka has to notice that the broker is gone (6 s).
If the broker was the group's coordinator, the members find the next one within their session (10 s), join, and check their topics (5 s)."""


@dataclass(kw_only=True)
class Trial:
    """What was done in one trial.

    `terms`: the fields of Terms that the trial sets. `violations`: the broken promises that the row itself found, with their letters,
    such as A for a missing alarm, or the letter of a figure out of bounds. `counts`: further counts for the results, by name.
    `context`: what the row's own judge has to know.
    """

    injected: str
    terms: dict[str, Any] = field(default_factory=dict)
    violations: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    context: Any = None

    def expect_alarm(self, worker: WorkerProcess, reason: Reason, *, timeout_seconds: float) -> None:
        """Waits for the worker to raise the alarm (promise A); otherwise adds a violation."""
        try:
            wait_until(
                lambda: reason in worker.alarm_reasons(),
                what=f"the alarm {reason} of {worker.member}",
                timeout_seconds=timeout_seconds,
            )
        except NotInTimeError as e:
            self.violations.append(("A", str(e)))

    def expect(self, met: bool, letter: str, otherwise: str) -> None:
        if not met:
            self.violations.append((letter, otherwise))


class Row(ABC):
    """A kind of fault. Its trials share what `testbed` and `open` create: a broker, a delayed topic, workers."""

    name: ClassVar[str]
    fault: ClassVar[str]
    guarantees: ClassVar[tuple[Guarantee, ...]] = get_args(Guarantee)
    """The guarantees of the workers with which the row can be played; the first is the default."""
    settle_seconds: float = 180
    bootstrap: str | None = None
    """The address of a broker that other tests use too. A row that breaks its broker, or needs a special one, starts its own anyway."""

    @contextmanager
    def testbed(self, directory: Path) -> Iterator[Testbed]:
        """A testbed on one broker; rows that need more brokers override this."""
        with ExitStack() as stack:
            bootstrap = self.bootstrap or stack.enter_context(Broker()).bootstrap
            yield stack.enter_context(Testbed(directory, bootstrap))

    @abstractmethod
    def open(self, testbed: Testbed) -> None:
        """Prepares the testbed before the first trial."""

    @abstractmethod
    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        """Plays one trial. Returns when the fault is over; `finish` waits until the records are out."""

    def finish(self, testbed: Testbed, trial: Trial) -> tuple[Seen, list[str]]:
        """Waits until all records are out and committed. Returns the records, and a sentence for each partition that did not finish."""
        unfinished = [] if testbed.settled(self.settle_seconds) else testbed.unsettled()
        return self.read(testbed), [f"not finished after {self.settle_seconds:g} s: {text}" for text in unfinished]

    def read(self, testbed: Testbed) -> Seen:
        """Returns the records that are judged."""
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
