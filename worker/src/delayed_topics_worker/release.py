"""What becomes due is sent on: released, hopped or dead-lettered, in the order of turns."""

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from delayed_topics_core.routing import DeadLetter, Hop, Policy, Wait, hop_on

from delayed_topics_worker.copies import decide
from delayed_topics_worker.metrics import Lateness
from delayed_topics_worker.outbox import Outbox
from delayed_topics_worker.owned import Held, Owned
from delayed_topics_worker.plain import release_shelved, send_front, shelve_hops

AT_ONCE: Final = 500
"""Copies of a partition before the fence is looked at again."""


class Heads:
    """Partitions by the turn of their first record: a heap of partitions, not of records."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Owned]] = []
        self._ties = count()

    def __len__(self) -> int:
        return len(self._heap)

    def register(self, owned: Owned) -> None:
        """Call after anything that may have given the partition an earlier turn."""
        turn_ms = owned.next_turn_ms
        if turn_ms is not None and (owned.registered_turn_ms is None or turn_ms < owned.registered_turn_ms):
            owned.registered_turn_ms = turn_ms
            heappush(self._heap, (turn_ms, next(self._ties), owned))

    def rebuild(self, all_owned: list[Owned]) -> None:
        """Call after something that may have changed any of them, such as a layout."""
        self._heap = []
        for owned in all_owned:
            owned.registered_turn_ms = turn_ms = owned.next_turn_ms
            if turn_ms is not None:
                self._heap.append((turn_ms, next(self._ties), owned))
        heapify(self._heap)

    @property
    def next_turn_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def pop(self, now_ms: int) -> Owned | None:
        """A partition whose turn has come; it has to be registered again."""
        while self._heap and self._heap[0][0] <= now_ms:
            turn_ms, _, owned = heappop(self._heap)
            if owned.registered_turn_ms == turn_ms and not owned.gone:
                owned.registered_turn_ms = None
                return owned
        return None


class Releaser:
    """Belongs to the worker's thread. `now_ms`: a lower bound of the broker's time."""

    def __init__(self, outbox: Outbox, lateness: Lateness) -> None:
        self._outbox = outbox
        self._lateness = lateness

    def work(self, owned: Owned, now_ms: int) -> None:
        """Send what has its turn, up to AT_ONCE: what waited first, then what has just arrived. A refused copy ends it, so
        that no more than what is on its way overtakes that one."""
        policy = owned.served.policy
        if not owned.takes_in or policy is None:
            return
        now_ms -= owned.served.skew_ms
        most = min(AT_ONCE, owned.room)
        if not owned.served.paused:
            most -= self._shelved(owned, policy, now_ms, most)
        arrived = owned.arrived
        while most > 0 and arrived and not owned.refused:
            if delays := owned.door == "d":
                shelve_hops(owned, policy)
            elif arrived[0].own_headers in (0, 1):
                most -= send_front(self._outbox, self._lateness, owned, policy, now_ms, most)
            if most <= 0 or not arrived or owned.refused:
                return
            held = arrived.popleft()
            held.decision = decision = decide(held, policy, now_ms)
            if isinstance(decision, Wait) and (delays or decision.turn_at_ms > now_ms or owned.served.paused):
                owned.shelf.add(decision.turn_at_ms, held)
            else:
                most -= self._take_turn(held, now_ms)

    def _shelved(self, owned: Owned, policy: Policy, now_ms: int, most: int) -> int:
        """The number of copies sent."""
        left = most
        while left > 0 and not owned.refused:
            left -= release_shelved(self._outbox, self._lateness, owned, policy, now_ms, left)
            held = owned.shelf.pop(now_ms) if left > 0 and not owned.refused else None
            if held is None:
                break
            left -= self._take_turn(held, now_ms)
        return most - left

    def _take_turn(self, held: Held, now_ms: int) -> int:
        """The number of copies sent."""
        served = held.owned.served
        decision = held.decision
        if isinstance(decision, Wait):
            if decision.due_at_ms <= now_ms:
                self._lateness.observe_ms(served.topic, now_ms - decision.due_at_ms)
                served.tally.released += 1
                if decision.misrouted:
                    served.tally.misrouted += 1
            else:
                hop = hop_on(decision, served.policy, now_ms) if served.policy else None
                if hop is None:
                    held.owned.shelf.add(decision.due_at_ms, held)
                    return 0
                held.decision = hop
        if isinstance(held.decision, Hop):
            served.tally.hopped += 1
        elif isinstance(held.decision, DeadLetter):
            served.tally.dead_lettered[held.decision.reason] += 1
        self._outbox.send(held, now_ms)
        return 1
