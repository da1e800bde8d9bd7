"""The worker's loop: take in, release what is due, settle the barrier."""

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from threading import Event
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer
from delayed_topics_core.names import transactional_id
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.clock import BrokerClock, boot_seconds
from delayed_topics_kafka.commits import OffsetsReader
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaDoorError, KafkaRefused, RegistryLost
from delayed_topics_kafka.registry import RegistryFollower

from delayed_topics_worker.assignment import Assignment
from delayed_topics_worker.barrier import Barrier
from delayed_topics_worker.brake import Brake
from delayed_topics_worker.clients import ASIDE, new_consumer, new_producer
from delayed_topics_worker.committed import CommittedReader
from delayed_topics_worker.config import WorkerConfig
from delayed_topics_worker.errors import ClientFatal, ConfigInvalid
from delayed_topics_worker.intake import Intake
from delayed_topics_worker.log import kafka_log
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.outbox import Outbox
from delayed_topics_worker.owned import Owned
from delayed_topics_worker.release import Heads, Releaser
from delayed_topics_worker.report import Reporter
from delayed_topics_worker.served import Served, ServedTopics
from delayed_topics_worker.topic_watch import TopicWatch
from delayed_topics_worker.transactions import Transactions
from delayed_topics_worker.web import Board

log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS: Final = 0.1
FOLLOW_SECONDS: Final = 0.1
REPORT_SECONDS: Final = 0.5
BRAKE_SECONDS: Final = 0.005
BRAKE_PAUSE: Final = 20
"""How many times as long as it took the next look waits."""
PROBE_SECONDS: Final = 0.25
IDLE_PROBE_SECONDS: Final = 30.0
"""Two clocks drift apart, and what is due next must not be found late; retention is reckoned by the broker's time, too."""
AWAIT_PROBE_SECONDS: Final = 0.05
NEAR_MS: Final = 1000
"""What is due within this needs the broker's time and an open fence."""
ZOMBIE_SECONDS: Final = 1.0
REVOKE_TIMEOUT_SECONDS: Final = 4.0
MOST_FATAL: Final = 3
FATAL_WITHIN_SECONDS: Final = 120.0
CATCH_UP_SECONDS: Final = 2.0


