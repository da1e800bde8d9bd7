"""Many trials of one row: trial, wait, read, judge; what a broken promise leaves behind is kept."""

import json
import shutil
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from pprint import pformat
from random import Random
from typing import Any, Final

from delayed_topics_audit.errors import AuditFailed
from delayed_topics_audit_testing.declared import audited
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_worker.config import Guarantee

from delayed_topics_faults.judge import Seen, Verdict
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import Testbed

PREFIX: Final = "delayed-topics-faults-"
SUMMED: Final = (
    *("records", "dead_lettered", "lost", "early", "doubled", "doubled_beyond", "out_of_order", "order_exempt"),
    *("changed", "late", "unalarmed"),
)
HIGHEST: Final = ("most_late_ms", "most_back_ms")
PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
VERIFIED: Final = "Verified"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of a whole campaign. `counts`: see Trial. `late_by_ms`: see Verdict. `evidence`: where a failed trial's records and logs are; None
    if all is well. `audit`: its verdict, if it was asked."""

    row: str
    guarantee: Guarantee
    seed: int
    trials: int
    figures: dict[str, int]
    counts: Counter[str]
    late_by_ms: Counter[int]
    broken: dict[str, list[str]]
    evidence: Path | None
    audit: str | None

    @property
    def clean(self) -> bool:
        return not self.broken

    def entry(self) -> dict[str, Any]:
        """For the results."""
        body = {"row": self.row, "guarantee": self.guarantee, "seed": self.seed, "trials": self.trials}
        counts = {"counts": dict(sorted(self.counts.items()))} if self.counts else {}
        lateness = {"lateness_ms": self.lateness_ms()} if self.late_by_ms else {}
        audit = {"audit": self.audit} if self.audit else {}
        return {
            **body,
            "clean": self.clean,
            **self.figures,
            **counts,
            **lateness,
            **audit,
            "broken": sorted(self.broken),
        }

    def lateness_ms(self) -> dict[str, int]:
        """By percentile."""
        return {name: _percentile(self.late_by_ms, share) for name, share in PERCENTILES.items()}

    def verdict(self) -> str:
        figures = ", ".join(
            f"{name} {count}" for name, count in {**self.figures, **self.counts, **self.lateness_ms()}.items()
        )
        kept = f"BROKEN ({', '.join(sorted(self.broken))})" if self.broken else "kept"
        audit = f"; the audit says {self.audit}" if self.audit else ""
        return f"{self.row} {self.guarantee}: {kept} in {self.trials} trials, seed {self.seed}: {figures}{audit}"


def campaign(
    row: Row,
    *,
    trials: int,
    seed: int,
    say: Callable[[str], None],
    guarantee: Guarantee | None = None,
    jars: Path | None = None,
) -> Outcome:
    """Ends after the first trial that broke a promise, or at a KeyboardInterrupt; the trial at hand doesn't count then. `jars`: of
    Spark, for the audit of all trials at the end, which has to say Verified. Raises DevclusterError if the row can't be played with
    this guarantee."""
    guarantee = guarantee or row.guarantees[0]
    if guarantee not in row.guarantees:
        raise DevclusterError(
            f"row {row.name} can be played with {' or '.join(row.guarantees)}, but not with {guarantee}"
        )
    directory = Path(tempfile.mkdtemp(prefix=PREFIX + row.name + "-"))
    say(f"{row.name} {guarantee}: {row.fault}; {trials} trials, seed {seed}, in {directory}")
    figures = dict.fromkeys((*SUMMED, *HIGHEST), 0)
    counts: Counter[str] = Counter()
    late_by_ms: Counter[int] = Counter()
    broken: dict[str, list[str]] = {}
    played = 0
    with row.testbed(directory) as testbed:
        testbed.guarantee = guarantee
        row.open(testbed)
        while played < trials and not broken:
            began = time.monotonic()
            try:
                trial, seen, verdict = _trial(row, testbed, Random(f"{seed}/{row.name}/{played}"))
            except KeyboardInterrupt:
                break
            played += 1
            for name in SUMMED:
                figures[name] += getattr(verdict, name)
            for name in HIGHEST:
                figures[name] = max(figures[name], getattr(verdict, name))
            counts.update(trial.counts)
            late_by_ms.update(verdict.late_by_ms)
            broken = verdict.broken
            say(_progress(played, trials, trial, verdict, time.monotonic() - began))
            if broken:
                keep(directory, testbed.orders.names.front, trial, seen, verdict)
        verified = None
        if jars and played and not broken:
            verified, message = _audit(testbed, jars)
            say(f"  audit of all trials: {verified}: {message}")
            if verified != VERIFIED:
                broken = {"audit": [message]}
    if not broken:
        shutil.rmtree(directory)
    evidence = directory if broken else None
    return Outcome(
        row=row.name,
        guarantee=guarantee,
        seed=seed,
        trials=played,
        figures=figures,
        counts=counts,
        late_by_ms=late_by_ms,
        broken=broken,
        evidence=evidence,
        audit=verified,
    )


def _audit(testbed: Testbed, jars: Path) -> tuple[str, str]:
    """The verdict and its message. What was played counts though there is no verdict."""
    try:
        told = audited(testbed.orders, jars)
    except AuditFailed as e:
        return "Failed", str(e)
    return told.verdict, told.message


def _trial(row: Row, testbed: Testbed, rng: Random) -> tuple[Trial, Seen, Verdict]:
    trial = row.trial(testbed, rng)
    seen, unfinished = row.finish(testbed, trial)
    verdict = row.judge(seen, testbed.terms(**trial.terms), trial)
    for text in unfinished:
        verdict.fail("L", text)
    for letter, text in trial.notes:
        verdict.unalarmed += letter == "A"
        verdict.fail(letter, text)
    return trial, seen, verdict


def _percentile(counts: Counter[int], share: float) -> int:
    """Of values that are there so often: the least that this share of all doesn't exceed; 0 of none."""
    values = sorted(counts)
    ranks = list(accumulate(counts[value] for value in values))
    return values[bisect_left(ranks, share * ranks[-1])] if values else 0


def _progress(number: int, trials: int, trial: Trial, verdict: Verdict, seconds: float) -> str:
    said = f"{verdict.records} records, {verdict.doubled} doubled, late by at most {verdict.most_late_ms} ms after the fault"
    end = "kept" if not verdict.broken else f"BROKEN {json.dumps(verdict.broken)}"
    return f"  {number}/{trials} in {seconds:.1f} s: {trial.injected}: {said}: {end}"


def keep(directory: Path, topic: str, trial: Trial, seen: Seen, verdict: Verdict) -> None:
    """Next to the workers' logs: all records of the failed trial, what was done, and the verdict, for a person to read."""
    for name, copies in seen._asdict().items():
        with (directory / f"{name}.tsv").open("w") as file:
            for copy in copies:
                own = "\t".join(f"{header}={text}" for header, text in copy.own.items())
                file.write("\t".join(map(str, [*copy[:-1], own])) + "\n")
    told = {"trial": vars(trial), "verdict": vars(verdict), "topic": topic}
    (directory / "verdict.txt").write_text(pformat(told, width=120) + "\n")
