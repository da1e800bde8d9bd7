"""Waiting for a condition instead of for a time."""

from collections.abc import Callable

import tenacity

from delayed_topics_devcluster.errors import NotInTimeError

__all__ = ["wait_until"]


def wait_until(
    condition: Callable[[], bool],
    *,
    what: str,
    timeout_seconds: float = 180,
    poll_seconds: float = 0.05,
    evidence: Callable[[], object] | None = None,
) -> None:
    """Return as soon as `condition()` is true; raise NotInTimeError naming `what` if it isn't in time, and what `evidence` sees then.

    An exception from the condition ends the waiting: it is how a condition says that it can't come true any more.
    """
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout_seconds),
        wait=tenacity.wait_fixed(poll_seconds),
        retry=tenacity.retry_if_result(lambda met: not met),
    )
    try:
        retrying(condition)
    except tenacity.RetryError:
        seen = f". Seen: {evidence()}" if evidence else ""
        raise NotInTimeError(f"timed out after {timeout_seconds:g} seconds. Waited for: {what}{seen}") from None
