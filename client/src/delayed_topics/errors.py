"""The errors that the client raises, and what it catches of the user's code. All errors of the client and of its connection are
DelayedTopicsErrors."""

import asyncio
from typing import Final

from delayed_topics_core.errors import DelayedTopicsError

FAILURES: Final = (Exception, asyncio.CancelledError)
"""What counts as a failure of the user's code. asyncio.run raises CancelledError if its coroutine was cancelled. Other exceptions that are
no Exception are meant to end the process."""


class NotDelayedTopic(DelayedTopicsError):
    """The topic isn't a delayed topic of this Kafka cluster, isn't served yet, or is no longer a delayed topic."""


class SendFailed(DelayedTopicsError):
    """`failed` records did not arrive. The message has the first reason."""

    def __init__(self, message: str, *, failed: int) -> None:
        super().__init__(message)
        self.failed = failed


class RegistryInUse(DelayedTopicsError):
    """The registry has other records than those to be imported."""


class RedriveOvertaken(DelayedTopicsError):
    """Another redrive of the same topic has begun, or Kafka has ended the transaction of this one because it took too long."""


class RedrivePositionUnknown(DelayedTopicsError):
    """Kafka no longer knows up to which offset dead letters were sent."""


class GroupInvalid(DelayedTopicsError, ValueError):
    """The header of a retry can't hold this name of a consumer group."""


class ClientForked(DelayedTopicsError):
    """The client was made before this process was forked, so this process does not have the client's threads."""


class Reject(Exception):
    """A handler raises this to send its record to the dead-letter topic, whatever the retry cap. `reason` is for people, and may be a text
    or an exception."""

    def __init__(self, reason: object) -> None:
        super().__init__(reason)
        self.reason = text_of(reason)


def text_of(reason: object) -> str:
    """Returns the text of a reason or of an exception, even if its `__str__` raises."""
    try:
        return str(reason)
    except FAILURES as e:
        return f"its text can't be had, because __str__ raised {type(e).__name__}"
