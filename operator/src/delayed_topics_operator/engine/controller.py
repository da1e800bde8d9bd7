"""Runs the passes of one controller: many at the same time, one at a time for each resource, with growing delays after failures.

Each lane has slots of its own, so that passes that wait for one Kafka do not hold up passes for another.
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
"""The longest time between two heartbeats of a runner."""


class Controller(Protocol):
    """`kind`: the kind of its resources, as metrics name it."""

    kind: str

    async def reconcile(self, key: Key) -> float | None:
        """Runs one pass. Returns in how many seconds the next one is due at the latest; None: the resource is gone.

        Raises OperatorError or KafkaCallError if the pass is to be tried again later.
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
        """Runs passes until it is cancelled."""
        async with asyncio.TaskGroup() as passes:
            while True:
                self._beat_at = time.monotonic()
                key = await self._next()
                if key is not None:
                    passes.create_task(self._pass(key), name=str(key))

    def silent_seconds(self) -> float:
        """Returns the time since the runner last looked for a pass to begin. It looks every second, whatever its passes wait for."""
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
        except Exception:  # a bug in the pass of one resource must not stop the others
            outcome = "crashed"
            log.exception("%s: the pass ended with an unexpected error. The operator tries again", key)
            self.queue.failed(key)
        else:
            self.queue.succeeded(key, next_seconds=next_seconds)
        metrics.RECONCILES.labels(key.kind, outcome).inc()
        metrics.RECONCILE_SECONDS.labels(key.kind, outcome).observe(time.monotonic() - began)
