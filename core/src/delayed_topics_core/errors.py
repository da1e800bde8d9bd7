"""The one exception tree of delayed topics.

DelayedTopicsError
├── IllegalTopicName        a name Kafka, or this project, can't take
├── UnreadableRecord        a registry record, commit metadata or frozen window that doesn't parse
└── …                       each member adds its own below DelayedTopicsError

The message is the sentence that a user reads: what is wrong, where, and what to do.
"""


class DelayedTopicsError(Exception):
    """Base of every error raised on purpose in this project."""


class IllegalTopicName(DelayedTopicsError, ValueError):
    """A topic name that can't be used; the message says which rule it breaks."""


class UnreadableRecord(DelayedTopicsError, ValueError):
    """A registry record, commit metadata or frozen window that doesn't parse."""
