"""What a user of the client may have to catch. All of them, and those of the connection, are DelayedTopicsErrors. And what the client
catches of the user's code, and says of it."""

import asyncio
from typing import Final

from delayed_topics_core.errors import DelayedTopicsError

FAILURES: Final = (Exception, asyncio.CancelledError)
"""A coroutine that was cancelled raises the second out of asyncio.run. What else is no Exception is meant to end the process."""


class NotDelayedTopic(DelayedTopicsError):
    """The topic isn't a delayed topic of this Kafka cluster, or isn't served yet, or is one no more."""


class SendFailed(DelayedTopicsError):
    """`failed` records did not arrive; the message has the first reason."""

    def __init__(self, message: str, *, failed: int) -> None:
        super().__init__(message)
        self.failed = failed


class RegistryInUse(DelayedTopicsError):
    """The registry has other records than those that were to be imported."""


class RedriveOvertaken(DelayedTopicsError):
    """Another redrive of the same topic has begun, or Kafka has ended the transaction of this one, which took too long."""


class RedrivePositionUnknown(DelayedTopicsError):
    """Kafka does not have any more up to where dead letters were sent."""


class GroupInvalid(DelayedTopicsError, ValueError):
    """The name of a consumer group isn't one that the header of a retry can carry."""


class ClientForked(DelayedTopicsError):
    """The client was made before this process was forked from the one that made it, and its threads are not in this one."""


class Reject(Exception):
    """Raised by a handler: the record goes to the dead-letter topic, whatever the retry cap. `reason` is for people: a text, or an
    exception."""

    def __init__(self, reason: object) -> None:
        super().__init__(reason)
        self.reason = text_of(reason)


def text_of(said: object) -> str:
    """What a reason or an exception says, also of one whose `__str__` raises."""
    try:
        return str(said)
    except FAILURES as e:
        return f"its text can't be had, because __str__ raised {type(e).__name__}"
