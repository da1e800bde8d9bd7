"""Calls about consumer groups, made in a small process of each connection's own.

The client library (librdkafka 2.16) aborts its whole process when a broker goes away while a call waits for a group's
coordinator: https://github.com/confluentinc/librdkafka/issues/4605. Here that ends a helper, and the call with KafkaUnreachable.
One helper for all connections would have one Kafka end the calls to all others.

Helpers are forked from one process that has imported what they need and has made no client, so that they share its memory. Python
imports the main module of the operator into each of them unless that is `-m delayed_topics_operator`, as in the image.
"""

import asyncio
import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaUnreachable

from delayed_topics_operator import metrics
from delayed_topics_operator.gateways import helper

ATTEMPTS = 2
"""The helper may have ended since the last call; all calls may be repeated."""
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([helper.__name__])


class GroupHelper:
    """The helper is begun with the first call and after each end. Belongs to one event loop."""

    def __init__(self, connection: Connection, *, client_id: str, timeout_seconds: float) -> None:
        self._connection = connection
        self._start = (connection, client_id, timeout_seconds)
        self._pool: ProcessPoolExecutor | None = None

    async def call(self, name: helper.Call, *arguments: Any) -> dict[Any, Any]:
        """The results by item, KafkaCallError among them. Raises KafkaUnreachable."""
        for _ in range(ATTEMPTS):
            pool = self._pool = self._pool or self._new()
            try:
                outcome = await asyncio.get_running_loop().run_in_executor(pool, helper.call, name, arguments)
            except BrokenProcessPool:
                self._drop(pool)
            else:
                if _unanswered(outcome):
                    self._drop(pool)  # after an outage its client may not find the coordinator again, a new one does
                return outcome
        raise KafkaUnreachable(
            f"the connection to Kafka at {self._connection.bootstrap_servers} broke while the operator asked for consumer groups. "
            "The operator tries again"
        )

    def close(self, *, settle: bool) -> None:
        """Nobody waits for an answer any more. `settle`: blocks until the helper has ended what it is at."""
        if self._pool is not None:
            self._drop(self._pool, settle=settle, cancel=True)

    def _drop(self, pool: ProcessPoolExecutor, *, settle: bool = False, cancel: bool = False) -> None:
        """The next call begins another helper; this one answers those who wait for it and ends."""
        if self._pool is pool:
            self._pool = None
            metrics.HELPERS.dec()
        pool.shutdown(wait=settle, cancel_futures=cancel)

    def _new(self) -> ProcessPoolExecutor:
        metrics.HELPERS.inc()
        return ProcessPoolExecutor(1, mp_context=_FORKS, initializer=helper.begin, initargs=self._start)


def _unanswered(outcome: Mapping[Any, Any]) -> bool:
    """Whether an item, or a part of one (committed_of_groups), had no answer."""
    return any(
        _unanswered(value) if isinstance(value, dict) else type(value) is KafkaUnreachable for value in outcome.values()
    )
