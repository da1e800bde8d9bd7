"""Which partitions this worker has, and how each begins: at its committed offset, never by guess."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from delayed_topics_core.reasons import Reason
from delayed_topics_kafka.errors import kafka_error
from delayed_topics_kafka.model import CommittedOffset, TopicInfo

from delayed_topics_worker.committed import CommittedReader
from delayed_topics_worker.config import Protocol
from delayed_topics_worker.owned import Owned, Stop
from delayed_topics_worker.served import Served
from delayed_topics_worker.topic_watch import Sight
from delayed_topics_worker.windows import renew_window, window_to_begin

log = logging.getLogger(__name__)

COMMITTED_TIMEOUT_SECONDS: Final = 0.3
"""Nothing is released meanwhile. It takes 2 to 5 ms, unless a transaction is open or the coordinator is away."""
RETRY_SECONDS: Final = 0.3
RECHECK_SECONDS: Final = 1.0
MOST_STALL_SECONDS: Final = 60.0


class Change(NamedTuple):
    """A rebalance, for one delayed topic; `generation` counts the assignments of this process."""

    kind: Literal["assigned", "revoked", "lost"]
    topic: str
    partitions: int
    generation: int
    took_ms: int


class Assignment:
    """The client's rebalance callbacks, which never raise and do as little as they can; the loop calls the rest."""

    def __init__(
        self,
        served: Iterable[Served],
        protocol: Protocol,
        *,
        settle: Callable[[Sequence[Owned]], None],
        abandon: Callable[[], None],
        seconds: Callable[[], float],
        reader: CommittedReader,
    ) -> None:
        self.owned: dict[tuple[str, int], Owned] = {}
        self.generation = 0
        self.assigned = False
        self.changes: list[Change] = []
        self._by_topic = {topic: s for s in served for topic in (s.names.front, s.names.delays)}
        self._protocol = protocol
        self._settle = settle
        self._abandon = abandon
        self._seconds = seconds
        self.failure: str | None = None
        """Why partitions that are assigned to this member can't be served by its client."""
        self._begins: dict[int, list[Owned]] = {}
        self._reader = reader
        self._unanswered: dict[tuple[str, int], int] = {}

    @property
    def settled(self) -> bool:
        """It has partitions, or knows that there are none for it, and each is served or says why not."""
        if not self.assigned or self.failure is not None:
            return False
        return all(o.window is not None or o.stop is not None for o in self.owned.values())

    # -- callbacks

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Everything is placed where it will begin, and paused until it may. Placing it by seek later on is a race that
        the answer to an offset query can win."""
        self.generation += 1
        self.assigned = True
        now = self._seconds()
        fresh = [
            Owned(self._by_topic[tp.topic], tp.topic, tp.partition, generation=self.generation, assigned_at=now)
            for tp in partitions
        ]
        self._ask_committed(consumer, fresh)
        for owned in fresh:
            window = window_to_begin(owned)
            owned.reads_at = window.position if window else None
        targets = [_target(o) for o in fresh]
        try:
            if self._protocol == "classic":
                consumer.assign(targets)
            elif targets:
                consumer.incremental_assign(targets)
            consumer.pause(targets)
        except (KafkaException, RuntimeError) as e:
            self.failure = f"taking over {len(targets)} partitions failed: {e}"
            return
        self.owned.update({(o.topic, o.partition): o for o in fresh})
        self._begins[self.generation] = fresh
        log.info("assigned: %s", _named(fresh))

    def on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        began = self._seconds()
        leaving = self._of(partitions)
        self._settle(leaving)
        self._forget("revoked", leaving, began)

    def on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Somebody else has them already: what is on its way is doubled at worst, nothing may be committed."""
        self._abandon()
        self._forget("lost", self._of(partitions), self._seconds())

    def lose_all(self) -> None:
        """The client itself is lost."""
        self._abandon()
        self._forget("lost", list(self.owned.values()), self._seconds())
        self.assigned = False
        self.failure = None

    def _of(self, partitions: Iterable[TopicPartition]) -> list[Owned]:
        found = (self.owned.get((tp.topic, tp.partition)) for tp in partitions)
        return [owned for owned in found if owned is not None]

    def _forget(self, kind: Literal["revoked", "lost"], leaving: Sequence[Owned], began: float) -> None:
        self.generation += 1
        for owned in leaving:
            owned.gone = True
            owned.arrived.clear()
            owned.shelf.clear()
            del self.owned[owned.topic, owned.partition]
        self._note(kind, leaving, self.generation, began)
        log.info("%s: %s", kind, _named(leaving))

    # -- called by the loop

    def begin(self, consumer: Consumer, sight: Sight) -> bool:
        """Let those partitions begin that can; True if any did."""
        now = self._seconds()
        waiting = [o for o in self.owned.values() if o.window is None and o.stop is None and now >= o.begin_at]
        able = [o for o in waiting if self._is_known(o, sight, now)]
        self._ask_committed(consumer, [o for o in able if o.committed is None and not o.unanswered])
        self._ask_beside()
        for owned in able:
            if owned.committed is not None:
                owned.begin_at = now + RETRY_SECONDS
                self._begin(consumer, owned)
        for generation, fresh in list(self._begins.items()):
            if all(o.gone or o.window is not None or o.stop is not None for o in fresh):
                del self._begins[generation]
                if fresh:
                    self._note("assigned", [o for o in fresh if not o.gone], generation, fresh[0].assigned_at)
        return bool(able)

    def check_topics(self, sight: Sight) -> None:
        """Stop what belongs to topics that are gone or were made again, and let go on what can."""
        now = self._seconds()
        for owned in self.owned.values():
            if owned.window is not None and owned.served.noted_id(owned.topic) not in (None, owned.topic_id):
                owned.stop = owned.tried = None  # whatever was wrong with the topic that is gone
                owned.void = owned.rewinding = True
                continue
            before, stop = owned.stop, _stop_for(owned, sight, now + RECHECK_SECONDS)
            if owned.window is not None and before and before.topic_gone and before.reason is Reason.TOPIC_RECREATED:
                continue  # once seen, whatever a broker that lags behind says; the operator's note of the new one ends it
            gone = stop is not None and stop.topic_gone
            waits = before is not None and (before.retry_at is None or now < before.retry_at)
            if waits and not (before and gone and not before.topic_gone):
                continue
            if stop is not None and (before is None or before.reason != stop.reason):
                owned.rewinding = True
                owned.void = gone
            elif stop is None:
                owned.void = False
                if before is not None and before.refused is not None:
                    owned.tried = before  # the alarm stays until the copy that was refused is accepted
            owned.stop = stop

    def stop_removed(self, consumer: Consumer, owned: Owned, error: KafkaError) -> None:
        """The offset that comes next isn't there any more. Never skipped: people decide."""
        position = owned.window.position if owned.window else None
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(owned.topic, owned.partition), 2.0)
            there = f"the partition has offsets {low} to {high}"
        except KafkaException:
            there = "what is there can't be asked now"
        message = (
            f"{owned} doesn't continue at offset {position}: {there} ({error.str()}). Records were removed before they "
            "were released. Accept it by stopping the workers and setting the group's offset, then start them again"
        )
        owned.stop = Stop(reason=Reason.RECORDS_REMOVED, message=message, retry_at=None)

    def rewind(self, consumer: Consumer) -> None:
        """Go back to the lowest unfinished offset, where that was asked for. Only when nothing is on its way."""
        for owned in self.owned.values():
            if owned.rewinding:
                owned.drop_held()
                renew_window(owned)
                owned.rewinding = not self._place(consumer, owned)

    def place_stalled(self, consumer: Consumer) -> None:
        """A partition that doesn't give the records that it has is placed again."""
        now = self._seconds()
        for owned in self.owned.values():
            if owned.unproven and owned.takes_in and not owned.paused and now - owned.placed_at > owned.stall_seconds:
                _, high = consumer.get_watermark_offsets(TopicPartition(owned.topic, owned.partition), cached=True)
                if owned.window is not None and (high < 0 or high > owned.window.position):
                    log.info("%s gives no records since %.0f s, it is placed again", owned, now - owned.placed_at)
                    owned.rewinding = True
                owned.placed_at = now
                owned.stall_seconds = min(2 * owned.stall_seconds, MOST_STALL_SECONDS)

    def _is_known(self, owned: Owned, sight: Sight, now: float) -> bool:
        """Whether registry and Kafka have been asked about it, and nothing is wrong with its topics."""
        served = owned.served
        if served.layout is None or served.topics is None or sight.asked_at < owned.assigned_at:
            return False
        if owned.door == "d" and owned.partition >= served.layout.layout.partition_count:
            return False  # Kafka has it, the registry will tell
        noted = served.noted_id(owned.topic)
        if noted is None or not isinstance(sight.topics.get(owned.topic), TopicInfo | None):
            return False
        owned.stop = _stop_for(owned, sight, now + RECHECK_SECONDS)
        owned.topic_id = noted
        return owned.stop is None

    def _ask_committed(self, consumer: Consumer, asked: Sequence[Owned]) -> None:
        if not asked:
            return
        by_place = {(o.topic, o.partition): o for o in asked}
        try:
            answered = consumer.committed([TopicPartition(*p) for p in by_place], timeout=COMMITTED_TIMEOUT_SECONDS)
        except KafkaException as e:
            log.info("the committed offsets of %s are not told at once: %s", _named(asked), kafka_error(e))
            answered = []
        for tp in answered:
            if tp.error is None:
                by_place[tp.topic, tp.partition].committed = CommittedOffset(tp.offset, tp.metadata or "")
        for owned in asked:
            owned.unanswered = owned.committed is None

    def _ask_beside(self) -> None:
        for place, generation, committed in self._reader.take():
            owned = self.owned.get(place)
            if owned is not None and owned.generation == generation and owned.unanswered:
                owned.committed = committed
                owned.unanswered = False
        unanswered = {(o.topic, o.partition): o.generation for o in self.owned.values() if o.unanswered}
        if unanswered != self._unanswered:
            self._reader.want(unanswered)
            self._unanswered = unanswered

    def _begin(self, consumer: Consumer, owned: Owned) -> None:
        window = window_to_begin(owned)
        if window is None:
            self._stop_uncommitted(owned)
            owned.committed = None
            return
        owned.window = window
        # nobody else can commit for a live group
        owned.dirty = owned.anew or owned.committed is None or owned.committed.offset < 0
        owned.unproven = True
        owned.placed_at = self._seconds()
        if owned.reads_at != window.position and not self._place(consumer, owned):
            owned.window = None
            return
        owned.anew = False

    def _stop_uncommitted(self, owned: Owned) -> None:
        topics = owned.served.topics
        if topics is None or owned.partition >= len(topics.start_offsets.get(owned.topic, ())):
            return  # the operator has yet to note its start
        message = (
            f"{owned} has no committed offset in group {owned.served.names.group}, though it was served before: the group "
            "was deleted or its offsets expired. Nothing is guessed: set the group's offset while no worker runs"
        )
        retry_at = self._seconds() + RECHECK_SECONDS
        owned.stop = Stop(reason=Reason.COMMIT_MISSING, message=message, retry_at=retry_at)

    def _place(self, consumer: Consumer, owned: Owned) -> bool:
        """Reading goes on at the window's position. False: not now."""
        if owned.window is None:
            return True
        before, owned.reads_at = owned.reads_at, owned.window.position
        try:
            if before is not None and _seek(consumer, owned):
                pass
            elif self._protocol == "classic":
                self._assign_again(consumer)
            else:
                consumer.incremental_unassign([_target(owned)])
                consumer.incremental_assign([_target(owned)])
                consumer.pause([_target(owned)])
                owned.paused = True
        except KafkaException as e:
            log.info("%s can't be placed at offset %d yet: %s", owned, owned.window.position, kafka_error(e))
            owned.reads_at = before
            return False
        owned.unproven = True
        owned.placed_at = self._seconds()
        return True

    def _assign_again(self, consumer: Consumer) -> None:
        """The only way, under classic, to place a partition that can't be sought."""
        for owned in self.owned.values():
            if owned.window is not None:
                owned.reads_at = owned.window.position
        consumer.assign([_target(o) for o in self.owned.values()])
        consumer.pause([_target(o) for o in self.owned.values()])
        for owned in self.owned.values():
            owned.paused = True

    def _note(self, kind: Literal["assigned", "revoked", "lost"], owned: Sequence[Owned], n: int, began: float) -> None:
        took_ms = int((self._seconds() - began) * 1000)
        counts = Counter(o.served.topic for o in owned)
        self.changes += [Change(kind, topic, count, n, took_ms) for topic, count in counts.items()]