class Relay:
    """One consumer, one outbox, one thread that owns them: the one that calls `run`."""

    def __init__(
        self,
        config: WorkerConfig,
        connection: Connection,
        served: ServedTopics,
        *,
        member: str,
        metrics: Metrics,
        board: Board,
    ) -> None:
        self._config = config
        self._connection = connection
        self._member = member
        self._board = board
        self._served = served
        self._outbox = Outbox(self._new_producer)
        self._barrier = self._new_barrier(metrics)
        aside = replace(connection, further={**connection.further, **ASIDE})
        self._committed = CommittedReader(lambda: OffsetsReader(aside, self._group, ended=True))
        self._assignment = Assignment(
            self._served,
            config.protocol,
            settle=self._settle,
            abandon=self._barrier.abandon,
            seconds=boot_seconds,
            reader=self._committed,
        )
        self._intake = Intake(self._assignment, seconds=boot_seconds)
        self._releaser = Releaser(self._outbox, metrics.lateness)
        self._heads = Heads()
        self._full: list[Owned] = []
        self._brake = Brake(config.window_bytes)
        self._clock = BrokerClock(aside, client_id=f"{member}-clock")
        self._probed_at = float("-inf")
        self._now_ms = 0
        self._now_at = float("-inf")
        self._follower = RegistryFollower(aside, client_id=f"{member}-registry")
        self._registry_problem: str | None = None
        self._registry_refused: KafkaRefused | None = None
        self._caught_up = False
        admin = KafkaAdmin(aside, client_id=f"{member}-watch", timeout_seconds=5)
        self._watch = TopicWatch(admin, boot_seconds)
        self._seen_at = float("-inf")
        self._consumer: Consumer | None = None
        self._hurried = False
        self._subscribed: list[str] = []
        self._group = ""
        self._next_follow = self._next_report = self._next_brake = float("-inf")
        self._reporter = Reporter(
            aside, admin, member=member, served=self._served, assignment=self._assignment, metrics=metrics
        )
        self._stranded = Event()
        self._stopping = False
        self._fatal_at: list[float] = []
        self._start_at = float("-inf")

    def stop(self) -> None:
        """Called by a signal handler: `run` returns after the turn at hand."""
        self._stopping = True

    def run(self) -> None:
        """Returns after `stop`, with everything that was sent committed. Raises WorkerError."""
        self._watch.start()
        self._reporter.started()
        while not self._stopping:
            self._board.turned_at = boot_seconds()
            self._follow()
            if self._consumer is None:
                self._clock.poll()  # what the clients tell piles up else
                self._outbox.poll()
                time.sleep(FOLLOW_SECONDS)
                continue
            try:
                taken = self._intake.take_in(self._consumer, self._patience())
                for owned in taken:
                    self._heads.register(owned)
                near = self._tell_time()
                if self._assignment.failure is not None:
                    raise ClientFatal(self._assignment.failure)
                self._release()
                self._settle_some(self._consumer, near)
            except ClientFatal as e:
                self._start_over(self._consumer, e)
                continue
            self._hold(self._consumer, taken)
            if self._stranded.is_set():
                self._replace_clients(self._consumer)
        self._leave()

    # -- the parts of a turn

    def _follow(self) -> None:
        """Registry, topics, subscription, beginnings."""
        now = boot_seconds()
        if now < self._next_follow:
            return
        self._next_follow = now + FOLLOW_SECONDS
        changed = self._read_registry()
        if changed or (self._consumer is None and now >= self._start_at):
            self._outbox.learn(topic for s in changed for topic in (s.names.delays, s.names.ready))
            self._barrier.begin()  # another compression is another producer, which must not overtake this one
            self._subscribe()
            self._watch.look()
            self._heads.rebuild(list(self._assignment.owned.values()))
        sight = self._watch.sight
        if sight.asked_at > self._seen_at:
            self._seen_at = sight.asked_at
            self._served.count_dead_letter_partitions(sight)
        if self._consumer is None:
            return
        self._assignment.check_topics(sight)
        if any(
            o.window is None and o.stop is None and sight.asked_at < o.assigned_at
            for o in self._assignment.owned.values()
        ):
            self._watch.look()
        self._assignment.begin(self._consumer, sight)
        self._assignment.place_stalled(self._consumer)

    def _read_registry(self) -> list[Served]:
        """What of ours has changed."""
        try:
            if self._caught_up:
                self._follower.poll(0)
            else:
                self._follower.catch_up(CATCH_UP_SECONDS)
                self._caught_up = True
        except KafkaDoorError as e:
            if str(e) != self._registry_problem:
                log.warning("%s", e)
            self._registry_problem = str(e)
            if isinstance(e, KafkaRefused):
                self._registry_refused = e
            return []
        self._registry_problem = None
        if not isinstance(self._registry_refused, RegistryLost):
            self._registry_refused = None  # one that is lost says so once, and then nothing comes any more
        return [served for served in self._served if served.follow(self._follower.state)]

    def _subscribe(self) -> None:
        """To what has a serving layout."""
        serving = [s for s in self._served if s.layout is not None]
        groups = {s.layout.group: s.topic for s in serving if s.layout is not None}
        if len(groups) > 1:
            named = ", ".join(f"{topic} has {group}" for group, topic in sorted(groups.items()))
            raise ConfigInvalid(f"all topics of one worker must have the same consumer group in their layouts: {named}")
        self._barrier.compress({s.layout.compression for s in serving if s.layout is not None})
        hurried = any(s.hurried for s in serving)
        if self._consumer is not None and hurried and not self._hurried:
            log.info("a delay of 0 is new: joining again as a client that reads without waiting")
            self._settle(list(self._assignment.owned.values()))
            self._give_up(self._consumer)
        wanted = [topic for s in serving for topic in (s.names.front, s.names.delays)]
        if wanted == self._subscribed:
            return
        self._watch.look([topic for s in serving for topic in s.names.topics])
        if self._consumer is None:
            self._hurried = hurried
            self._group = next(iter(groups))
            self._consumer = new_consumer(
                self._connection,
                group=self._group,
                member=self._member,
                protocol=self._config.protocol,
                hurried=hurried,
                on_commit=self._barrier.on_commit,
                on_error=self._on_client_error,
                on_stranded=self._stranded.set,
            )
        self._subscribed = wanted
        if wanted:
            callbacks = self._assignment
            self._consumer.subscribe(
                wanted, on_assign=callbacks.on_assign, on_revoke=callbacks.on_revoke, on_lost=callbacks.on_lost
            )
        else:
            self._consumer.unsubscribe()
        log.info("subscribed: %s", ", ".join(wanted) or "nothing")

    def _patience(self) -> float:
        """Seconds to wait for records before there is something else to do."""
        if self._barrier.flushing or (self._full and not self._barrier.fenced):
            return 0.001 if self._full else 0.0
        wait = min(LONGEST_WAIT_SECONDS, self._barrier.due_in())
        if self._clock.awaiting and boot_seconds() - self._probed_at < AWAIT_PROBE_SECONDS:
            wait = min(wait, 0.001)
        turn_ms = self._heads.next_turn_ms
        if turn_ms is not None:
            until = (turn_ms - self._now_ms) / 1000 - (boot_seconds() - self._now_at)
            # below a millisecond the client would not wait at all; due and not released: the time or the fence is awaited
            wait = min(wait, until) if until > 0 else 0.001
        return max(wait, 0.001) if wait > 0 else 0.0

    def _tell_time(self) -> bool:
        """Drive the broker's clock as far as it is needed; True if something is due, or will be soon."""
        self._clock.poll()
        now = boot_seconds()
        bound_ms = self._clock.now_lower_bound_ms()
        if bound_ms is not None:
            self._now_ms, self._now_at = bound_ms, now
        turn_ms = self._heads.next_turn_ms
        near = bool(self._full) or (
            turn_ms is not None and turn_ms - self._now_ms - (now - self._now_at) * 1000 < NEAR_MS
        )
        if now - self._probed_at >= (PROBE_SECONDS if near else IDLE_PROBE_SECONDS):
            self._probed_at = now
            self._clock.probe()
        return near

    def _estimate_ms(self) -> int:
        """The broker's time as far as it is known; for planning and showing, never for releasing."""
        return self._now_ms + int((boot_seconds() - self._now_at) * 1000) if self._now_ms else int(time.time() * 1000)

    def _release(self) -> None:
        """Send what is due: with fresh broker time, an open fence, and after a poll that would have told of a revocation."""
        now_ms = self._clock.now_lower_bound_ms()
        if now_ms is None:
            return
        for owned in (*self._full, *self._barrier.shelved):
            self._heads.register(owned)
        self._full = []
        self._barrier.shelved.clear()
        while self._barrier.may_send and boot_seconds() - self._intake.polled_at < ZOMBIE_SECONDS:
            head = self._heads.pop(now_ms)
            if head is None:
                return
            self._releaser.work(head, now_ms)
            if head.room > 0 and not head.refused:
                self._heads.register(head)
            else:
                self._full.append(head)

    def _settle_some(self, consumer: Consumer, near: bool) -> None:
        self._outbox.poll()
        all_owned = self._assignment.owned.values()
        rewinding = any(o.rewinding for o in all_owned)
        self._barrier.turn(consumer, all_owned, self._now_ms, needed=near, hasten=rewinding)
        if rewinding and not self._barrier.flushing and not self._outbox.outstanding:
            self._assignment.rewind(consumer)
            self._heads.rebuild(list(all_owned))

    def _hold(self, consumer: Consumer, taken: Collection[Owned]) -> None:
        """The brake, and what others get to see. With a thousand partitions a look at all of them takes 1.5 ms."""
        now = boot_seconds()
        if now >= self._next_brake or self._brake.needed_at_once(taken):
            self._brake.turn(consumer, self._assignment.owned.values(), self._estimate_ms())
            ended = boot_seconds()
            self._next_brake = ended + max(BRAKE_SECONDS, BRAKE_PAUSE * (ended - now))
        if now >= self._next_report:
            self._next_report = now + REPORT_SECONDS
            self._board.ready = self._assignment.settled
            self._board.status = self._reporter.report(
                consumer,
                now_ms=self._estimate_ms(),
                clock_fresh=self._clock.now_lower_bound_ms() is not None,
                fenced=self._barrier.fenced,
                held_bytes=self._brake.held_bytes,
                waits_for=(self._clock.problem, self._barrier.problem),
                refused=self._intake.refused or self._registry_refused or self._barrier.refused,
                stuck_seconds=self._barrier.stuck_seconds,
                sight=self._watch.sight,
            )

    # -- leaving

    def _start_over(self, consumer: Consumer, error: ClientFatal) -> None:
        """A static member that was cut off for longer than its session fences itself when it returns: Kafka has taken in
        its first try to join, whose answer was lost, when the second comes. Raises ClientFatal when it happens too often:
        then it's another process of the same name."""
        now = boot_seconds()
        self._fatal_at = [at for at in self._fatal_at if now - at < FATAL_WITHIN_SECONDS] + [now]
        if len(self._fatal_at) > MOST_FATAL:
            raise error
        log.warning("%s; joining again as a new client", error)
        self._give_up(consumer)
        self._start_at = now + len(self._fatal_at)

    def _replace_clients(self, consumer: Consumer) -> None:
        """One of them knows no broker any more, however long Kafka has been back."""
        why = "a Kafka client knows no broker any more"
        log.warning("%s; joining again with new ones", why)
        self._outbox.failure = KafkaError(KafkaError._ALL_BROKERS_DOWN, why)  # what is on its way never arrives
        self._give_up(consumer)
        self._stranded.clear()

    def _give_up(self, consumer: Consumer) -> None:
        """And all partitions with it."""
        self._assignment.lose_all()
        consumer.close()
        self._barrier.forget_client()
        self._consumer = None
        self._subscribed = []

    def _leave(self) -> None:
        """Settle, commit, leave; a static member keeps its partitions for its successor."""
        log.info("stopping")
        if self._consumer is not None:
            self._settle(list(self._assignment.owned.values()))
            self._consumer.close()
        self._watch.close()
        self._committed.close()
        self._follower.close()
        self._clock.close()
        self._reporter.stopped()

    def _settle(self, owned: Sequence[Owned]) -> None:
        if self._consumer is not None:
            self._barrier.settle(self._consumer, owned, timeout_seconds=REVOKE_TIMEOUT_SECONDS)

    def _new_barrier(self, metrics: Metrics) -> Barrier:
        seconds = self._config.barrier_ms / 1000
        if self._config.guarantee == "AtLeastOnce":
            return Barrier(self._outbox, metrics, barrier_seconds=seconds, seconds=boot_seconds)
        return Transactions(
            self._outbox,
            metrics,
            barrier_seconds=seconds,
            seconds=boot_seconds,
            membership=lambda: self._consumer.consumer_group_metadata() if self._consumer else None,
        )

    def _new_producer(self, compression: str) -> Producer:
        layouts = [s.layout for s in self._served if s.layout is not None]
        exactly = self._config.guarantee == "ExactlyOnce"
        return new_producer(
            self._connection,
            member=self._member,
            compression=compression,
            on_error=self._on_client_error,
            on_stranded=self._stranded.set,
            transactional_id=transactional_id(layouts[0].group, self._member) if exactly else None,
        )

    def _on_client_error(self, error: KafkaError) -> None:
        """The clients' callback. They go on by themselves; what matters comes back with the records or their copies."""
        kafka_log.info("%s: %s", error.name(), error.str())
