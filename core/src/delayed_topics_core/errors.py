"""The one exception tree of delayed topics.

DelayedTopicsError
├── IllegalTopicName        a name Kafka, or this project, can't take
├── UnreadableRecord        a registry record, an event, commit metadata, a frozen window or a table that doesn't parse
│   └── UnknownEventKind    an event of a kind that only newer versions know
└── …                       each member adds its own below DelayedTopicsError

The message is the sentence that a user reads: what is wrong, where, and what to do.
"""


class DelayedTopicsError(Exception):
    """Base of every error raised on purpose in this project."""


class IllegalTopicName(DelayedTopicsError, ValueError):
    """A topic name that can't be used; the message says which rule it breaks."""


class UnreadableRecord(DelayedTopicsError, ValueError):
    """A registry record, an event, commit metadata, a frozen window or a table that doesn't parse."""


class UnknownEventKind(UnreadableRecord):
    """An event of a kind that only newer versions know. Whoever reads events passes over it."""