def _target(owned: Owned) -> TopicPartition:
    """OFFSET_END: nothing is read, and no fetch can fail, until it is known where to begin."""
    return TopicPartition(owned.topic, owned.partition, OFFSET_END if owned.reads_at is None else owned.reads_at)


def _seek(consumer: Consumer, owned: Owned) -> bool:
    """False: the client has ended to fetch it, as it does when its offset was out of the topic's range."""
    try:
        consumer.seek(_target(owned))
    except KafkaException as e:
        if kafka_error(e).code() == KafkaError._STATE:
            return False
        raise
    return True


def _stop_for(owned: Owned, sight: Sight, retry_at: float) -> Stop | None:
    """What Kafka says against serving this partition: its own topic, or one that its records go to."""
    names = owned.served.names
    refused, target = (owned.stop.refused, owned.stop.target) if owned.stop else (None, None)
    for topic in dict.fromkeys((owned.topic, names.ready, names.delays, target)):
        if topic is None or topic not in sight.topics:
            continue
        info = sight.topics[topic]
        if info is None:
            reason = Reason.TOPIC_MISSING if topic == owned.topic else Reason.TARGET_UNAVAILABLE
            message = f"{owned} can't be served: topic {topic} doesn't exist; the operator makes it again if it may"
            gone = topic == owned.topic
            return Stop(
                reason=reason, message=message, retry_at=retry_at, topic_gone=gone, refused=refused, target=target
            )
        noted = owned.served.noted_id(topic)
        if isinstance(info, TopicInfo) and noted is not None and info.id != noted:
            message = (
                f"{owned} can't be served: topic {topic} was deleted and made again (topic id {info.id}, noted is {noted}); "
                "a topic made again is not the same topic"
            )
            gone = topic == owned.topic
            return Stop(reason=Reason.TOPIC_RECREATED, message=message, retry_at=retry_at, topic_gone=gone)
    return None


def _named(owned: Sequence[Owned]) -> str:
    return ", ".join(sorted(str(o) for o in owned)) or "nothing"
