"""Where a worker's processor time goes: its own thread by section, the Kafka client's threads in all.

The kernel counts the time of each thread; that of the worker's own one is divided by the samples that py-spy takes of it.
It doesn't see into compiled modules: what they do counts for the line of the worker's loop that has called them, so that what
decides and releases at once counts as release.
"""

import linecache
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker import relay
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_bench.stand import cpu_seconds, seconds_of

__all__ = ["SECTIONS", "Watch", "section_of", "shares"]

SAMPLES_PER_SECOND = 200
CLIENT = "client threads"
OTHER = "other"
SECTIONS = ("take-in", "decision", "release", "barrier", OTHER, CLIENT)
RULES: Sequence[tuple[str, re.Pattern[str]]] = (
    ("barrier", re.compile(r"^(Barrier\.|Relay\._settle)")),
    ("take-in", re.compile(r"^Intake\.|_intake\.take_in\(")),
    ("release", re.compile(r"^(write_|copy_of)")),
    ("decision", re.compile(r"^decide|^hop_on|_core/(routing|headers|partitioner)\.py:")),
    ("release", re.compile(r"^Relay\._release")),
)
"""Section and the frames, as `function (file:line)`, that make a stack belong to it; the first rule that a frame meets.
Frames of the loop have the text of their line behind them."""
LOOP = "Relay.run "
LINE = re.compile(r"relay\.py:(\d+)\)$")


def section_of(frames: Sequence[str]) -> str | None:
    """Of a stack, outermost first; None: not of the thread that owns the relay."""
    if not any(frame.startswith(LOOP) for frame in frames):
        return None
    return next((name for name, rule in RULES if any(map(rule.search, frames))), OTHER)


def shares(raw: Iterable[str]) -> dict[str, float]:
    """Of py-spy's raw lines, `frame;frame;… count`: the share of each section of the relay's own thread."""
    counts: Counter[str] = Counter()
    for line in raw:
        stack, _, count = line.rpartition(" ")
        section = section_of([_with_text(frame) for frame in stack.split(";")])
        if section is not None:
            counts[section] += int(count)
    return {section: count / counts.total() for section, count in counts.items()}


def _with_text(frame: str) -> str:
    found = LINE.search(frame) if frame.startswith(LOOP) else None
    return f"{frame} {linecache.getline(relay.__file__, int(found[1])).strip()}" if found else frame


class Watch:
    """Given to a drain of one worker: each of its legs adds an entry to `legs`, section → µs a record."""

    def __init__(self, *, records: int, directory: Path) -> None:
        """`directory`: where py-spy writes its stacks."""
        self.legs: list[dict[str, float]] = []
        self._records = records
        self._directory = directory

    @contextmanager
    def __call__(self, workers: Sequence[WorkerProcess]) -> Iterator[None]:
        (worker,) = workers
        raw = self._directory / f"stacks-{len(self.legs)}.txt"
        own_before, all_before = _own_seconds(worker.pid), cpu_seconds(worker.pid)
        with _spy(worker.pid, raw):
            yield
            own, everything = _own_seconds(worker.pid) - own_before, cpu_seconds(worker.pid) - all_before
        found = shares(raw.read_text().splitlines())
        spent = {section: found.get(section, 0.0) * own for section in SECTIONS} | {CLIENT: everything - own}
        self.legs.append({section: round(seconds / self._records * 1e6, 2) for section, seconds in spent.items()})


@contextmanager
def _spy(pid: int, raw: Path) -> Iterator[None]:
    program = Path(sys.executable).parent / "py-spy"
    log = raw.with_suffix(".log")
    with log.open("wb") as printed:
        spy = subprocess.Popen(
            [
                *(program, "record", "--pid", str(pid), "--rate", str(SAMPLES_PER_SECOND)),
                *("--duration", "unlimited", "--format", "raw", "--output", raw),
            ],
            stdout=printed,
            stderr=printed,
        )
        try:
            wait_until(lambda: bool(log.read_bytes()), what=f"py-spy samples (see {log})", timeout_seconds=20)
            yield
        finally:
            spy.send_signal(signal.SIGINT)
            code = spy.wait(30)
    if code or not raw.exists():
        raise CommandFailedError(
            f"py-spy failed; it needs to be root, or kernel.yama.ptrace_scope=0: {log.read_text()}"
        )


def _own_seconds(pid: int) -> float:
    """Of the thread that the process began with."""
    return seconds_of(Path(f"/proc/{pid}/task/{pid}/stat"))
