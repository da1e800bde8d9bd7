"""What can go wrong in calls to Kafka. Each error's message says what, where, and what to do.

DelayedTopicsError (core)
└── KafkaCallError
    ├── ConnectionInvalid       bootstrap servers, credentials or certificates are missing or don't fit together
    ├── KafkaUnreachable        no answer in time; the same call may succeed later
    │   ├── TokenMissing        the token endpoint of the connection refuses, or doesn't answer
    │   └── LeadersMissing      the topic was made, or grown, and some of its partitions have no leader yet
    └── KafkaRefused            Kafka answered no; `code` is Kafka's name of the reason
        ├── NotAuthorized       an ACL or the credentials
        ├── TopicMissing
        ├── TopicExists
        ├── GroupActive         members are in the group, so its offsets are theirs
        ├── SettingsRefused     some settings of a topic; `words_of` has Kafka's of each
        ├── TopicTruncated      the topic does not continue at the next offset of its reader
        │   └── RegistryLost    the registry was truncated, or deleted, or created again
        ├── WriterFenced        a newer writer of the same transactional id has taken over
        └── RegistryTooLarge    the registry has more than its reader holds
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from delayed_topics_core.errors import DelayedTopicsError

from delayed_topics_kafka.model import TopicInfo

K = TypeVar("K")
V = TypeVar("V")


class KafkaCallError(DelayedTopicsError):
    """Base of all errors of this member. Can be sent to another process, with all attributes and without its cause."""

    def __reduce__(self) -> tuple[Any, ...]:
        # that of Exception calls the class with the message alone, and some have keyword-only parameters without a default
        return Exception.__new__, (type(self), *self.args), self.__dict__


class ConnectionInvalid(KafkaCallError, ValueError):
    """The settings of a connection are incomplete or contradict each other."""


class KafkaUnreachable(KafkaCallError):
    """No broker answered in time. Nothing is known about the outcome."""


class TokenMissing(KafkaUnreachable):
    """Kafka was not asked, since the token endpoint gave no token. The client library asks it again every 10 s."""


class LeadersMissing(KafkaUnreachable):
    """Some partitions of a topic have no leader yet. `made`: the topic as it is; its `left_out` has the settings that Kafka refused."""

    def __init__(self, message: str, *, made: TopicInfo) -> None:
        super().__init__(message)
        self.made = made


class KafkaRefused(KafkaCallError):
    """Kafka refused. `code`: Kafka's name of the reason. `words`: Kafka's message."""

    def __init__(self, message: str, *, code: str, words: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.words = words


class NotAuthorized(KafkaRefused):
    """The user of this connection may not do that."""


class TopicMissing(KafkaRefused):
    """The topic, or the partition, doesn't exist."""


class TopicExists(KafkaRefused):
    """A topic of that name exists already."""


class GroupActive(KafkaRefused):
    """The consumer group has members: only they can commit, and it can't be deleted."""


class SettingsRefused(KafkaRefused):
    """Kafka doesn't take these settings of a topic, by a policy of whoever runs it; others of the same call were set."""

    def __init__(self, message: str, *, code: str, words_of: Mapping[str, str]) -> None:
        super().__init__(message, code=code)
        self.words_of = words_of


class TopicTruncated(KafkaRefused):
    """The topic doesn't continue where it was read last: its records were removed, or it was deleted and created again."""


class RegistryLost(TopicTruncated):
    """The registry does not continue where it was read last. It is unknown which resource owns which topic."""


class RegistryTooLarge(KafkaRefused):
    """The registry has more than its reader was told to hold."""


class WriterFenced(KafkaRefused):
    """A newer writer has the same transactional id. This one must not try again: it would shut the newer one out."""


PASSING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,  # another replica becomes the leader
        KafkaError.OFFSET_NOT_AVAILABLE,  # the leader was elected a moment ago
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.NOT_CONTROLLER,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError._DESTROY_BROKER,  # the broker that was asked has gone from the metadata
    }
)
"""Kafka's answers that mean "ask again soon"."""

