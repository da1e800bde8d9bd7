"""What may handle records: functions whose call does the work."""

import inspect
from collections.abc import Callable
from functools import partial

from delayed_topics.record import Record

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
