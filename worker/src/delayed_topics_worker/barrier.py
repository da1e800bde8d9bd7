"""The barrier: stop producing, flush, account for every copy, commit. And the fence that rests on it.

A worker that was shut out of its group can't know; it can know when a commit of its own was last accepted. So it sends only
while that commit began less than a second ago, and what it sent since then is bounded.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from delayed_topics_core.reasons import Reason
from delayed_topics_core.routing import Wait
from delayed_topics_kafka.errors import kafka_error

from delayed_topics_worker.copies import cut, decide
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.outbox import Outbox
from delayed_topics_worker.owned import Held, Owned, Refusal, Stop

log = logging.getLogger(__name__)

FENCE_SECONDS: Final = 1.0
RENEW_SECONDS: Final = 0.4
RETRY_COMMIT_SECONDS: Final = 0.05
UNANSWERED_SECONDS: Final = 30.0
"""The client answers each commit, at the latest when its request and the retries of it have timed out."""
STUCK_SECONDS: Final = 3.0
RETRY_TARGET_SECONDS: Final = 1.0
FLUSH_SLICE_SECONDS: Final = 0.002
"""In between, records are taken in. While the copies aren't acknowledged there is soon nothing to take in any more."""
MOST_FLUSH_SLICE_SECONDS: Final = 0.02
MOST_COMMIT_BYTES: Final = 512 << 10
OFFSET_RECORD_BYTES: Final = 350
"""What Kafka writes of a committed offset beyond the topic's name and the metadata: the group's name of 249 at most, numbers."""

_TRY_ALONE: Final = frozenset(
    {
        # a batch is refused whole, so the refused record may not be the large one
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError._QUEUE_FULL,
    }
)
_UNKNOWN_OUTCOME: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL})


class _Commit(NamedTuple):
    """One that is on its way. `points`: what its answer will carry."""

    began: float
    counts: list[tuple[Owned, int]]
    points: frozenset[tuple[str, int, int]]


