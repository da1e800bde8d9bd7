"""What can go wrong in the operator. Each error's message says what is wrong, where, and what to do.
`reason_of` returns the condition reason for an error.

DelayedTopicsError (core)
└── OperatorError
    ├── SpecInvalid             a manifest that the API server accepted, but that can't be carried out
    ├── ConnectionUnusable      the connection of a resource can't be used now; `reason` is the reason of the condition
    ├── NotYet                  an action has to wait for something; nothing is wrong, and the operator tries again soon
    │   └── ConnectionNotChecked           the connection was not checked in its present state yet; after the check, its users are woken
    ├── LeadershipLost              another operator of this installation may act now, so this one must not
    └── KubeError
        ├── KubeUnreachable     no answer, or the API server can't serve now; the same call may succeed later
        └── KubeRefused         the API server refused the call; `status` is the HTTP status
            ├── Forbidden       a right is missing, a policy refuses it, or the namespace is being deleted
            │   ├── QuotaExceeded
            │   └── Denied          by an admission webhook, which says why
            ├── Undeclared      the installed schema does not have a field that this version writes
            ├── NotFound
            ├── Conflict        someone else changed the object in the meantime
            ├── Expired         the API server no longer has the requested resource version
            └── Invalid         the object breaks a validation rule, or changes an immutable field
"""

import re

from delayed_topics_core.errors import DelayedTopicsError
from delayed_topics_core.reasons import Reason
from delayed_topics_kafka.errors import KafkaRefused, KafkaUnreachable, RegistryLost, RegistryTooLarge, TokenMissing

_OF_QUOTA = re.compile(r"(exceeded|failed) quota: ")
"""Recognizes the messages of the ResourceQuota admission plugin, which has no HTTP status of its own."""
SPEC_CODES = frozenset(
    {
        "INVALID_PARTITIONS",
        "INVALID_REPLICATION_FACTOR",
        "TOPIC_EXCEPTION",
        "INVALID_TOPIC_EXCEPTION",
        "POLICY_VIOLATION",
    }
)
"""Kafka's error codes for numbers and names that it does not accept."""


class OperatorError(DelayedTopicsError):
    """Base of all errors of this member."""


class SpecInvalid(OperatorError):
    """The message names the field and the rule."""


class ConnectionUnusable(OperatorError):
    """Kafka can't be used through this connection: the connection or a Secret is missing, or Kafka does not answer."""

    def __init__(self, message: str, *, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


class NotYet(OperatorError):
    """The operator tries again soon."""


class ConnectionNotChecked(NotYet):
    """The state of a connection is not known yet."""


class LeadershipLost(OperatorError):
    """This process is no longer the operator, and is about to end."""


class KubeError(OperatorError):
    """A call to the API server that failed."""


class KubeUnreachable(KubeError):
    """The outcome of the call is unknown. `retry_after_seconds`: the delay that the API server requested, or None."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class KubeRefused(KubeError):
    """The API server refused."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class Forbidden(KubeRefused):
    """403."""


class QuotaExceeded(Forbidden):
    """403 of a ResourceQuota, which says which and by how much."""


class Denied(Forbidden):
    """An admission webhook refused the object, with 403 or a status of its own."""


class Undeclared(KubeRefused):
    """500, and not 422, because a server-side apply has a field that the schema does not have."""


class NotFound(KubeRefused):
    """404."""


class Conflict(KubeRefused):
    """409."""


class Expired(KubeRefused):
    """410."""


class Invalid(KubeRefused):
    """422."""


def of_quota(message: str) -> bool:
    """Whether this is the message of a ResourceQuota."""
    return _OF_QUOTA.search(message) is not None


def reason_of(error: DelayedTopicsError) -> Reason:
    """Returns the condition reason for this error."""
    match error:
        case Invalid() | SpecInvalid():
            return Reason.SPEC_INVALID
        case QuotaExceeded():
            return Reason.QUOTA_EXCEEDED
        case KubeRefused() if not isinstance(error, Conflict):
            return Reason.KUBERNETES_REFUSED
        case TokenMissing():
            return Reason.TOKEN_MISSING
        case KafkaUnreachable():
            return Reason.KAFKA_UNREACHABLE
        case RegistryLost():
            return Reason.REGISTRY_LOST
        case RegistryTooLarge():
            return Reason.REGISTRY_TOO_LARGE
        case KafkaRefused():
            return Reason.SPEC_INVALID if error.code in SPEC_CODES else Reason.KAFKA_REFUSED
        case _:
            return Reason.IN_PROGRESS


def is_of_one_resource(error: DelayedTopicsError) -> bool:
    """Whether the cause is what one resource requests. Its owner can correct that, and the operator works as it should."""
    return isinstance(error, Denied) or reason_of(error) in (Reason.SPEC_INVALID, Reason.QUOTA_EXCEEDED)
