"""The one exception tree of delayed topics.

DelayedTopicsError
├── IllegalTopicName        a name Kafka, or this project, can't take
├── UnreadableHeader        an own header that is there twice, not decimal, negative or out of range
├── UnreadableRecord        a registry record, commit metadata or frozen window that doesn't parse
└── …                       each member adds its own below DelayedTopicsError

The message is the sentence that a user reads: what is wrong, where, and what to do.
"""

from delayed_topics_core.reasons import DeadLetterReason


class DelayedTopicsError(Exception):
    """Base of every error raised on purpose in this project."""


class IllegalTopicName(DelayedTopicsError, ValueError):
    """A topic name that can't be used; the message says which rule it breaks."""


class UnreadableRecord(DelayedTopicsError, ValueError):
    """A registry record, commit metadata or frozen window that doesn't parse."""


class UnreadableHeader(DelayedTopicsError, ValueError):
    """An own header that can't be honoured; the record becomes a dead letter with `reason`."""

    def __init__(self, reason: DeadLetterReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
