"""One admin call for many items: it is sent for all of them together, and repeated for those that failed with a transient error."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline, until_true
from delayed_topics_kafka.errors import (
    TRANSIENT,
    KafkaCallError,
    KafkaRefused,
    KafkaUnreachable,
    call_error,
    is_token_failure,
    kafka_error,
    making_client,
)
from delayed_topics_kafka.stranded import collect_auth_error

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Wait = Callable[[float], Any]
"""Waits for a result for at most that many seconds, such as the method `result` of a future."""
Send = Callable[[list[K], float], Mapping[K, Wait]]
"""Starts the call for these items with a timeout in seconds."""

ERROR_GRACE_SECONDS = 1.0
"""How much longer than the timeout librdkafka may take to report that the timeout has passed."""


class AdminCalls:
    """The client, the deadline, the retries and the errors that all admin calls share."""

    def __init__(
        self, connection: Connection, *, client_id: str = "delayed-topics-admin", timeout_seconds: float = 30
    ) -> None:
        """`timeout_seconds` bounds each call as a whole, including its retries. Raises ConnectionInvalid."""
        self._bootstrap_servers = connection.bootstrap_servers
        self._timeout_seconds = timeout_seconds
        self._auth_errors: list[KafkaError] = []
        self._unreachable = False
        self._knows_brokers = False  # whether the client has learned more brokers than the bootstrap servers
        self._former: list[tuple[AdminClient, float]] = []
        further: dict[str, Any] = {"client.id": client_id, "error_cb": partial(collect_auth_error, self._auth_errors)}
        self._config = {**connection.client_config(), **further}
        with making_client(connection.bootstrap_servers):
            self._client, self._made_at = AdminClient(self._config), time.monotonic()

    def _deadline(self) -> Deadline:
        if self._unreachable and time.monotonic() - self._made_at >= self._timeout_seconds:
            self._renew_client()
        self._client.poll(0)
        # keep token failures: the client library does not report the same failure of a token endpoint a second time
        self._auth_errors[:] = filter(is_token_failure, self._auth_errors)
        return Deadline(self._timeout_seconds)

    def _renew_client(self) -> None:
        """Replaces the client, because it may be stranded (see stranded.py). Between calls nothing polls the client, so its
        statistics can't show whether it is."""
        now = time.monotonic()
        self._unreachable = self._knows_brokers = False
        kept_seconds = 2 * self._timeout_seconds  # other threads may still be in a call with the former client
        self._former = [(client, at) for client, at in self._former if now - at < kept_seconds]
        self._former.append((self._client, now))
        self._client, self._made_at = AdminClient(self._config), now

    def _many(
        self,
        items: Sequence[K],
        send: Send[K],
        doing: Callable[[K], str],
        value: Callable[[Any], V],
        deadline: Deadline | None = None,
    ) -> dict[K, V | KafkaCallError]:
        """Returns for each item the `value` of Kafka's answer, or an error whose message begins with what `doing` returns."""
        outcomes = settle(items, send, deadline or self._deadline())
        if not all(isinstance(outcome, KafkaError) for outcome in outcomes.values()):
            self._auth_errors.clear()
        return {
            item: self._error(outcome, doing(item)) if isinstance(outcome, KafkaError) else value(outcome)
            for item, outcome in outcomes.items()
        }

    def _error(self, error: KafkaError, doing: str) -> KafkaCallError:
        found = call_error(error, doing=doing, bootstrap_servers=self._bootstrap_servers)
        if isinstance(found, KafkaUnreachable):
            self._unreachable = True
            # With a wrong password or certificate, the client library keeps trying and the call only times out.
            self._client.poll(0)
            if refusals := self._auth_errors[-1:]:
                return call_error(refusals[0], doing=doing, bootstrap_servers=self._bootstrap_servers)
        return found

    def _too_slow(self, doing: str) -> KafkaUnreachable:
        return KafkaUnreachable(
            f"Kafka at {self._bootstrap_servers} did not finish {doing} within {self._timeout_seconds:g} s. "
            "Check that all brokers are up"
        )


def settle(items: Sequence[K], send: Send[K], deadline: Deadline) -> dict[K, Any | KafkaError]:
    """Repeats the call for the items with a transient error, until the deadline. Returns the answer, or the last error, of each item."""
    outcomes: dict[K, Any | KafkaError] = {}

    def attempt() -> bool:
        pending = [item for item in items if item not in outcomes or is_transient(outcomes[item])]
        outcomes.update(ask_once(pending, send, max(0.1, deadline.remaining_seconds)))
        return not any(is_transient(outcome) for outcome in outcomes.values())

    if items:
        until_true(attempt, deadline)
    return outcomes


def ask_once(items: list[K], send: Send[K], timeout_seconds: float) -> dict[K, Any | KafkaError]:
    """Makes the call once. Returns the answer, or the error, of each item."""
    try:
        waits = send(items, timeout_seconds)
    except KafkaException as e:
        return dict.fromkeys(items, kafka_error(e))
    return {item: _outcome(wait, timeout_seconds) for item, wait in waits.items()}


def is_transient(outcome: Any | KafkaError) -> bool:
    """Whether the outcome is an error after which the same call may succeed."""
    return isinstance(outcome, KafkaError) and outcome.code() in TRANSIENT


def forgiving(outcomes: dict[K, KafkaCallError | None], *, code: int) -> dict[K, KafkaCallError | None]:
    """Returns the outcomes with None in place of refusals with this code, so that they count as success."""
    name = KafkaError(code).name()
    return {
        item: None if isinstance(outcome, KafkaRefused) and outcome.code == name else outcome
        for item, outcome in outcomes.items()
    }


def nothing(_: Any) -> None:
    """The `value` of calls whose answer is empty."""


def _outcome(wait: Wait, timeout_seconds: float) -> Any | KafkaError:
    try:
        return wait(timeout_seconds + ERROR_GRACE_SECONDS)
    except KafkaException as e:
        return kafka_error(e)
    except TimeoutError:
        return KafkaError(KafkaError._TIMED_OUT, "the client library did not answer")