_UNREACHABLE: Final = PASSING | {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
}
FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
"""Kafka's answers to a producer whose transactional id a newer one has."""
_REFUSALS: Final[dict[int, type[KafkaRefused]]] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.SASL_AUTHENTICATION_FAILED: NotAuthorized,
    KafkaError._AUTHENTICATION: NotAuthorized,
    KafkaError.UNKNOWN_TOPIC_OR_PART: TopicMissing,
    KafkaError._UNKNOWN_TOPIC: TopicMissing,
    KafkaError._UNKNOWN_PARTITION: TopicMissing,
    KafkaError.TOPIC_ALREADY_EXISTS: TopicExists,
    KafkaError.UNKNOWN_MEMBER_ID: GroupActive,
    KafkaError.NON_EMPTY_GROUP: GroupActive,
    KafkaError.GROUP_SUBSCRIBED_TO_TOPIC: GroupActive,
    **dict.fromkeys(FENCED, WriterFenced),
}
_WHAT_TO_DO: Final[dict[type[KafkaRefused], str]] = {
    NotAuthorized: ". Either grant this to the user of the connection, or correct the connection's credentials",
    GroupActive: ". Stop the group's members first",
    WriterFenced: ". Another process has taken over from this writer",
}


RAISED: Final = (KafkaException, SystemError)
"""What calls that serve callbacks raise, such as flushing and ending a transaction. A SystemError takes the place of the KafkaException of
a producer that has ended for good, if a callback runs at the time."""


def kafka_error(raised: KafkaException | SystemError) -> KafkaError:
    """The KafkaError inside; the client library also raises KafkaException with a plain text."""
    if isinstance(raised, SystemError):
        # the client library (2.16) never frees it, nor what its traceback refers to: clients with their threads
        raised.__traceback__ = None
    if isinstance(raised.__cause__, KafkaException):
        raised = raised.__cause__
    inner = raised.args[0] if raised.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(raised))


MAX_ANSWER_CHARS: Final = 300
"""How much of a token endpoint's answer a message quotes. The answer may be a whole page, and whoever names the endpoint in a connection
can read the message."""
_NO_TOKEN: Final = "Failed to acquire SASL OAUTHBEARER token: "
_SASL_STATE: Final = "Request not valid in current SASL state"


def is_token_failure(error: KafkaError) -> bool:
    """Whether it was a token endpoint, and not Kafka, that refused or did not answer."""
    return error.code() == KafkaError._AUTHENTICATION and error.str().startswith(_NO_TOKEN)


def is_end_of_login(error: KafkaError) -> bool:
    """Whether a connection has ended together with the token that it was made with. The client library (2.16) connects again at once. Kafka
    refuses in this way most of its tries to show a new token on the same connection."""
    return error.code() == KafkaError._AUTHENTICATION and _SASL_STATE in error.str()


def call_error(error: KafkaError, *, doing: str, bootstrap_servers: str) -> KafkaCallError:
    """The error of this module that `error` stands for. `doing` completes "… failed because …", such as "creating topic orders"."""
    failed = f"{doing} failed because"
    if is_token_failure(error):
        said = error.str().removeprefix(_NO_TOKEN)[:MAX_ANSWER_CHARS]
        return TokenMissing(
            f"{failed} the token endpoint gave no token for Kafka at {bootstrap_servers}: {said}. "
            "If the endpoint refused, correct the client id, the client secret and the scope. "
            "Otherwise correct its URL, the authority of its certificate, or the network"
        )
    if error.code() in _UNREACHABLE or is_end_of_login(error):
        return KafkaUnreachable(
            f"{failed} Kafka at {bootstrap_servers} did not answer in time ({error.name()}: {error.str()}). "
            "Check the address, the network and the brokers"
        )
    kind = _REFUSALS.get(error.code(), KafkaRefused)
    return kind(
        f"{failed} Kafka at {bootstrap_servers} refused it ({error.name()}: {error.str()}){_WHAT_TO_DO.get(kind, '')}",
        code=error.name(),
        words=error.str(),
    )


def value_of(outcome: V | KafkaCallError) -> V:
    """Raises the error, if it is one."""
    if isinstance(outcome, KafkaCallError):
        raise outcome
    return outcome


def values_of(outcomes: Mapping[K, V | KafkaCallError]) -> dict[K, V]:
    """Raises the first error, if any is one."""
    return {item: value_of(outcome) for item, outcome in outcomes.items()}


@contextmanager
def making_client(bootstrap_servers: str) -> Iterator[None]:
    """Around the constructor of a client, which looks at all properties. Raises ConnectionInvalid."""
    try:
        yield
    except KafkaException as e:
        raise ConnectionInvalid(
            f"the connection to Kafka at {bootstrap_servers} can't be used: {kafka_error(e).str()}. "
            "Correct its certificates, key, credentials or other properties"
        ) from e