class Barrier:
    """Belongs to the worker's thread. Blocks for MOST_FLUSH_SLICE_SECONDS at most, except in `settle`."""

    def __init__(
        self, outbox: Outbox, metrics: Metrics, *, barrier_seconds: float, seconds: Callable[[], float]
    ) -> None:
        self._outbox = outbox
        self._metrics = metrics
        self._barrier_seconds = barrier_seconds
        self._seconds = seconds
        self._again: deque[Held] = deque()
        self._alone: Held | None = None
        self._flushing_since: float | None = None
        self._unsettled_since: float | None = None
        self._commit: _Commit | None = None
        self._given_up: list[_Commit] = []
        self._left: set[Owned] = set()
        """Partitions for which there was no room in the last commit; they come first in the next."""
        self._commit_at = 0.0
        self._fence_at = float("-inf")
        self.problem: str | None = None
        """Why the last commit failed; None once one has succeeded."""
        self.refused: str | None = None
        """What Kafka refuses to this worker for good, as far as anybody can know."""
        self.shelved: list[Owned] = []
        """Partitions that got a record back whose copy was refused: somebody has to look at their turns again."""

    @property
    def flushing(self) -> bool:
        return self._flushing_since is not None

    @property
    def stuck_seconds(self) -> float:
        """For how long copies have not been acknowledged, so that nothing more is sent; 0 while that is usual."""
        seconds = self._seconds() - self._flushing_since if self._flushing_since is not None else 0.0
        return seconds if seconds >= STUCK_SECONDS else 0.0

    @property
    def fenced(self) -> bool:
        """True: nothing may be sent, the last accepted commit is too old."""
        return self._seconds() - self._fence_at >= FENCE_SECONDS

    @property
    def may_send(self) -> bool:
        return self._flushing_since is None and not self.fenced and not self._outbox.full

    def compress(self, codecs: Collection[str]) -> None:
        """What the layouts ask for: their producers are made before a record waits for them."""
        for codec in codecs:
            self._outbox.producer(codec)

    def due_in(self) -> float:
        """Seconds until there is something to do here."""
        if self._unsettled_since is None:
            return float("inf")
        return max(0.0, self._unsettled_since + self._barrier_seconds - self._seconds())

    def turn(self, consumer: Consumer, owned: Iterable[Owned], now_ms: int, *, needed: bool, hasten: bool) -> None:
        """`needed`: something is due or nearly so, keep the fence fresh. `hasten`: don't wait for the interval."""
        now = self._seconds()
        if self._outbox.failure is not None:
            self._lose_producer(self._outbox.failure)
        if self._outbox.outstanding and self._unsettled_since is None:
            self._unsettled_since = now
        if self._flushing_since is None and (hasten or self._is_time(now)):
            self._flushing_since = now
        if self._flushing_since is not None and self._flush(now_ms):
            self._metrics.barrier_seconds.observe(self._seconds() - self._flushing_since)
            self._flushing_since = self._unsettled_since = None
        if self._commit is not None and now - self._commit.began > UNANSWERED_SECONDS:
            self._commit_again(self._commit.counts, "Kafka didn't answer")
            self._commit = None
        if self._commit is None and now >= self._commit_at:
            self._send_commit(consumer, owned, renew=needed and now - self._fence_at >= RENEW_SECONDS)

    def begin(self) -> None:
        """Nothing more is sent until all that was sent is accounted for."""
        if self._flushing_since is None and (self._outbox.outstanding or self._again):
            self._flushing_since = self._seconds()

    def settle(self, consumer: Consumer, owned: Sequence[Owned], *, timeout_seconds: float) -> None:
        """All of a barrier at once, before partitions are given up. Nothing is left on its way. Never raises."""
        if self._outbox.flush(timeout_seconds):
            self._account()
        else:
            self.abandon()
        if self._again:
            self.begin()
        else:
            self._flushing_since = self._unsettled_since = None
        for commit in commits_of(o for o in owned if o.dirty and o.may_commit):
            if commit:
                _commit_now(consumer, commit)

    def abandon(self) -> None:
        """Give up what is on its way, and read again what isn't finished."""
        self._outbox.abandon()
        for held in self._again:
            held.owned.rewinding = True
        self._again.clear()
        self._alone = None
        self._give_up_commit()
        for owned in self._outbox.taken():
            owned.outstanding.clear()
            owned.refused.clear()
            owned.rewinding = True
            owned.dirty = True  # a commit makes room again

    def forget_client(self) -> None:
        """After `abandon`, when the client itself is given up: it answers nothing any more."""
        self._given_up.clear()

    def on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """The client's callback."""
        points = _places(partitions)
        late = next((c for c in self._given_up if c.points == points), None)
        if late is not None:
            self._given_up.remove(late)
            return
        commit = self._commit
        if commit is None:
            return
        self._commit = None
        refused = {(tp.topic, tp.partition): failed for tp in partitions if (failed := tp.error or error)}
        accepted = [(o, count) for o, count in commit.counts if (o.topic, o.partition) not in refused]
        for owned, _ in accepted:
            owned.committing = 0
        if accepted:  # so this is a member, whatever is wrong with single partitions
            self._fence_at = max(self._fence_at, commit.began)
            self.problem = None
        if refused:
            first = next(iter(refused.values()))
            again = [(o, count) for o, count in commit.counts if (o.topic, o.partition) in refused]
            self._commit_again(again, f"{first.name()}: {first.str()}", alone=not accepted)

    def _lose_producer(self, error: KafkaError) -> None:
        log.error("the producer can't go on and is replaced: %s", error)
        self.abandon()

    def _give_up_commit(self) -> None:
        now = self._seconds()
        self._given_up = [c for c in self._given_up if now - c.began < UNANSWERED_SECONDS]
        if self._commit is not None:
            self._given_up.append(self._commit)  # its answer must not pass for that of a later one
            self._commit_again(self._commit.counts, "its partitions were given up")
            self._commit = None

    def _commit_again(self, counts: Sequence[tuple[Owned, int]], why: str, *, alone: bool = True) -> None:
        """`alone`: nothing else was accepted, so it may be about this member and is urgent."""
        if self.problem is None:
            log.warning("a commit failed, and is tried again: %s", why)
        self._metrics.failed_commits.inc()
        self.problem = f"a commit failed: {why}"
        now = self._seconds()
        self._commit_at = now + RETRY_COMMIT_SECONDS
        for owned, count in counts:
            owned.uncommitted += count
            owned.committing = 0
            owned.dirty = True
            if not alone:
                owned.commit_at = now + RETRY_TARGET_SECONDS

    def _is_time(self, now: float) -> bool:
        if self._unsettled_since is None:
            return False
        return now - self._unsettled_since >= self._barrier_seconds or self._outbox.full or self._outbox.hurried

    def _flush(self, now_ms: int) -> bool:
        """One slice; True when every copy is accounted for."""
        seconds = self._seconds() - self._flushing_since if self._flushing_since is not None else 0.0
        if not self._outbox.flush(min(MOST_FLUSH_SLICE_SECONDS, max(FLUSH_SLICE_SECONDS, seconds / 8))):
            return False
        self._account()
        while self._again and not self.fenced:
            if self._send_alone(self._again.popleft(), now_ms):
                return False
        return not self._again

    def _send_alone(self, held: Held, now_ms: int) -> bool:
        """False: it isn't sent now. Its partition is read again, or it waits: time has passed since its copy was refused, and
        what was to hop may wait in memory by now."""
        owned = held.owned
        if not owned.takes_in or owned.served.policy is None:
            owned.rewinding = True
            return False
        now_ms -= owned.served.skew_ms
        held.decision = held.decision or decide(held, owned.served.policy, now_ms)
        if isinstance(held.decision, Wait) and (held.decision.due_at_ms > now_ms or owned.served.paused):
            owned.shelf.add(held.decision.turn_at_ms, held)
            self.shelved.append(owned)
            return False
        self._alone = held
        self._outbox.send(held, now_ms)
        return True

    def _account(self) -> None:
        for owned in self._outbox.taken():
            refusals = owned.refused
            sent = owned.outstanding
            owned.refused = []
            owned.outstanding = []
            if owned.gone or owned.window is None:
                continue
            refused = {id(refusal.held) for refusal in refusals}
            done = [held for held in sent if id(held) not in refused] if refused else sent
            owned.window.finish_all([held.offset for held in done])
            owned.held_bytes -= sum([held.size for held in done])
            owned.dirty = True
            tried = owned.tried
            if tried is not None and tried.refused is not None and owned.window.is_finished(tried.refused):
                owned.tried = None
            if refusals:
                self._judge(owned, refusals)

    def _judge(self, owned: Owned, refusals: Sequence[Refusal]) -> None:
        for held, error, _ in refusals:
            code = error.code()
            alone, self._alone = self._alone is held, None
            if error.fatal() or code in _UNKNOWN_OUTCOME:
                log.error("the producer can't go on and is replaced: %s", error)
                self._outbox.replace_producers()
                owned.rewinding = True
                return
            if code in _TRY_ALONE and (not alone or code == KafkaError._QUEUE_FULL):
                self._again.append(held)
            elif code in _TRY_ALONE and held.decision is not None and cut(held, held.decision):
                self._again.appendleft(held)
            else:
                self._stop(owned, held, error)
                return

    def _stop(self, owned: Owned, held: Held, error: KafkaError) -> None:
        """A missing or forbidden target: the partition stays where it is, the others go on."""
        if error.code() == KafkaError._UNKNOWN_PARTITION:
            self._outbox.learn([held.target])
        message = (
            f"{owned} can't be served: the copy of offset {held.offset} to {held.target} was refused "
            f"({error.name()}: {error.str()}); check that the topic exists and that the worker may write to it"
        )
        owned.stop = Stop(
            reason=Reason.TARGET_UNAVAILABLE,
            message=message,
            retry_at=self._seconds() + RETRY_TARGET_SECONDS,
            refused=held.offset,
            target=held.target,
        )
        owned.rewinding = True
        self._again = deque(held for held in self._again if held.owned is not owned)

    def _send_commit(self, consumer: Consumer, all_owned: Iterable[Owned], *, renew: bool) -> None:
        began = self._seconds()
        able = [o for o in all_owned if o.may_commit and began >= o.commit_at]
        chosen = [o for o in able if o.dirty]
        if renew:  # with one more, which Kafka has no reason to refuse unless it refuses this member
            chosen += [o for o in able if not o.dirty][:1]
        if not chosen:
            return
        commit, *left = commits_of(sorted(chosen, key=lambda o: o not in self._left))
        self._left = {o for commit in left for o in commit}
        counts = [(o, o.uncommitted - len(o.outstanding)) for o in commit]
        points = list(commit.values())
        try:
            consumer.commit(offsets=points, asynchronous=True)
        except KafkaException as e:
            self.problem = str(kafka_error(e))
            self._commit_at = began + RETRY_COMMIT_SECONDS
            return
        self._commit = _Commit(began, counts, _places(points))
        for owned, count in counts:
            owned.dirty = False
            owned.committing = count
            owned.uncommitted -= count


