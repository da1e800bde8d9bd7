"""Bounded memory: which partitions are paused. Pausing throws away what the client has fetched, so it is a brake only.

Records that are due soon may fill all of the memory, those that wait longer only half of it: records due in an hour
never starve those due now. Beyond that each partition still gets its equal share.
"""

from collections.abc import Callable, Collection
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from delayed_topics_core.window import MAX_SPAN

from delayed_topics_worker.owned import Owned

NEAR_MS: Final = 1000


class Brake:
    """Belongs to the worker's thread."""

    def __init__(self, window_bytes: int) -> None:
        self._window_bytes = window_bytes
        self.held_bytes = 0

    @staticmethod
    def needed_at_once(taken: Collection[Owned]) -> bool:
        """One of the partitions that got records has as many offsets as its bitmap can tell of: no further batch may come."""
        return any(o.window is not None and o.window.span >= MAX_SPAN for o in taken)

    def turn(self, consumer: Consumer, all_owned: Collection[Owned], now_ms: int) -> None:
        """Pause and resume what has to be. `now_ms`: broker time."""
        far = {o for o in all_owned if not o.arrived and (o.next_turn_ms or 0) > now_ms + NEAR_MS}
        far_bytes = sum(o.held_bytes for o in far)
        self.held_bytes = sum(o.held_bytes for o in all_owned)
        share = self._window_bytes // 2 // max(1, len(all_owned))
        pause: list[Owned] = []
        resume: list[Owned] = []
        for owned in all_owned:
            used, limit = (
                (far_bytes, self._window_bytes // 2) if owned in far else (self.held_bytes, self._window_bytes)
            )
            if owned.paused:
                # released only well below, so that it doesn't flutter
                used, kept, span = used * 4 // 3, owned.held_bytes * 2, MAX_SPAN * 3 // 4
            else:
                kept, span = owned.held_bytes, MAX_SPAN
            window = owned.window
            held_back = (used > limit and kept > share) or (window is not None and window.span >= span)
            wanted = held_back or not owned.takes_in
            if wanted != owned.paused:
                (pause if wanted else resume).append(owned)
        self._apply(consumer.pause, pause, paused=True)
        self._apply(consumer.resume, resume, paused=False)

    @staticmethod
    def _apply(call: Callable[[list[TopicPartition]], None], partitions: list[Owned], *, paused: bool) -> None:
        if not partitions:
            return
        try:
            call([TopicPartition(o.topic, o.partition) for o in partitions])
        except KafkaException:
            return  # revoked at this moment; the next turn sees it
        for owned in partitions:
            owned.paused = paused
