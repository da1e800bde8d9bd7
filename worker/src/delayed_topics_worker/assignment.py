"""Keeps the partitions of this worker, and decides where each begins (at its committed offset, never at a guess) and which stand still."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from confluent_kafka import KafkaError
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.reasons import Reason
from delayed_topics_core.words import shortened
from delayed_topics_engine import Engine, Seen
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_worker.assigned import AssignedPartition, Change, ChangeKind, Stop, changes_of, named, of_topics
from delayed_topics_worker.beginnings import Beginning, beginning_of
from delayed_topics_worker.committed import CommittedReader
from delayed_topics_worker.engine_events import (
    Assigned,
    CommitUnknown,
    ProducersReplaced,
    Refused,
    Removed,
    Revoked,
)
from delayed_topics_worker.known_offsets import KnownOffsets
from delayed_topics_worker.served import ServedTopics
from delayed_topics_worker.topic_watch import TopicsSnapshot
from delayed_topics_worker.unserved import RECHECK_SECONDS, has_offset, stop_for, stop_of_removed, stop_of_withheld

log = logging.getLogger(__name__)

COMMITTED_TIMEOUT_MS: Final = 300
"""Nothing is released during this time. An answer takes 2 to 5 ms, unless a transaction is open or the coordinator is away."""
NOT_KNOWN: Final = -1
"""Tells `Engine.assign` that it is not known yet where a partition begins."""
RETRY_SECONDS: Final = 0.3
RETRY_TARGET_SECONDS: Final = 1.0
NOT_SERVED_SECONDS: Final = 6.0
"""A member that has just subscribed to other topics may first be assigned its former partitions, and then joins again."""
GONE_SECONDS: Final = 10.0
"""A topic that is missing for so long was deleted. A broker that only lags behind would know the topic by then."""


class Assignment:
    """Decides about the partitions that the engine reports. Belongs to the worker's thread."""

    def __init__(
        self,
        engine: Engine,
        served: ServedTopics,
        *,
        seconds: Callable[[], float],
        reader: CommittedReader,
        known: KnownOffsets,
    ) -> None:
        self.owned: dict[TopicPartitionKey, AssignedPartition] = {}
        self.generation = 0
        """Counts how often this process was assigned partitions or gave some up."""
        self.group_generation = -1
        self.assigned = False
        self.changes: list[Change] = []
        self._engine = engine
        self._served = served
        self._seconds = seconds
        self._begins: list[list[AssignedPartition]] = []
        self._catching_up: list[list[AssignedPartition]] = []
        self._reader = reader
        self._known = known
        self._unanswered: dict[TopicPartitionKey, int] = {}
        self._not_served: dict[TopicPartitionKey, float] = {}
        self._last_owned: frozenset[TopicPartitionKey] = frozenset()
        """The partitions that it had after the last assignment, without those that it has lost since."""

    @property
    def settled(self) -> bool:
        """Whether the group has assigned partitions, or none, to this worker, and each is served, stopped for a reason, or foreign."""
        return self.assigned and all(_is_answered(o) for o in self.owned.values())

    @property
    def keeps_from_others(self) -> bool:
        """Whether the worker has had partitions for long whose topics it did not serve when it got them. No other worker gets them until it
        gives them up, and the engine reads none of their records, even if the worker serves their topics by now."""
        now = self._seconds()
        kept = [f"{t} [{p}]" for (t, p), since in self._not_served.items() if now - since > NOT_SERVED_SECONDS]
        if kept:
            log.warning(
                "the worker has partitions of topics that it did not serve when it got them: %s",
                shortened(sorted(kept)),
            )
        return bool(kept)

    # -- reports of the engine

    def take(self, event: Revoked | Refused | Removed | CommitUnknown | ProducersReplaced) -> None:
        match event:
            case Revoked():
                self._on_revoked(event)
            case Refused():
                self._on_refused(event)
            case Removed():
                self._on_removed(event)
            case CommitUnknown():
                self._on_commit_unknown(event)
            case ProducersReplaced():
                self._note("producers-replaced", list(self.owned.values()), self._seconds())

    def on_assigned(self, event: Assigned) -> None:
        """Places each partition where it begins, if Kafka reports its committed offset at once. To place it later costs a seek."""
        self.generation += 1
        self.group_generation = event.generation
        self.assigned = True
        now = self._seconds()
        fresh = [
            AssignedPartition(
                served=served,
                topic=topic,
                partition=partition,
                generation=self.generation,
                group_generation=self.group_generation,
                assigned_at=now,
            )
            for topic, partition in event.partitions
            if (served := self._served.find(topic)) is not None
        ]
        self._request_committed(fresh)
        begins = {owned.place: beginning.offset for owned in fresh if (beginning := beginning_of(owned)) is not None}
        # While the group is stable, Kafka gives a restarted static member its former partitions, even those of a topic that has left the
        # group since. The client has to take over all of them, so that it can give them up later.
        self._not_served |= dict.fromkeys(set(event.partitions) - {o.place for o in fresh}, now)
        self._engine.assign([(*place, begins.get(place, NOT_KNOWN)) for place in event.partitions])
        self.owned |= {o.place: o for o in fresh}
        self._begins += of_topics(fresh).values()
        self._note("assignment", fresh, now)
        self._last_owned = frozenset(self.owned)
        log.info("assigned: %s", named(fresh))

    def _on_revoked(self, event: Revoked) -> None:
        reported = zip(event.partitions, event.delayed, event.in_flight, strict=True)
        for place, delayed, in_flight in reported:
            if owned := self.owned.get(place):
                owned.delayed, owned.in_flight = delayed, in_flight
        self._forget("lost" if event.lost else "revoked", event.partitions)

    def _on_refused(self, event: Refused) -> None:
        """Stops the partition, because the target topic is missing or forbidden. The other partitions go on."""
        owned = self.owned.get((event.topic, event.partition))
        if owned is None:
            return
        message = (
            f"{owned} can't be served, because the copy of offset {event.offset} to {event.target} was refused "
            f"({event.error}). Check that the topic exists and that the worker may write to it"
        )
        owned.stop = Stop(
            reason=Reason.TARGET_UNAVAILABLE,
            message=message,
            retry_at=self._seconds() + RETRY_TARGET_SECONDS,
            refused=event.offset,
            target=event.target,
        )

    def _on_removed(self, event: Removed) -> None:
        """Stops the partition if Kafka has lost its end. Otherwise `check_removed` decides once Kafka has said which offsets exist."""
        owned = self.owned.get((event.topic, event.partition))
        if owned is None or not owned.begun or event.topic_id != owned.topic_id:
            return  # about a former assignment or topic; the present one has a beginning of its own
        if event.error.code == KafkaError._LOG_TRUNCATION:
            owned.stop = stop_of_removed(owned, event, None)
        else:
            log.info("%s: Kafka refused offset %d: %s", owned, event.offset, event.error.text)
            owned.removed = event

    def _on_commit_unknown(self, event: CommitUnknown) -> None:
        for owned in self._of(event.partitions):
            self._begin_again(owned)

    def lose_all(self) -> None:
        """Forgets all partitions, because the client itself is lost."""
        self._forget("lost", list(self.owned))
        self._not_served.clear()
        self.assigned = False

    # -- called by the main loop

    def see(self, seen: Iterable[Seen]) -> None:
        """Takes in the state that partitions have in the engine now."""
        for now in seen:
            if owned := self.owned.get((now.topic, now.partition)):
                owned.seen, owned.delayed = now, now.delayed
        self._note_caught_up()

    def _note_caught_up(self) -> None:
        """Notes which assignments have caught up. Partitions that are gone are left out, because they will release nothing more."""
        over = [fresh for fresh in self._catching_up if all(o.gone or (o.seen and o.seen.caught_up) for o in fresh)]
        for fresh in over:
            self._catching_up.remove(fresh)
            self._note("caught-up", fresh, fresh[0].assigned_at)

    def check_removed(self) -> None:
        """Stops the partitions whose next record was removed, because people have to decide whether to skip it. If Kafka has the record,
        and the topic was created again, the client may have reported a fetch from the former topic, and the partition is read again."""
        removed = [o for o in self.owned.values() if o.removed is not None]
        self._known.look([o.place for o in removed])
        for owned in removed:
            there = self._known.found.get(owned.place)
            if owned.removed is None or there is None or owned.stop is not None:
                continue
            if owned.removed.offset == owned.began_again_at and has_offset(there, owned.removed.offset):
                log.info("%s is read again: Kafka refused its offset %d, and has it", owned, owned.removed.offset)
                self._engine.go_on(*owned.place)
            else:
                owned.stop = stop_of_removed(owned, owned.removed, there)
            owned.removed = None

    def topics_to_describe(self, snapshot: TopicsSnapshot) -> set[str]:
        """Returns the topics that Kafka has to describe before waiting partitions can begin."""
        waiting = [o for o in self.owned.values() if not o.begun and o.stop is None]
        stale = [o for o in waiting if not snapshot.is_younger(o.assigned_at, o.served.watched)]
        return {topic for o in stale for topic in o.served.watched}

    def begin(self, snapshot: TopicsSnapshot) -> None:
        """Begins the partitions that can begin."""
        now = self._seconds()
        waiting = [o for o in self.owned.values() if not o.begun and o.stop is None and now >= o.begin_at]
        able = [o for o in waiting if self._can_begin(o, snapshot, now)]
        self._request_committed([o for o in able if not o.committed_known and o.unanswered_since is None])
        self._take_late_committed()
        for owned in able:
            if owned.committed_known:
                owned.begin_at = now + RETRY_SECONDS
                self._begin(owned, beginning_of(owned))
            else:
                owned.stop = stop_of_withheld(owned, now)
        for fresh in self._begins.copy():
            ours = [o for o in fresh if not o.is_foreign]
            if ours and all(o.gone or _is_answered(o) for o in ours):
                self._note("assigned", [o for o in ours if not o.gone], ours[0].assigned_at)
                self._catching_up.append(ours)
            elif not all(o.gone for o in fresh):
                continue
            self._begins.remove(fresh)

    def check_topics(self, snapshot: TopicsSnapshot) -> None:
        """Stops partitions of topics that are gone or were created again, and lets stopped partitions go on if they can."""
        now = self._seconds()
        for owned in self.owned.values():
            self._check_topic(owned, snapshot, now)
            refused = owned.tried.refused if owned.tried else None
            if refused is not None and self._engine.is_finished(*owned.place, refused):
                owned.tried = None

    def _check_topic(self, owned: AssignedPartition, snapshot: TopicsSnapshot, now: float) -> None:
        if owned.begun and owned.served.registered_id(owned.topic) not in (None, owned.topic_id):
            owned.stop = owned.tried = None  # these were about the topic that is gone
            self._begin_again(owned)
            owned.recreated = True
            return
        before, stop = owned.stop, stop_for(owned, snapshot, now)
        if owned.begun and before and before.topic_gone and before.reason is Reason.TOPIC_RECREATED:
            return  # stays, whatever a broker that lags behind says, until the operator registers the new topic
        self._forget_missing(owned, stop, now)
        gone = stop is not None and stop.topic_gone
        waits = before is not None and (before.retry_at is None or now < before.retry_at)
        if waits and not (before and gone and not before.topic_gone):
            return
        owned.stop = stop
        if stop is None:
            if before is not None:
                self._go_on(owned, before)
        elif before is None or before.reason != stop.reason:
            self._stand_still(owned, stop)

    def _stand_still(self, owned: AssignedPartition, stop: Stop) -> None:
        if not owned.begun:
            return
        if stop.topic_gone and stop.reason is Reason.TOPIC_RECREATED:
            # A commit for the former topic would count for the new topic of its name, and a worker that starts later would begin there.
            # No release of a record of the new topic is known, so a commit of offset 0 takes back what was committed for the former.
            self._begin_again(owned)
            self._begin(owned, Beginning(offset=0, metadata="", commit=True), stands=True)
        else:
            self._engine.stop(*owned.place)

    def _forget_missing(self, owned: AssignedPartition, stop: Stop | None, now: float) -> None:
        """Forgets a partition whose topic is known to be deleted: Kafka refuses its commits, and no rebalance may wait for them. Before
        that, the partition only stands still, because a broker that lags behind may have reported the topic as missing."""
        if stop is None or stop.reason is not Reason.TOPIC_MISSING:
            owned.missing_since = None
        elif owned.missing_since is None:
            owned.missing_since = now
        elif owned.begun and now - owned.missing_since >= GONE_SECONDS:
            self._begin_again(owned)

    def _go_on(self, owned: AssignedPartition, before: Stop) -> None:
        if before.refused is not None:
            owned.tried = before  # keeps the alarm until Kafka accepts the refused copy
        if owned.begun:
            self._engine.go_on(*owned.place)

    def _begin_again(self, owned: AssignedPartition) -> None:
        """Makes the partition begin again, from what Kafka says is committed."""
        self._engine.forget(*owned.place)
        owned.begun = owned.committed_known = False
        owned.unanswered_since = owned.removed = None
        owned.begin_at = 0.0

    def _of(self, places: Iterable[TopicPartitionKey]) -> list[AssignedPartition]:
        found = (self.owned.get(place) for place in places)
        return [owned for owned in found if owned is not None]

    def _forget(self, kind: Literal["revoked", "lost"], places: Sequence[TopicPartitionKey]) -> None:
        self.generation += 1
        self._not_served = {place: since for place, since in self._not_served.items() if place not in set(places)}
        leaving = self._of(places)
        if kind == "lost":
            self._last_owned -= frozenset(places)
        for owned in leaving:
            owned.gone = True
            del self.owned[owned.place]
        self._note(kind, leaving, self._seconds())
        self._note_caught_up()
        log.info("%s: %s", kind, named(leaving))

    def _can_begin(self, owned: AssignedPartition, snapshot: TopicsSnapshot, now: float) -> bool:
        """Returns whether the registry and Kafka have described the partition and its topics, and nothing is wrong with them."""
        served = owned.served
        if served.layout is None or served.topics is None:
            return False
        if not snapshot.is_younger(owned.assigned_at, served.watched):
            return False
        if not owned.is_front and owned.partition >= served.layout.layout.partition_count:
            return False  # Kafka already has the partition, and the registry will have it soon
        if served.has_control_topic and not served.is_control_known:
            return False  # otherwise a cancelled record could be released
        registered_id = served.registered_id(owned.topic)
        if registered_id is None or not isinstance(snapshot.topics.get(owned.topic), TopicInfo | None):
            return False
        owned.stop = stop_for(owned, snapshot, now)
        owned.topic_id = registered_id
        return owned.stop is None

    def _request_committed(self, asked: Sequence[AssignedPartition]) -> None:
        if not asked:
            return
        by_place = {o.place: o for o in asked}
        for topic, partition, offset, metadata in self._engine.committed(list(by_place), COMMITTED_TIMEOUT_MS):
            owned = by_place[topic, partition]
            owned.committed, owned.committed_known = OffsetAndMetadata(offset, metadata) if offset >= 0 else None, True
        for owned in asked:
            owned.unanswered_since = None if owned.committed_known else self._seconds()
        if slow := [o for o in asked if not o.committed_known]:
            log.info("Kafka does not report the committed offsets at once for %s", named(slow))

    def _take_late_committed(self) -> None:
        for place, generation, committed in self._reader.take():
            owned = self.owned.get(place)
            if owned is not None and owned.generation == generation and owned.unanswered_since is not None:
                owned.committed, owned.committed_known, owned.unanswered_since = committed, True, None
        unanswered = {o.place: o.generation for o in self.owned.values() if o.unanswered_since is not None}
        if unanswered != self._unanswered:
            self._reader.want(unanswered)
            self._unanswered = unanswered

    def _begin(self, owned: AssignedPartition, at: Beginning | None, *, stands: bool = False) -> None:
        if at is None:
            self._stop_uncommitted(owned)
            owned.committed_known = False
            return
        self._engine.begin(
            owned.topic,
            owned.partition,
            topic_id=owned.topic_id,
            delay_seconds=owned.delay_seconds,
            offset=at.offset,
            metadata=at.metadata,
            commit=at.commit,
            stands=stands,
        )
        owned.began_again_at = at.offset if at.is_new else None
        owned.begun, owned.recreated = True, False

    def _stop_uncommitted(self, owned: AssignedPartition) -> None:
        topics = owned.served.topics
        if topics is None or owned.partition >= len(topics.start_offsets.get(owned.topic, ())):
            return  # the operator has not registered its start yet
        message = (
            f"{owned} has no committed offset in group {owned.served.names.group}, although it was served before. The group was deleted, "
            "or its offsets expired. Workers do not guess where to start. Set the group's offset while no worker runs"
        )
        retry_at = self._seconds() + RECHECK_SECONDS
        owned.stop = Stop(reason=Reason.COMMIT_MISSING, message=message, retry_at=retry_at)

    def _note(self, kind: ChangeKind, owned: Sequence[AssignedPartition], began: float) -> None:
        has_kept = kind in ("assignment", "revoked", "lost")
        kept = [o for o in self.owned.values() if has_kept and o.place in self._last_owned]
        self.changes.extend(changes_of(kind, owned, kept=kept, began=began, at=self._seconds()))


def _is_answered(owned: AssignedPartition) -> bool:
    return owned.begun or owned.stop is not None or owned.is_foreign
