"""Waiting for a condition instead of a fixed time."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import tenacity

from delayed_topics_devcluster.errors import NotInTimeError

__all__ = ["wait_until"]

MAX_SHOWN_CHARACTERS = 4000

Seen = TypeVar("Seen")


def wait_until(
    look: Callable[[], Seen],
    *,
    what: str,
    timeout_seconds: float = 180,
    poll_seconds: float = 0.05,
    enough: Callable[[Seen], bool] = bool,
    evidence: Callable[[], object] | None = None,
) -> Seen:
    """Calls `look` until `enough` accepts its result, and returns the result. Raises NotInTimeError after the timeout; its message names
    `what`, the last result, and the result of `evidence`.

    An exception from `look` ends the waiting: so a condition can report that it can't become true any more.
    """
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout_seconds),
        wait=tenacity.wait_fixed(poll_seconds),
        retry=tenacity.retry_if_result(lambda seen: not enough(seen)),
    )
    try:
        return retrying(look)
    except tenacity.RetryError as e:
        last = e.last_attempt.result()
        details = [] if isinstance(last, bool) else [f"Seen last: {_shown(last)}"]
        details += [f"Seen: {evidence()}"] if evidence else []
        message = ". ".join([f"timed out after {timeout_seconds:g} seconds. Waited for: {what}", *details])
        raise NotInTimeError(message) from None


def _shown(seen: Any) -> str:
    text = json.dumps(seen, indent=1, default=repr) if isinstance(seen, dict | list) else repr(seen)
    return text if len(text) < MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + " …"
