"""One deadline that all blocking steps of a call share."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_random_exponential

from delayed_topics_kafka.errors import KafkaUnreachable

T = TypeVar("T")

_WAIT: Final = wait_random_exponential(multiplier=0.05, max=0.5)


class Deadline:
    """A point in time `seconds` from now, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def remaining_seconds(self) -> float:
        return max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        return self.remaining_seconds == 0.0


def until_true(condition: Callable[[], bool], deadline: Deadline) -> bool:
    """Evaluates the condition at growing intervals until it is true. Returns False if the deadline passes first."""
    ask = Retrying(
        retry=retry_if_result(lambda true: not true),
        wait=_WAIT,
        stop=stop_after_delay(deadline.remaining_seconds),
        retry_error_callback=lambda _: False,
    )
    return ask(condition)


def until_reached(call: Callable[[], T], deadline: Deadline) -> T:
    """Returns what `call` returns. Calls it again, at growing intervals, while it raises KafkaUnreachable. Raises the last error when
    the deadline has passed."""
    again = Retrying(
        retry=retry_if_exception_type(KafkaUnreachable),
        wait=_WAIT,
        stop=stop_after_delay(deadline.remaining_seconds),
        reraise=True,
    )
    return again(call)