def _commit_now(consumer: Consumer, commit: Mapping[Owned, TopicPartition]) -> None:
    try:
        answered = consumer.commit(offsets=list(commit.values()), asynchronous=False) or []
        failed = next((tp.error for tp in answered if tp.error), None)
    except KafkaException as e:
        failed = kafka_error(e)
    if failed is not None:
        log.warning("the last commit of %d partitions failed: %s", len(commit), failed)
        return
    for partition in commit:
        partition.dirty = False


def _places(partitions: Sequence[TopicPartition]) -> frozenset[tuple[str, int, int]]:
    return frozenset((tp.topic, tp.partition, tp.offset) for tp in partitions)


def commits_of(owned: Iterable[Owned]) -> list[dict[Owned, TopicPartition]]:
    """What is to be committed, as much at once as Kafka takes: it writes each commit into `__consumer_offsets` as one batch,
    and refuses all of it when it is larger than that topic's `max.message.bytes`, 1 MiB."""
    commits: list[dict[Owned, TopicPartition]] = [{}]
    size = 0
    for o in owned:
        if o.window is None:
            continue
        point = o.window.commit_point(o.topic_id)
        record_size = OFFSET_RECORD_BYTES + len(o.topic) + len(point.metadata)
        if commits[-1] and size + record_size > MOST_COMMIT_BYTES:
            commits.append({})
            size = 0
        commits[-1][o] = TopicPartition(o.topic, o.partition, point.offset, point.metadata)
        size += record_size
    return commits
