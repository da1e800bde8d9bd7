"""The work queue: at most one pass per resource at a time. Wakes of one resource are merged, and the earliest counts.

Passes take slots of lanes. A lane whose passes all wait for a slow system has no free slot, and the other lanes go on.
"""

import asyncio
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from delayed_topics_operator.values.key import Key

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
"""Half of the 60 s within which everything converges after an outage has healed."""


@dataclass
class _Item:
    due: float
    failures: int = 0
    running: bool = False
    woken_at: float | None = None
    finished_at: float = float("-inf")
    lane: Key | None = None


@dataclass
class _Lane:
    """`running`: the number of slots that are taken. `waiting`: passes that are due and have no slot."""

    running: int = 0
    waiting: list[tuple[float, Key]] = field(default_factory=list)


@dataclass
class WakeQueue:
    """`interval_seconds`: the least time between the end of a pass and a pass that an event causes. `lane_of`: returns the lane of a
    resource whose pass is due; by default each resource has its own. `lane_slots`: passes of one lane at the same time. Belongs to one
    event loop."""

    interval_seconds: float
    clock: Callable[[], float]
    lane_of: Callable[[Key], Key] = lambda key: key
    lane_slots: int = 1
    _items: dict[Key, _Item] = field(default_factory=dict)
    _heap: list[tuple[float, Key]] = field(default_factory=list)
    _lanes: dict[Key, _Lane] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self, key: Key, *, after_seconds: float = 0.0) -> None:
        """Requests a pass after this time, or as soon after the last one as `interval_seconds` allows. While one is running, another
        follows it."""
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = _Item(due=float("inf"))
        due = max(self.clock() + after_seconds, item.finished_at + self.interval_seconds)
        if item.running:
            item.woken_at = due if item.woken_at is None else min(due, item.woken_at)
        elif due < item.due:
            self._schedule(key, item, due)

    async def next(self) -> Key:
        """Waits for the next resource whose pass is due, and marks it as running."""
        while True:
            key = self._pop_due()
            if key is not None:
                return key
            self._changed.clear()
            timeout = self._heap[0][0] - self.clock() if self._heap else None
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def succeeded(self, key: Key, *, next_seconds: float | None) -> None:
        """Ends a pass that succeeded. The next one follows in `next_seconds` at the latest. None: the resource is gone."""
        item = self._items[key]
        item.failures = 0
        self._finish(key, item, next_seconds)

    def failed(self, key: Key, *, at_least_seconds: float = 0.0) -> None:
        """Ends a pass that failed. The delay until the next one grows with each failure."""
        item = self._items[key]
        backoff = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**item.failures) * random.uniform(0.8, 1.0)
        item.failures = min(item.failures + 1, 16)
        self._finish(key, item, max(backoff, at_least_seconds))

    def overdue_seconds(self) -> float:
        """Returns how late the pass is that has been due longest and has not begun."""
        heaps = [self._heap, *(lane.waiting for lane in self._lanes.values())]
        return max(0.0, self.clock() - min((heap[0][0] for heap in heaps if heap), default=float("inf")))

    def _finish(self, key: Key, item: _Item, next_seconds: float | None) -> None:
        now = self.clock()
        item.running, item.finished_at = False, now
        self._free_slot(item)
        woken_at, item.woken_at = item.woken_at, None
        if next_seconds is None and woken_at is None:
            del self._items[key]
            return
        item.due = float("inf")
        wanted = now + next_seconds if next_seconds is not None else float("inf")
        self._schedule(key, item, min(wanted, max(woken_at, now + self.interval_seconds) if woken_at else wanted))

    def _schedule(self, key: Key, item: _Item, due: float) -> None:
        item.due = due
        heapq.heappush(self._heap, (due, key))
        self._changed.set()

    def _pop_due(self) -> Key | None:
        now = self.clock()
        while self._heap and self._heap[0][0] <= now:
            due, key = heapq.heappop(self._heap)
            item = self._items.get(key)
            if item is not None and not item.running and item.due == due and self._takes_slot(due, key, item):
                item.running = True
                return key
        return None

    def _takes_slot(self, due: float, key: Key, item: _Item) -> bool:
        """Whether the pass gets a slot. If there is no free one, the pass waits in its lane."""
        former, item.lane = item.lane, self.lane_of(key)
        if former is not None and former != item.lane:
            # the former lane offered this resource a slot, but the resource has another lane by now
            self._offer_slot(former)
        lane = self._lanes.setdefault(item.lane, _Lane())
        if lane.running >= self.lane_slots:
            heapq.heappush(lane.waiting, (due, key))
            return False
        lane.running += 1
        return True

    def _free_slot(self, item: _Item) -> None:
        assert item.lane is not None, "it has run"
        freed, item.lane = item.lane, None
        self._lanes[freed].running -= 1
        self._offer_slot(freed)

    def _offer_slot(self, key: Key) -> None:
        """Offers a slot of this lane to the pass that has waited longest."""
        lane = self._lanes.get(key)
        if lane is None:
            return  # all of its passes have ended since it offered a slot
        if lane.waiting:
            heapq.heappush(self._heap, heapq.heappop(lane.waiting))
            self._changed.set()
        elif not lane.running:
            del self._lanes[key]
