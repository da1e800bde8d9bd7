"""The errors that end a worker. All others are reported and counted, and the worker goes on.

DelayedTopicsError (core)
└── WorkerError
    ├── ConfigInvalid      worker.json, or topics that can't be served together: exit code 2
    └── ClientFatal        Kafka has shut out this member permanently; a new process may get in: exit code 1
        └── ProtocolRefused  Kafka does not have the rebalance protocol, or not with this assignor: exit code 3
"""

from delayed_topics_core.errors import DelayedTopicsError


class WorkerError(DelayedTopicsError):
    """Base of all errors of this member."""


class ConfigInvalid(WorkerError, ValueError):
    """The configuration can't be used; the message says which field and what it must be."""


class ClientFatal(WorkerError):
    """The Kafka client can't go on, for example because another member of the same name has fenced it."""


class ProtocolRefused(ClientFatal):
    """Kafka does not have the rebalance protocol or the assignor. The operator makes the workers go on with `classic`."""

    def __init__(self, assignor: str, error: object) -> None:
        super().__init__(
            f"Kafka refuses the rebalance protocol consumer with the assignor {assignor} ({error}). It needs Kafka 4.0 or newer, with "
            "consumer in the broker setting group.coordinator.rebalance.protocols and the assignor in group.consumer.assignors"
        )
