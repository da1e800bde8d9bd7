"""What may handle records: functions whose call does the work. And what is logged of those that raise."""

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
    """Raises TypeError for a function whose call would only make something that somebody has to await or to iterate over."""
    called: object = handler
    while isinstance(called, partial):
        called = called.func
    for function in (called, getattr(type(called), "__call__", None)):  # noqa: B004  that of the class is the one that is called
        if (
            inspect.iscoroutinefunction(function)
            or inspect.isgeneratorfunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise TypeError(f"the handler {handler!r} is asynchronous or a generator, and {_WHAT_TO_DO}")


def check_result(handler: Handler, result: object) -> None:
    """As `check_handler`, by what the call has returned."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"the handler {handler!r} returned {result!r}, which {_WHAT_TO_DO}")


class FailureLog:
    """Belongs to one thread. Warns of each type of exception once in WARN_SECONDS, with the traceback. What it does not warn of is one
    line of INFO: while a service is down, thousands of records may fail in a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._warned: dict[str, tuple[float, int]] = {}
        """By the name of the type: when it last warned of it, and how many it has not warned of since."""

    def tell(self, record: Record, becomes: str, error: BaseException) -> None:
        """`becomes`: what becomes of the record whose handler raised the error."""
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
