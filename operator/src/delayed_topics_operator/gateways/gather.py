"""Batches requests to Kafka: those that come within a few milliseconds, or while a call is under way, become one call.

Each request gets its own part of the answer. The more requests there are, the larger are the batches: fifty resources take little longer
than one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
P = TypeVar("P")
R = TypeVar("R")

WINDOW_SECONDS = 0.02


class _Batch(Generic[K, P, R]):
    def __init__(self) -> None:
        self.items: dict[K, P] = {}
        self.answer: asyncio.Future[Mapping[K, R]] = asyncio.get_running_loop().create_future()


class Gatherer(Generic[K, P, R]):
    """`call` takes items with their parameters and returns a result for each. What it raises is raised in every request of the batch."""

    def __init__(
        self, call: Callable[[dict[K, P]], Awaitable[Mapping[K, R]]], *, window_seconds: float = WINDOW_SECONDS
    ) -> None:
        self._call = call
        self._window_seconds = window_seconds
        self._open: _Batch[K, P, R] | None = None
        self._under_way: asyncio.Task[None] | None = None

    async def ask(self, items: Mapping[K, P]) -> dict[K, R]:
        """Returns the results of these items. An item that several requests contain is sent once."""
        if not items:
            return {}
        if self._open is None:
            self._open = _Batch()
            asyncio.get_running_loop().call_later(self._window_seconds, self._send)
        batch = self._open
        batch.items.update(items)
        answer = await asyncio.shield(batch.answer)
        return {item: answer[item] for item in items}

    def _send(self) -> None:
        """Sends the open batch, unless a call is under way. Requests that come during a call go with the next one."""
        if self._open is None or self._under_way is not None:
            return
        batch, self._open = self._open, None
        self._under_way = asyncio.get_running_loop().create_task(self._settle(batch))

    async def _settle(self, batch: _Batch[K, P, R]) -> None:
        try:
            batch.answer.set_result(await self._call(batch.items))
        except Exception as e:  # noqa: BLE001  every request of the batch gets it
            batch.answer.set_exception(e)
            batch.answer.exception()  # marks it as retrieved, even if all requests were cancelled in the meantime
        finally:
            self._under_way = None
            self._send()
