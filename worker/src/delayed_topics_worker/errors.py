"""What ends a worker. Anything else is said, counted and survived.

DelayedTopicsError (core)
└── WorkerError
    ├── ConfigInvalid      worker.json, or topics that can't be served together: exit code 2
    └── ClientFatal        Kafka has shut this member out for good; a new process may get in: exit code 1
        └── ProtocolRefused  Kafka hasn't the rebalance protocol, or not with this assignor: exit code 3
"""

from delayed_topics_core.errors import DelayedTopicsError


class WorkerError(DelayedTopicsError):
    """Base of all errors of this member."""


class ConfigInvalid(WorkerError, ValueError):
    """The configuration can't be used; the message says which field and what it must be."""


class ClientFatal(WorkerError):
    """The Kafka client can't go on, such as a member that was fenced by another one of the same name."""


class ProtocolRefused(ClientFatal):
    """Kafka knows no such rebalance protocol or assignor. The operator has the workers go on with `classic`."""

    def __init__(self, assignor: str, error: object) -> None:
        super().__init__(
            f"Kafka refuses the rebalance protocol consumer with the assignor {assignor} ({error}). It needs Kafka 4.0 or newer, with "
            "consumer in the broker setting group.coordinator.rebalance.protocols and the assignor in group.consumer.assignors"
        )
