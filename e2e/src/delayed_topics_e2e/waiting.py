"""Waiting for a condition with a deadline, and telling what was there instead."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import tenacity

__all__ = ["until"]

Seen = TypeVar("Seen")


def until(
    look: Callable[[], Seen],
    *,
    what: str,
    timeout_seconds: float = 180,
    enough: Callable[[Seen], bool] = bool,
    evidence: Callable[[], str] = str,
    poll_seconds: float = 0.25,
) -> Seen:
    """Look until what is seen is enough, and return it.

    Raises AssertionError after `timeout_seconds`, with `what`, the last thing seen and the evidence.
    """
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout_seconds),
        wait=tenacity.wait_fixed(poll_seconds),
        retry=tenacity.retry_if_result(lambda seen: not enough(seen)),
    )
    try:
        return retrying(look)
    except tenacity.RetryError as e:
        seen = e.last_attempt.result()
        raise AssertionError(
            f"timed out after {timeout_seconds:g} s. Waited for: {what}. Seen last: {_shown(seen)}\n{evidence()}"
        ) from None


def _shown(seen: Any) -> str:
    text = json.dumps(seen, indent=1) if isinstance(seen, dict | list) else repr(seen)
    return text if len(text) < 4000 else text[:4000] + " …"
