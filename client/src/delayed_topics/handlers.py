"""Checks that a handler does its work when it is called, and logs the exceptions of handlers."""

import inspect
import logging
import time
from collections.abc import Callable
from functools import partial
from math import inf

from delayed_topics.errors import text_of
from delayed_topics.record import Record

log = logging.getLogger(__name__)

WARN_SECONDS = 10.0

Handler = Callable[[Record], object]
_WHAT_TO_DO = (
    "would not be run. A handler must have done its work when it returns. Use a plain function, "
    "which can call asyncio.run for a coroutine"
)


def check_handler(handler: Handler) -> None:
    """Raises TypeError for a coroutine function or a generator, whose call would only return something to await or to iterate over."""
    called: object = handler
    while isinstance(called, partial):
        called = called.func
    for function in (called, getattr(type(called), "__call__", None)):  # noqa: B004  Python calls `__call__` of the class
        if (
            inspect.iscoroutinefunction(function)
            or inspect.isgeneratorfunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise TypeError(f"the handler {handler!r} is asynchronous or a generator, and {_WHAT_TO_DO}")


def check_result(handler: Handler, result: object) -> None:
    """As `check_handler`, but checks what the call has returned."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"the handler {handler!r} returned {result!r}, which {_WHAT_TO_DO}")


class FailureLog:
    """Logs each type of exception as a warning with its traceback once in WARN_SECONDS, and otherwise as one line at INFO. While a
    service is down, thousands of records may fail in a second. Belongs to one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._warned: dict[str, tuple[float, int]] = {}
        """By name of the type: when the last warning was, and how many exceptions were logged at INFO since."""

    def log(self, record: Record, becomes: str, error: BaseException) -> None:
        """Logs the error of a handler. `becomes` says what becomes of the record."""
        kind, now = type(error).__qualname__, self._clock()
        at, quiet = self._warned.get(kind, (-inf, 0))
        warns = now >= at + WARN_SECONDS
        self._warned[kind] = (now, 0) if warns else (at, quiet + 1)
        log.log(
            logging.WARNING if warns else logging.INFO,
            "%s [%d] offset %d, attempt %d, %s, because the handler raised %s: %s%s",
            *(record.topic, record.partition, record.offset, record.attempt, becomes, kind, text_of(error)),
            f". {quiet} more with {kind} since the last warning" if warns and quiet else "",
            exc_info=error if warns else None,
        )
