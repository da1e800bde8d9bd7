"""Runs the passes of one kind: many at once, one at a time for each resource, failures put off longer and longer.

Slots are those of lanes, so that passes which wait for one Kafka hold up none that wait for another.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from delayed_topics_kafka.errors import KafkaCallError

from delayed_topics_operator import metrics
from delayed_topics_operator.engine.queue import WakeQueue
from delayed_topics_operator.errors import KubeUnreachable, OperatorError, is_of_one_resource
from delayed_topics_operator.values.key import Key

log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
"""A runner says that it lives at least so often."""


class Controller(Protocol):
    """`kind`: of the resources that it is for, as metrics name it."""

    kind: str

    async def reconcile(self, key: Key) -> float | None:
        """One pass. Returns in how many seconds to look again at the latest; None: the resource is gone.

        Raises OperatorError or KafkaCallError to be tried again later.
        """


class Runner:
    """The queue of one controller and the task that serves it."""

    def __init__(
        self, controller: Controller, *, lane_of: Callable[[Key], Key], lane_slots: int, interval_seconds: float
    ) -> None:
        """See WakeQueue."""
        self.controller = controller
        self.queue = WakeQueue(
            interval_seconds=interval_seconds, clock=time.monotonic, lane_of=lane_of, lane_slots=lane_slots
        )
        self._beat_at: float | None = None

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as passes:
            while True:
                self._beat_at = time.monotonic()
                key = await self._next()
                if key is not None:
                    passes.create_task(self._pass(key), name=str(key))

    def silent_seconds(self) -> float:
        """Since it last looked for a pass to begin; it does so every second, whatever its passes wait for."""
        return time.monotonic() - self._beat_at if self._beat_at is not None else 0.0

    async def _next(self) -> Key | None:
        try:
            async with asyncio.timeout(BEAT_SECONDS):
                return await self.queue.next()
        except TimeoutError:
            return None

    async def _pass(self, key: Key) -> None:
        began = time.monotonic()
        outcome = "done"
        try:
            next_seconds = await self.controller.reconcile(key)
        except (OperatorError, KafkaCallError) as e:
            outcome = "refused" if is_of_one_resource(e) else "failed"
            log.warning("%s: %s", key, e)
            asked = e.retry_after_seconds if isinstance(e, KubeUnreachable) else None
            self.queue.failed(key, at_least_seconds=asked or 0.0)
        except Exception:  # a defect in one resource's pass must not stop the others
            outcome = "crashed"
            log.exception("%s: the pass ended with an unexpected error. The operator tries again", key)
            self.queue.failed(key)
        else:
            self.queue.succeeded(key, next_seconds=next_seconds)
        metrics.RECONCILES.labels(key.kind, outcome).inc()
        metrics.RECONCILE_SECONDS.labels(key.kind, outcome).observe(time.monotonic() - began)
