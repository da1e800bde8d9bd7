"""The barrier of guarantee ExactlyOnce: copies, and the offsets and bitmaps that account for them, are one transaction.

A transaction is open from one barrier to the next; Kafka hears of it with its first copy. It comes true as a whole or not at
all: when it fails, for whatever reason, a new producer of the same transactional id ends it for good, and the partitions that
had a part in it begin again where Kafka says that they are committed. Kafka takes the offsets from a member of the present
generation only and the copies from the newest producer of the id only, so there is nothing that a zombie could release.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer
from delayed_topics_kafka.errors import kafka_error
from delayed_topics_kafka.transactions import send_offsets

from delayed_topics_worker.barrier import RETRY_TARGET_SECONDS, Barrier, commits_of
from delayed_topics_worker.clients import TRANSACTION_TIMEOUT_MS
from delayed_topics_worker.errors import ClientFatal
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.outbox import Outbox
from delayed_topics_worker.owned import Held, Owned, Refusal

log = logging.getLogger(__name__)

TRANSACTION_SECONDS: Final = TRANSACTION_TIMEOUT_MS / 1000
CALL_SECONDS: Final = 5.0
"""For Kafka's answer to one call of a transaction: 3 to 5 ms when all is well."""

_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_NOT_OF_A_COPY: Final = _FENCED | {
    KafkaError._STATE,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._FATAL,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
"""These say that the transaction has failed already, not why."""
_NOT_ADDED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.OPERATION_NOT_ATTEMPTED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""A partition could not become part of the transaction; which one isn't told."""


class Transactions(Barrier):
    """`fenced` here: no transaction is open. Blocks for CALL_SECONDS with each call of a transaction."""

    def __init__(
        self,
        outbox: Outbox,
        metrics: Metrics,
        *,
        barrier_seconds: float,
        seconds: Callable[[], float],
        membership: Callable[[], Any],
    ) -> None:
        """`membership`: the consumer's group metadata, which is of the present generation only if it is asked for each time."""
        super().__init__(outbox, metrics, barrier_seconds=barrier_seconds, seconds=seconds)
        self._membership = membership
        self._codec: str | None = None
        self._producer: Producer | None = None
        self._producer_codec: str | None = None
        self._open_at = 0.0
        self._fatal: ClientFatal | None = None

    @property
    def fenced(self) -> bool:
        return self._producer is None or self._producer_codec != self._codec

    def compress(self, codecs: Collection[str]) -> None:
        """There is one, of the only topic. What an earlier process left open ends now, so that what it had committed can be
        read when partitions are assigned."""
        self._codec = next(iter(codecs), None)
        self._open()

    def turn(self, consumer: Consumer, owned: Iterable[Owned], now_ms: int, *, needed: bool, hasten: bool) -> None:
        """Raises ClientFatal."""
        self._open()
        super().turn(consumer, owned, now_ms, needed=False, hasten=hasten)
        if self._fatal is not None:
            fatal, self._fatal = self._fatal, None
            raise fatal

    def abandon(self) -> None:
        if self._outbox.outstanding or self._outbox.failure:
            self._producer = None
        self._roll_back(self._outbox.touched)
        super().abandon()

    def _open(self) -> None:
        if not self.fenced or self._codec is None or self._outbox.outstanding or self._seconds() < self._open_at:
            return
        self._outbox.replace_producers()
        producer = self._outbox.producer(self._codec)
        try:
            producer.init_transactions(CALL_SECONDS)
            producer.begin_transaction()
        except (KafkaException, SystemError) as e:
            error = kafka_error(e)
            self._fail(error, "no transaction can begin")
            self._open_at = self._seconds() + RETRY_TARGET_SECONDS
            if not error.retriable() and error.code() not in _FENCED:
                self.refused = self.problem
            return
        self._producer, self._producer_codec = producer, self._codec
        self.refused = None

    def _is_time(self, now: float) -> bool:
        """A copy that has to go alone stands before all others of its partition, and there may be thousands of them."""
        return super()._is_time(now) or any(owned.alone and owned.refused for owned in self._outbox.touched)

    def _flush(self, now_ms: int) -> bool:
        if self._flushing_since is not None and self._seconds() - self._flushing_since >= TRANSACTION_SECONDS:
            # Kafka has ended it by now. Seen: after a broker's crash the client (2.16) waited for ever to send the rest of it.
            self.problem = (
                f"a transaction was not acknowledged in {TRANSACTION_SECONDS:g} s, what was in it is done again"
            )
            log.warning("%s", self.problem)
            self._metrics.failed_commits.inc()
            self.abandon()
        elif any(refusal.queued for owned in self._outbox.touched for refusal in owned.refused):
            self._account()  # the transaction has failed, and what else is on its way will not be sent
            return not self._again
        return super()._flush(now_ms)

    def _account(self) -> None:
        alone, touched = self._alone, self._outbox.touched
        sent = [(owned, owned.outstanding) for owned in touched]
        refused = alone is not None and any(refusal.held is alone for refusal in alone.owned.refused)
        super()._account()
        failed = self._end(touched) if touched else None
        if failed is not None and not refused:
            if failed.code() in _NOT_ADDED:
                _suspect(sent)
            self._roll_back(touched)
        elif failed is not None and alone is not None and self._alone is alone:
            self._stop(alone.owned, alone, failed)
        self._alone = None

    def _judge(self, owned: Owned, refusals: Sequence[Refusal]) -> None:
        """What is wrong with the transaction itself shows when it ends."""
        own = [r for r in refusals if not r.error.fatal() and r.error.code() not in _NOT_OF_A_COPY]
        owned.alone -= {refusal.held.offset for refusal in own}
        if own:
            super()._judge(owned, own)

    def _stop(self, owned: Owned, held: Held, error: KafkaError) -> None:
        super()._stop(owned, held, error)
        owned.alone.add(held.offset)

    def _send_commit(self, consumer: Consumer, all_owned: Iterable[Owned], *, renew: bool) -> None:
        """What is to be committed and has no copies."""
        chosen = [o for o in all_owned if o.dirty and o.may_commit]
        if chosen and not self.fenced and not self._outbox.outstanding and self._end(chosen) is not None:
            self._roll_back(chosen)

    def _end(self, owned: Sequence[Owned]) -> KafkaError | None:
        """Commits the transaction and begins the next one; or why it failed."""
        if self._producer is None:
            return KafkaError(KafkaError._STATE)
        commits = commits_of(o for o in owned if o.may_commit)
        try:
            for commit in commits:
                if commit:
                    send_offsets(self._producer, list(commit.values()), self._membership(), CALL_SECONDS)
            self._producer.commit_transaction(CALL_SECONDS)
            self._producer.begin_transaction()
        except (KafkaException, SystemError) as e:
            error = kafka_error(e)
            self._fail(error, "a transaction failed, what was in it is done again")
            return error
        finally:
            for partition in owned:
                partition.uncommitted = 0
        for partition in owned:
            partition.dirty = False
        self.problem = None
        return None

    def _fail(self, error: KafkaError, what: str) -> None:
        """The producer is given up: after a copy was refused there is a gap in its sequence numbers."""
        why = f"{what}: {error.name()}: {error.str()}"
        if self.problem != why:
            log.warning("%s", why)
        self._metrics.failed_commits.inc()
        self.problem = why
        producer, self._producer = self._producer, None
        if producer is not None and error.txn_requires_abort():
            try:
                producer.abort_transaction(CALL_SECONDS)  # 13 ms, while the next producer would wait for it for 500
            except (KafkaException, SystemError) as e:
                log.debug("a transaction is left to the next producer to end: %s", kafka_error(e))
        self._outbox.replace_producers()
        if error.code() in _FENCED:
            self._lose_producer(error)

    def _lose_producer(self, error: KafkaError) -> None:
        self.abandon()
        self._fatal = ClientFatal(
            "the producer was shut out for good: another worker of this name has begun, or this one stood still for longer "
            f"than a transaction may last ({error.name()}: {error.str()})"
        )

    def _roll_back(self, touched: Sequence[Owned]) -> None:
        """What has become of the transaction is known by what Kafka says is committed."""
        for held in self._again:
            held.owned.alone.add(held.offset)
            held.owned.rewinding = True
        self._again.clear()
        for owned in touched:
            owned.outstanding.clear()
            owned.refused.clear()
            owned.uncommitted = 0
            owned.window = owned.committed = None
            owned.reads_at = OFFSET_END
            owned.rewinding = True


def _suspect(sent: Sequence[tuple[Owned, Sequence[Held]]]) -> None:
    """The first copy of a partition to each topic is tried alone, for the one to be found that may not go there."""
    for owned, copies in sent:
        first: dict[str, int] = {}
        for held in copies:
            first.setdefault(held.target, held.offset)
        owned.alone.update(first.values())
