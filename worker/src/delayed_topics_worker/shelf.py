"""The records of one partition that wait for their turn."""

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayed_topics_worker.owned import Held

Entry = tuple[int, int, "Held"]
"""Turn in milliseconds of broker time, offset, record. Offsets differ, so records are never compared."""


class Shelf:
    """Records come in nearly in the order of their turns: a line for those, and a heap for the few that are earlier.

    Equal turns leave in the order of their offsets.
    """

    __slots__ = ("_early", "_line")

    def __init__(self) -> None:
        self._line: deque[Entry] = deque()
        self._early: list[Entry] = []

    def __len__(self) -> int:
        return len(self._line) + len(self._early)

    def add(self, turn_at_ms: int, held: "Held") -> None:
        entry = (turn_at_ms, held.offset, held)
        if not self._line or self._line[-1] < entry:
            self._line.append(entry)
        else:
            heappush(self._early, entry)

    @property
    def next_turn_ms(self) -> int | None:
        if self._early and (not self._line or self._early[0] < self._line[0]):
            return self._early[0][0]
        return self._line[0][0] if self._line else None

    def pop(self, now_ms: int) -> "Held | None":
        """The record whose turn came first, if it has come."""
        line, early = self._line, self._early
        if early and (not line or early[0] < line[0]):
            return heappop(early)[2] if early[0][0] <= now_ms else None
        return line.popleft()[2] if line and line[0][0] <= now_ms else None

    def pop_plain(self, now_ms: int) -> "Held | None":
        """As `pop`, if it is a plain hop."""
        line, early = self._line, self._early
        if early and (not line or early[0] < line[0]):
            return self.pop(now_ms) if early[0][2].due_at_ms >= 0 else None
        if not line or line[0][0] > now_ms or line[0][2].due_at_ms < 0:
            return None
        return line.popleft()[2]

    def due_count(self, now_ms: int) -> int:
        """How many have had their turn at `now_ms`."""
        count = sum(turn <= now_ms for turn, _, _ in self._early)
        for turn, _, _ in self._line:
            if turn > now_ms:
                break
            count += 1
        return count

    def clear(self) -> None:
        self._line.clear()
        self._early.clear()
