"""Processor time by process, and how much of it other programs took while something was measured: a figure that shared the machine
is no figure."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MOST_SHARE", "Usage", "family", "others_share", "programs_ticks", "seconds_of_family"]

MOST_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class Usage:
    """In ticks of all processors, since some moment: all that passed, what programs used, what we and our descendants used of it."""

    passed: int
    used: int
    own: int

    @classmethod
    def now(cls) -> "Usage":
        """Programs that have ended count with who waited for them."""
        passed, used = programs_ticks(Path("/proc/stat").read_text())
        return cls(passed=passed, used=used, own=sum(family(os.getpid()).values()))


def programs_ticks(stat: str) -> tuple[int, int]:
    """All ticks of `/proc/stat`, and those of programs. Interrupts are nobody's: the kernel charges what it does for our own connections
    to no process, which with ten workers is 5 % of the machine."""
    user, nice, system, *further = (int(ticks) for ticks in stat.split("\n", 1)[0].split()[1:9])
    used = user + nice + system
    return used + sum(further), used


def others_share(before: Usage, after: Usage) -> float:
    """Of all processors, from one moment to another."""
    used, own = after.used - before.used, after.own - before.own
    return max(0, used - own) / max(1, after.passed - before.passed)


def family(pid: int) -> dict[int, int]:
    """A process and its descendants: their ticks by id, with those of children that have ended."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
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
    """Processor time of a process and its descendants."""
    return sum(family(pid).values()) / os.sysconf("SC_CLK_TCK")
