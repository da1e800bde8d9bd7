"""Calls about consumer groups, made in a process of their own.

The client library (librdkafka 2.16) aborts its whole process when a broker goes away while a call waits for a group's
coordinator: https://github.com/confluentinc/librdkafka/issues/4605. Here that ends a helper, and the call with KafkaUnreachable.
"""

import asyncio
import ctypes
import multiprocessing
import signal
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Literal, NamedTuple

from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaDoorError, KafkaRefused, KafkaUnreachable

Call = Literal["describe_groups", "committed_of_groups", "commit", "delete_groups", "fence"]
"""Methods of KafkaAdmin that return a result for each item."""

ATTEMPTS = 2
"""The helper may have ended since the last call; all calls may be repeated."""
PR_SET_PDEATHSIG = 1

_admin: KafkaAdmin


class _Failed(NamedTuple):
    """An error on its way between processes: exceptions with keyword-only parameters can't be pickled."""

    kind: type[KafkaDoorError]
    message: str
    code: str | None

    @classmethod
    def of(cls, error: KafkaDoorError) -> "_Failed":
        return cls(type(error), str(error), error.code if isinstance(error, KafkaRefused) else None)

    def error(self) -> KafkaDoorError:
        if issubclass(self.kind, KafkaRefused):
            return self.kind(self.message, code=self.code or "")
        return self.kind(self.message)


class GroupCalls:
    """The helper is begun with the first call and after each end. Belongs to one event loop."""

    def __init__(self, connection: Connection, *, client_id: str, timeout_seconds: float) -> None:
        self._connection = connection
        self._start = (connection, client_id, timeout_seconds)
        self._pool: ProcessPoolExecutor | None = None

    async def call(self, name: Call, *arguments: Any) -> dict[Any, Any]:
        """The results by item, KafkaDoorError among them. Raises KafkaUnreachable."""
        for _ in range(ATTEMPTS):
            pool = self._pool = self._pool or self._new()
            try:
                outcome = await asyncio.get_running_loop().run_in_executor(pool, _call, name, arguments)
            except BrokenProcessPool:
                self._drop(pool)
            else:
                if _unanswered(outcome):
                    self._drop(pool)  # after an outage its client may not find the coordinator again, a new one does
                return _with_errors(outcome)
        raise KafkaUnreachable(
            f"asking for consumer groups, the connection to Kafka at {self._connection.bootstrap_servers} broke; "
            "it is tried again"
        )

    def close(self, *, settle: bool) -> None:
        """Nobody waits for an answer any more. `settle`: blocks until the helper has ended what it is at."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=settle, cancel_futures=True)

    def _drop(self, pool: ProcessPoolExecutor) -> None:
        """The next call begins another helper; this one answers those who wait for it and ends."""
        if self._pool is pool:
            self._pool = None
        pool.shutdown(wait=False)

    def _new(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # a fork would have the client library without its threads
        return ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=self._start)


def _with_errors(outcome: Mapping[Any, Any]) -> dict[Any, Any]:
    """Errors stand for an item, or for a part of one (committed_of_groups)."""
    return {item: _restored(value) for item, value in outcome.items()}


def _unanswered(outcome: Mapping[Any, Any]) -> bool:
    return any(
        _unanswered(value) if isinstance(value, dict) else isinstance(value, _Failed) and value.kind is KafkaUnreachable
        for value in outcome.values()
    )


def _restored(value: Any) -> Any:
    if isinstance(value, _Failed):
        return value.error()
    return _with_errors(value) if isinstance(value, dict) else value


def _begin(connection: Connection, client_id: str, timeout_seconds: float) -> None:
    """In the helper. It ends with the operator, however that ends."""
    global _admin  # noqa: PLW0603  one for the life of the process
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _admin = KafkaAdmin(connection, client_id=client_id, timeout_seconds=timeout_seconds)


def _call(name: Call, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """In the helper."""
    return _portable(getattr(_admin, name)(*arguments))


def _portable(outcome: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        item: _Failed.of(value)
        if isinstance(value, KafkaDoorError)
        else _portable(value)
        if isinstance(value, dict)
        else value
        for item, value in outcome.items()
    }
