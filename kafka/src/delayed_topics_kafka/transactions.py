"""What transactional producers need beyond the client library: commits of offsets that never hang, and the reason why one has failed."""

from concurrent.futures import Future
from threading import Thread
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from delayed_topics_kafka.errors import RAISED, kafka_error

TRANSACTION_TIMEOUT_MS: Final = 10_000
"""The timeout of a transaction that a killed process left open and that holds back readers. The broker looks for such transactions every
10 s. A successor with the same transactional id ends the transaction when it begins."""
_ANSWER_SECONDS = 1.0
"""How much longer to wait for the client's own timeout error, which says more."""
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


def send_offsets(producer: Producer, points: list[TopicPartition], membership: Any, timeout_seconds: float) -> None:
    """Calls `Producer.send_offsets_to_transaction`, and always ends. Raises what that call raises. Discard the producer after _TIMED_OUT.

    The client (2.16) ignores the timeout while it waits for a group coordinator. If the coordinator that it knew has since disappeared from
    the metadata, it waits forever. Every broker disappears from there for a moment when it starts
    (https://github.com/confluentinc/librdkafka/issues/5456, https://github.com/confluentinc/librdkafka/issues/5511). The call is therefore
    made in a thread of its own, which is abandoned if the call does not return.
    """
    # errors are results of the future, because an exception in it would keep the frames of its traceback alive, and so the producer
    answer: Future[KafkaError | None] = Future()

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(points, membership, timeout_seconds)
        except RAISED as e:
            answer.set_result(kafka_error(e))
        except BaseException as e:  # noqa: BLE001  raised again in the thread of the caller
            answer.set_exception(e)
        else:
            answer.set_result(None)

    Thread(target=send, name="send-offsets", daemon=True).start()
    try:
        error = answer.result(timeout_seconds + _ANSWER_SECONDS)
    except TimeoutError:
        why = f"the group's coordinator did not accept the offsets within {timeout_seconds:g} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, why)) from None
    if error is not None:
        raise KafkaException(error)


def why_undelivered(producer: Producer, reported: KafkaError) -> KafkaError:
    """Returns why a record of a transaction was not delivered. `reported` is the error of its delivery report. If the transaction failed
    before the record was sent, the report does not say why, but any further call in the transaction does."""
    if reported.code() in _PURGED:
        try:
            producer.begin_transaction()
        except RAISED as e:
            return kafka_error(e)
    return reported
