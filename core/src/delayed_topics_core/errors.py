"""The exception tree of delayed topics.

DelayedTopicsError
├── IllegalTopicName        a topic name that Kafka or this project does not allow
├── UnreadableRecord        a registry record, an event, commit metadata, a frozen window or a table that can't be parsed
│   └── UnknownEventKind    an event of a kind that only newer versions know
└── …                       each member adds its own below DelayedTopicsError

The message of an error is the sentence that a user reads: what is wrong, where, and what to do.
"""


class DelayedTopicsError(Exception):
    """Base class of every error that this project raises on purpose."""


class IllegalTopicName(DelayedTopicsError, ValueError):
    """A topic name that can't be used. The message says which rule the name breaks."""


class UnreadableRecord(DelayedTopicsError, ValueError):
    """A registry record, an event, commit metadata, a frozen window or a table that can't be parsed."""


class UnknownEventKind(UnreadableRecord):
    """An event of a kind that only newer versions know. Readers of events skip it."""
