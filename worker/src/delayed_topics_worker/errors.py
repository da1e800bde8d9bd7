"""What ends a worker. Anything else is said, counted and survived.

DelayedTopicsError (core)
└── WorkerError
    ├── ConfigInvalid      worker.json, or topics that can't be served together: exit code 2
    └── ClientFatal        Kafka has shut this member out for good; a new process may get in: exit code 1
"""

from delayed_topics_core.errors import DelayedTopicsError


class WorkerError(DelayedTopicsError):
    """Base of all errors of this member."""


class ConfigInvalid(WorkerError, ValueError):
    """The configuration can't be used; the message says which field and what it must be."""


class ClientFatal(WorkerError):
    """The Kafka client can't go on, such as a member that was fenced by another one of the same name."""
