"""Runs the passes of one kind: many at once, one at a time for each resource, failures put off longer and longer."""

import asyncio
import logging
import time
from typing import Protocol

from delayed_topics_kafka.errors import KafkaDoorError

from delayed_topics_operator import metrics
from delayed_topics_operator.errors import KubeUnreachable, OperatorError
from delayed_topics_operator.queue import Key, WakeQueue

log = logging.getLogger(__name__)


class Controller(Protocol):
    """`kind`: whose keys it is woken with. `watches`: kinds of which it is told by `changed`."""

    kind: str

    async def reconcile(self, key: Key) -> float | None:
        """One pass. Returns in how many seconds to look again at the latest; None: the resource is gone.

        Raises OperatorError or KafkaDoorError to be tried again later.
        """


class Runner:
    """The queue of one controller and the tasks that serve it."""

    def __init__(self, controller: Controller, *, passes_at_once: int, interval_seconds: float) -> None:
        self.controller = controller
        self.queue = WakeQueue(interval_seconds=interval_seconds, clock=time.monotonic)
        self._passes_at_once = passes_at_once

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._passes_at_once):
                tasks.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            await self._pass(await self.queue.next())

    async def _pass(self, key: Key) -> None:
        began = time.monotonic()
        outcome = "done"
        try:
            next_seconds = await self.controller.reconcile(key)
        except (OperatorError, KafkaDoorError) as e:
            outcome = "failed"
            log.warning("%s: %s", key, e)
            asked = e.retry_after_seconds if isinstance(e, KubeUnreachable) else None
            self.queue.failed(key, at_least_seconds=asked or 0.0)
        except Exception:  # a defect in one resource's pass must not stop the others
            outcome = "crashed"
            log.exception("%s: the pass ended with an unexpected error; it is tried again", key)
            self.queue.failed(key)
        else:
            self.queue.succeeded(key, next_seconds=next_seconds)
        metrics.RECONCILES.labels(key.kind, outcome).inc()
        metrics.RECONCILE_SECONDS.labels(key.kind).observe(time.monotonic() - began)
