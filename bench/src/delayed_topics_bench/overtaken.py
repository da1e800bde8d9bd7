"""Which released records others overtook, and whether these were read too late to go the usual way.

A record that a worker first reads when it is due, a second or more after it came, is released at once and not hopped. So it may
overtake what waits in the delays topic. Order is not promised for such a one; docs/reliability.md says so of the fault rows too.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from delayed_topics_core import headers as own
from delayed_topics_worker_testing.harness import Seen

__all__ = ["Overtaking", "overtakings"]


class Overtaking(NamedTuple):
    """`record` was due before `by`, and came after it."""

    record: Seen
    by: Seen

    @property
    def exempt(self) -> bool:
        """`by` went straight out, since it was first read when it was due."""
        return self.by.header(own.HOPS) == b"0"

    def __str__(self) -> str:
        return f"{_told(self.record)} was overtaken by {_told(self.by)}"


def overtakings(copies: Sequence[Seen]) -> Iterator[Overtaking]:
    """Of one delay, within the partitions of the ready topic."""
    in_order = sorted(copies, key=lambda copy: (copy.partition, copy.offset))
    for _, line in groupby(in_order, key=lambda copy: copy.partition):
        latest: Seen | None = None
        for copy in line:
            if latest is not None and copy.due_at_ms < latest.due_at_ms:
                yield Overtaking(copy, latest)
            else:
                latest = copy


def _told(copy: Seen) -> str:
    root, hops = ((copy.header(name) or b"").decode() for name in (own.ROOT, own.HOPS))
    return f"{root} (ready {copy.partition}:{copy.offset}, {hops} hops, due {copy.due_at_ms}, {copy.late_ms} ms late)"
