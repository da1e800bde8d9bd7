"""The errors of calls to Kafka. The message of each says what is wrong, where, and what to do.

DelayedTopicsError (core)
└── KafkaCallError
    ├── ConnectionInvalid       bootstrap servers, credentials or certificates are missing or contradict each other
    ├── KafkaUnreachable        no answer in time; the same call may succeed later
    │   ├── TokenMissing        the token endpoint of the connection refuses, or doesn't answer
    │   └── LeadersMissing      the topic was created or grown, and some of its partitions have no leader yet
    └── KafkaRefused            Kafka refused the request; `code` is Kafka's name of the error
        ├── NotAuthorized       an ACL is missing, or the credentials are wrong
        ├── TopicMissing
        ├── TopicExists
        ├── GroupActive         the group has members, and only they can commit its offsets
        ├── SettingsRefused     some settings of a topic; `words_of` has Kafka's message about each
        ├── TopicTruncated      the topic does not continue at the next offset of its reader
        │   └── RegistryLost    the registry was truncated, or deleted, or created again
        ├── WriterFenced        a newer writer with the same transactional id has taken over
        └── RegistryTooLarge    the registry is larger than its reader may hold in memory
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
    """The base of all errors of this member. Errors can be pickled, with all attributes and without their cause."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception.__reduce__ would call the class with the message alone, but some classes have required keyword-only parameters
        return Exception.__new__, (type(self), *self.args), self.__dict__


class ConnectionInvalid(KafkaCallError, ValueError):
    """The settings of a connection are incomplete or contradict each other."""


class KafkaUnreachable(KafkaCallError):
    """No broker answered in time. Kafka may or may not have executed the request."""


class TokenMissing(KafkaUnreachable):
    """The token endpoint gave no token, so no request reached Kafka. The client library asks the endpoint again every 10 s."""


class LeadersMissing(KafkaUnreachable):
    """Some partitions of a topic have no leader yet. `made` describes the topic; its `left_out` has the settings that Kafka refused."""

    def __init__(self, message: str, *, made: TopicInfo) -> None:
        super().__init__(message)
        self.made = made


class KafkaRefused(KafkaCallError):
    """Kafka refused the request. `code` is Kafka's name of the error, and `words` is Kafka's message."""

    def __init__(self, message: str, *, code: str, words: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.words = words


class NotAuthorized(KafkaRefused):
    """The user of this connection lacks the right, or Kafka does not accept its credentials."""


class TopicMissing(KafkaRefused):
    """The topic, or the partition, doesn't exist."""


class TopicExists(KafkaRefused):
    """A topic of that name exists already."""


class GroupActive(KafkaRefused):
    """The consumer group has members, so only they can commit and the group can't be deleted."""


class SettingsRefused(KafkaRefused):
    """A policy of the brokers refuses these settings of a topic. The other settings of the same call were set.

    `words_of` has Kafka's message about each refused setting.
    """

    def __init__(self, message: str, *, code: str, words_of: Mapping[str, str]) -> None:
        super().__init__(message, code=code)
        self.words_of = words_of


class TopicTruncated(KafkaRefused):
    """The topic doesn't continue where its reader stopped. Either records were removed, or the topic was deleted and created again."""


class RegistryLost(TopicTruncated):
    """The registry does not continue where its reader stopped, so it is unknown which resource owns which topic."""


class RegistryTooLarge(KafkaRefused):
    """The registry has more keys and values than its reader may hold in memory."""


class WriterFenced(KafkaRefused):
    """A newer writer has the same transactional id. The fenced writer must not try again, because it would fence the newer one."""


TRANSIENT: Final = frozenset(
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
        KafkaError._DESTROY_BROKER,  # the broker that got the request has left the metadata
    }
)
"""Transient errors: the same request may succeed soon."""

_UNREACHABLE: Final = TRANSIENT | {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
}
FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
"""Kafka's answers to a producer whose transactional id is now used by a newer producer."""
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
"""What calls that serve callbacks raise, such as flushing and ending a transaction. If a producer has a fatal error while a callback runs,
the call raises SystemError instead of KafkaException."""


def kafka_error(raised: KafkaException | SystemError) -> KafkaError:
    """Returns the KafkaError inside the exception. If the client library has raised KafkaException with a plain text, makes one from it."""
    if isinstance(raised, SystemError):
        # the client library (2.16) never frees this exception, so its traceback would keep clients and their threads alive
        raised.__traceback__ = None
    if isinstance(raised.__cause__, KafkaException):
        raised = raised.__cause__
    inner = raised.args[0] if raised.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(raised))


MAX_ANSWER_CHARS: Final = 300
"""How much of a token endpoint's answer an error message quotes. The answer may be a whole page, and whoever sets the endpoint in a
connection can read the message."""
_NO_TOKEN: Final = "Failed to acquire SASL OAUTHBEARER token: "
_SASL_STATE: Final = "Request not valid in current SASL state"


def is_token_failure(error: KafkaError) -> bool:
    """Whether a token endpoint, and not Kafka, refused or did not answer."""
    return error.code() == KafkaError._AUTHENTICATION and error.str().startswith(_NO_TOKEN)


def is_end_of_login(error: KafkaError) -> bool:
    """Whether a connection has ended because its token has expired. The client library (2.16) connects again at once. With this error,
    Kafka refuses most of the client library's attempts to authenticate again on the same connection."""
    return error.code() == KafkaError._AUTHENTICATION and _SASL_STATE in error.str()


def call_error(error: KafkaError, *, doing: str, bootstrap_servers: str) -> KafkaCallError:
    """Returns the error of this module that `error` stands for. `doing` completes "… failed because …", such as "creating topic orders"."""
    failed = f"{doing} failed because"
    if is_token_failure(error):
        answer = error.str().removeprefix(_NO_TOKEN)[:MAX_ANSWER_CHARS]
        return TokenMissing(
            f"{failed} the token endpoint gave no token for Kafka at {bootstrap_servers}: {answer}. "
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
    """Returns the outcome. Raises it if it is an error."""
    if isinstance(outcome, KafkaCallError):
        raise outcome
    return outcome


def values_of(outcomes: Mapping[K, V | KafkaCallError]) -> dict[K, V]:
    """Returns the outcomes. Raises the first error among them."""
    return {item: value_of(outcome) for item, outcome in outcomes.items()}


@contextmanager
def making_client(bootstrap_servers: str) -> Iterator[None]:
    """Wraps the constructor of a client, which checks all properties. Raises ConnectionInvalid instead of KafkaException."""
    try:
        yield
    except KafkaException as e:
        raise ConnectionInvalid(
            f"the connection to Kafka at {bootstrap_servers} can't be used: {kafka_error(e).str()}. "
            "Correct its certificates, key, credentials or other properties"
        ) from e
