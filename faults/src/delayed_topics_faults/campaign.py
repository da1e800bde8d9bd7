"""Plays many trials of one row: inject, wait, read, judge. Keeps the evidence if a promise is broken."""

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
    """The outcome of a whole campaign.

    `counts`: see Trial. `late_by_ms`: see Verdict. `evidence`: the folder with the records and logs of a failed trial, or None if no
    promise is broken. `audit`: the verdict of the audit, if one was requested.
    """

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
        """Returns what the results file records."""
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
        """Returns the lateness of records in ms, by percentile."""
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
    """Plays trials until one breaks a promise, or until a KeyboardInterrupt; the interrupted trial doesn't count.

    `jars`: the folder of Spark's jars, for an audit of all trials at the end, whose verdict has to be Verified. Raises DevclusterError
    if the row can't be played with this guarantee.
    """
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
    """Returns the verdict and its message. A failed audit doesn't raise, so that the trials still count."""
    try:
        report = audited(testbed.orders, jars)
    except AuditFailed as e:
        return "Failed", str(e)
    return report.verdict, report.message


def _trial(row: Row, testbed: Testbed, rng: Random) -> tuple[Trial, Seen, Verdict]:
    trial = row.trial(testbed, rng)
    seen, unfinished = row.finish(testbed, trial)
    verdict = row.judge(seen, testbed.terms(**trial.terms), trial)
    for text in unfinished:
        verdict.fail("L", text)
    for letter, text in trial.violations:
        verdict.unalarmed += letter == "A"
        verdict.fail(letter, text)
    return trial, seen, verdict


def _percentile(counts: Counter[int], share: float) -> int:
    """Returns the smallest value that at least this share of all values doesn't exceed, or 0 without values. `counts`: by value."""
    values = sorted(counts)
    ranks = list(accumulate(counts[value] for value in values))
    return values[bisect_left(ranks, share * ranks[-1])] if values else 0


def _progress(number: int, trials: int, trial: Trial, verdict: Verdict, seconds: float) -> str:
    figures = f"{verdict.records} records, {verdict.doubled} doubled, late by at most {verdict.most_late_ms} ms after the fault"
    end = "kept" if not verdict.broken else f"BROKEN {json.dumps(verdict.broken)}"
    return f"  {number}/{trials} in {seconds:.1f} s: {trial.injected}: {figures}: {end}"


def keep(directory: Path, topic: str, trial: Trial, seen: Seen, verdict: Verdict) -> None:
    """Writes all records of the failed trial, what was done, and the verdict next to the workers' logs, for people to read."""
    for name, copies in seen._asdict().items():
        with (directory / f"{name}.tsv").open("w") as file:
            for copy in copies:
                own = "\t".join(f"{header}={text}" for header, text in copy.own.items())
                file.write("\t".join(map(str, [*copy[:-1], own])) + "\n")
    summary = {"trial": vars(trial), "verdict": vars(verdict), "topic": topic}
    (directory / "verdict.txt").write_text(pformat(summary, width=120) + "\n")
