"""What producers of transactions need besides the client library's own calls: offsets in a transaction, and why one has failed."""

from concurrent.futures import Future
from threading import Thread
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from delayed_topics_kafka.errors import RAISED, kafka_error

TRANSACTION_TIMEOUT_MS: Final = 10_000
"""For how long a transaction that a SIGKILL left open holds readers back; the broker looks for such every 10 s. A successor with the
same transactional id ends it when it begins."""
_ANSWER_SECONDS = 1.0
"""When the client does look at its timeout, its own answer says more."""
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


def send_offsets(producer: Producer, points: list[TopicPartition], membership: Any, timeout_seconds: float) -> None:
    """`Producer.send_offsets_to_transaction`, but it always ends. Raises what that raises; after _TIMED_OUT give the producer up.

    The client (2.16) does not look at the timeout while it waits for a group coordinator. If it knew that coordinator, and the coordinator
    has gone from the metadata since, it waits for ever; every broker is gone from there for a moment when it starts
    (https://github.com/confluentinc/librdkafka/issues/5456, https://github.com/confluentinc/librdkafka/issues/5511). So the call waits in a
    thread of its own, which is left behind.
    """
    # an exception in it would keep all that it came through, the producer too
    answer: Future[KafkaError | None] = Future()

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(points, membership, timeout_seconds)
        except RAISED as e:
            answer.set_result(kafka_error(e))
        except BaseException as e:  # noqa: BLE001  it is the caller's, whatever it is
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


def why_undelivered(producer: Producer, told: KafkaError) -> KafkaError:
    """Why a record of a transaction was not delivered. `told`: the error of its delivery report. If the transaction failed before the
    record was sent, the report does not say why. Any further call in the transaction does."""
    if told.code() in _PURGED:
        try:
            producer.begin_transaction()
        except RAISED as e:
            return kafka_error(e)
    return told
