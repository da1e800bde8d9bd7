"""Calls about consumer groups, made in a small helper process for each connection.

The client library (librdkafka 2.16) aborts its whole process when a broker goes away while a call waits for the coordinator of a group:
https://github.com/confluentinc/librdkafka/issues/4605. Here this ends only a helper, and the call fails with KafkaUnreachable. If all
connections had the same helper, one Kafka could end the calls to all others.

Helpers are forked from one process that has imported their modules and has created no client, so that they share its memory. Python imports
the main module of the operator into each helper, unless the operator runs as `-m delayed_topics_operator`, as in the image.
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
"""The helper may have ended since the last call. All calls may be repeated."""
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([helper.__name__])


class GroupHelper:
    """The first call starts the helper, and the next call after its end starts another. Belongs to one event loop."""

    def __init__(self, connection: Connection, *, client_id: str, timeout_seconds: float) -> None:
        self._connection = connection
        self._start = (connection, client_id, timeout_seconds)
        self._pool: ProcessPoolExecutor | None = None

    async def call(self, name: helper.Call, *arguments: Any) -> dict[Any, Any]:
        """Returns the results by item. An item that failed has a KafkaCallError as its result. Raises KafkaUnreachable."""
        for _ in range(ATTEMPTS):
            pool = self._pool = self._pool or self._new()
            try:
                outcome = await asyncio.get_running_loop().run_in_executor(pool, helper.call, name, arguments)
            except BrokenProcessPool:
                self._drop(pool)
            else:
                if _unanswered(outcome):
                    # after an outage, its client may not find the coordinator again; a new client does
                    self._drop(pool)
                return outcome
        raise KafkaUnreachable(
            f"the connection to Kafka at {self._connection.bootstrap_servers} broke while the operator asked for consumer groups. "
            "The operator tries again"
        )

    def close(self, *, settle: bool) -> None:
        """Ends the helper and cancels the calls that wait for it. `settle`: blocks until its present call has ended."""
        if self._pool is not None:
            self._drop(self._pool, settle=settle, cancel=True)

    def _drop(self, pool: ProcessPoolExecutor, *, settle: bool = False, cancel: bool = False) -> None:
        """Ends the helper after the calls that wait for it; `cancel`: cancels these. The next call starts another one."""
        if self._pool is pool:
            self._pool = None
            metrics.HELPERS.dec()
        pool.shutdown(wait=settle, cancel_futures=cancel)

    def _new(self) -> ProcessPoolExecutor:
        metrics.HELPERS.inc()
        return ProcessPoolExecutor(1, mp_context=_FORKS, initializer=helper.begin, initargs=self._start)


def _unanswered(outcome: Mapping[Any, Any]) -> bool:
    """Whether Kafka did not answer for an item, or for a part of one (`committed_of_groups`)."""
    return any(
        _unanswered(value) if isinstance(value, dict) else type(value) is KafkaUnreachable for value in outcome.values()
    )
