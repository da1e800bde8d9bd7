"""Measures processor time by process, and the share that other programs took of it during a measurement.

A measurement during which other programs took too much is not valid.
"""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MAX_SHARE", "Usage", "family", "others_share", "programs_ticks", "seconds_of_family"]

MAX_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Ticks of all processors so far: `passed` in all, `used` by programs, and `own`, those of this process and its descendants."""

    passed: int
    used: int
    own: int

    @classmethod
    def now(cls) -> "Usage":
        """Reads the current ticks. A program that has ended counts with the process that waited for it."""
        passed, used = programs_ticks(Path("/proc/stat").read_text())
        return cls(passed=passed, used=used, own=sum(family(os.getpid()).values()))


def programs_ticks(stat: str) -> tuple[int, int]:
    """Returns all ticks of `/proc/stat`, and those of programs.

    Interrupts belong to no program: the kernel charges the work for the benchmark's own connections to no process. With ten workers,
    this work is 5 % of the machine.
    """
    user, nice, system, *further = (int(ticks) for ticks in stat.split("\n", 1)[0].split()[1:9])
    used = user + nice + system
    return used + sum(further), used


def others_share(before: Usage, after: Usage) -> float:
    """Returns the share of all processors that other programs took between two moments."""
    used, own = after.used - before.used, after.own - before.own
    return max(0, used - own) / max(1, after.passed - before.passed)


def family(pid: int) -> dict[int, int]:
    """Returns the ticks of a process and its descendants by process id, including those of children that have ended."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
        number = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(number)
        ticks[number] = sum(map(int, fields[11:15]))
    found: dict[int, int] = {}
    line = [pid]
    while line:
        number = line.pop()
        line += parents.get(number, [])
        found[number] = ticks[number]
    return found


def seconds_of_family(pid: int) -> float:
    """Returns the processor time of a process and its descendants."""
    return sum(family(pid).values()) / os.sysconf("SC_CLK_TCK")
