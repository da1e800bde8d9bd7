"""Finds released records that others overtook, and whether those others were read too late to take the usual path.

A record that a worker first reads when it is due, a second or more after its append, is released at once and doesn't hop. It may then
overtake records that wait in the delays topic. No order is promised for such a record; docs/reliability.md says the same of fault rows.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from delayed_topics_core import headers as own
from delayed_topics_worker_testing.harness import Seen

__all__ = ["Overtaking", "overtakings"]


class Overtaking(NamedTuple):
    """`record` was due before `by`, and came out after it."""

    record: Seen
    by: Seen

    @property
    def exempt(self) -> bool:
        """Whether `by` was released without a hop, because it was first read when it was due."""
        return self.by.header(own.HOPS) == b"0"

    def __str__(self) -> str:
        return f"{_describe(self.record)} was overtaken by {_describe(self.by)}"


def overtakings(copies: Sequence[Seen]) -> Iterator[Overtaking]:
    """Yields the overtaken records within each partition of the ready topic. All copies have to have the same delay."""
    in_order = sorted(copies, key=lambda copy: (copy.partition, copy.offset))
    for _, line in groupby(in_order, key=lambda copy: copy.partition):
        latest: Seen | None = None
        for copy in line:
            if latest is not None and copy.due_at_ms < latest.due_at_ms:
                yield Overtaking(copy, latest)
            else:
                latest = copy


def _describe(copy: Seen) -> str:
    root, hops = ((copy.header(name) or b"").decode() for name in (own.ROOT, own.HOPS))
    return f"{root} (ready {copy.partition}:{copy.offset}, {hops} hops, due {copy.due_at_ms}, {copy.late_ms} ms late)"
