"""What can go wrong in the operator. Each error's message says what is wrong, where, and what to do.
`reason_of` tells the reason of a condition that it stands for.

DelayedTopicsError (core)
└── OperatorError
    ├── SpecInvalid             a manifest that the API server took and that can't be followed
    ├── ConnectionUnusable      the connection of a resource can't be used now; `reason` is the condition's
    ├── NotYet                  an action has to wait for something; it is tried again soon and nothing is wrong
    │   └── ConnectionNotChecked           nobody has looked at the connection as it is now; who waits is woken when it was
    ├── LeadershipLost              another operator of this installation may act now, so this one must not
    └── KubeError
        ├── KubeUnreachable     no answer, or the API server can't serve now; the same call may succeed later
        └── KubeRefused         the API server answered no; `status` is the HTTP status
            ├── Forbidden       a right is missing, a policy refuses it, or the namespace is being deleted
            │   ├── QuotaExceeded
            │   └── Denied          by a policy of the cluster, which says why
            ├── NotFound
            ├── Conflict        somebody else changed the object meanwhile
            ├── Expired         the API server keeps the state that was asked for no longer
            └── Invalid         the object breaks a rule, or changes what can't be changed
"""

import re

from delayed_topics_core.errors import DelayedTopicsError
from delayed_topics_core.reasons import Reason
from delayed_topics_kafka.errors import KafkaRefused, KafkaUnreachable, RegistryLost, RegistryTooLarge, TokenMissing

_OF_QUOTA = re.compile(r"(exceeded|failed) quota: ")
"""What the admission of quotas says; it has no status of its own."""
SPEC_CODES = frozenset(
    {
        "INVALID_PARTITIONS",
        "INVALID_REPLICATION_FACTOR",
        "TOPIC_EXCEPTION",
        "INVALID_TOPIC_EXCEPTION",
        "POLICY_VIOLATION",
    }
)
"""What Kafka says to numbers and names that it does not take."""


class OperatorError(DelayedTopicsError):
    """Base of all errors of this member."""


class SpecInvalid(OperatorError):
    """The message names the field and the rule."""


class ConnectionUnusable(OperatorError):
    """Kafka can't be reached by this connection: it is missing, its Secrets are, or Kafka does not answer."""

    def __init__(self, message: str, *, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


class NotYet(OperatorError):
    """To be tried again soon."""


class ConnectionNotChecked(NotYet):
    """The state of a connection is not known yet."""


class LeadershipLost(OperatorError):
    """This process is no longer the operator, and is about to end."""


class KubeError(OperatorError):
    """A call to the API server that failed."""


class KubeUnreachable(KubeError):
    """Nothing is known about the outcome. `retry_after_seconds`: what the API server asked for, if it did."""

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
    """An admission webhook said no, with 403 or a status of its own."""


class NotFound(KubeRefused):
    """404."""


class Conflict(KubeRefused):
    """409."""


class Expired(KubeRefused):
    """410."""


class Invalid(KubeRefused):
    """422."""


def of_quota(message: str) -> bool:
    """Whether a ResourceQuota is what refused."""
    return _OF_QUOTA.search(message) is not None


def reason_of(error: DelayedTopicsError) -> Reason:
    """The reason of a condition that this error stands for."""
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
    """Whether it is about what a resource asks for. Whoever owns it can do something about that, and the operator does its work."""
    return isinstance(error, Denied) or reason_of(error) in (Reason.SPEC_INVALID, Reason.QUOTA_EXCEEDED)
