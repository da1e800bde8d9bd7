"""The results of the mutation test so far. They are written after each seed, so that an interrupted run loses none and can continue."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Judged(NamedTuple):
    """The result of one seed: whether each expectation was met exactly, and a sentence."""

    right: Mapping[str, bool]
    summary: str


@dataclass(kw_only=True)
class Results:
    """The results by seed. All of them were run with the same `commit` and with `records` records in each window. They are kept in `file`;
    None: they aren't kept."""

    commit: str
    records: int
    file: Path | None = None
    seeds: dict[int, Mapping[str, bool]] = field(default_factory=dict)

    @classmethod
    def of(cls, file: Path | None, *, commit: str, records: int) -> "Results":
        """Reads the results that the file has for this commit and size. Results of a dirty work tree do not count, because its next change
        has the same name."""
        results = cls(commit=commit, records=records, file=file)
        if file is None or not file.exists():
            return results
        kept = json.loads(file.read_text())
        if (kept["commit"], kept["records"]) == (commit, records) and not commit.endswith("-dirty"):
            results.seeds = {
                int(seed): {name: name not in wrong for name in kept["right"]} for seed, wrong in kept["seeds"].items()
            }
        return results

    def add(self, seed: int, right: Mapping[str, bool]) -> None:
        self.seeds[seed] = right
        if self.file is not None:
            beside = self.file.with_name(f".{self.file.name}.new")
            beside.write_text(json.dumps(self._body(), indent=2) + "\n")
            beside.replace(self.file)

    def right(self, seeds: Sequence[int]) -> dict[str, int]:
        """Returns the number of these seeds with which each expectation was met."""
        names = dict.fromkeys(name for seed in seeds for name in self.seeds[seed])
        return {name: sum(self.seeds[seed][name] for seed in seeds) for name in names}

    def _body(self) -> dict[str, object]:
        """Returns the content of the file. `seeds` has the expectations that each seed did not meet."""
        seeds = sorted(self.seeds)
        wrong = {seed: [name for name, right in self.seeds[seed].items() if not right] for seed in seeds}
        return {"commit": self.commit, "records": self.records, "right": self.right(seeds), "seeds": wrong}


def over(seeds: Sequence[int], results: Results, judge: Callable[[int], Judged], say: Callable[[str], None]) -> None:
    """Judges the seeds that `results` does not have yet, one after the other."""
    missing = [seed for seed in seeds if seed not in results.seeds]
    if len(missing) < len(seeds):
        say(f"{len(seeds) - len(missing)} of {len(seeds)} seeds are in {results.file} for commit {results.commit}")
    began = time.monotonic()
    for nth, seed in enumerate(missing, 1):
        before = time.monotonic()
        judged = judge(seed)
        results.add(seed, judged.right)
        now = time.monotonic()
        left = (now - began) / nth * (len(missing) - nth) / 60
        say(f"seed {seed} ({nth} of {len(missing)}): {now - before:.1f} s, {judged.summary}, about {left:.0f} min left")
