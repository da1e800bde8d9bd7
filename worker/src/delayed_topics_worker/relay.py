"""The worker's main loop. It makes the decisions that the engine needs, passes on what the registry says, and reports what it observes."""

import logging
import re
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Final

from delayed_topics_core.names import CLOCK_TOPIC, transactional_id
from delayed_topics_core.words import counted, shortened
from delayed_topics_engine import Engine
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.clock import boot_seconds
from delayed_topics_kafka.commits import OffsetsReader
from delayed_topics_kafka.connection import Connection

from delayed_topics_worker.assignment import Assignment
from delayed_topics_worker.background import MAX_BUSY, closing
from delayed_topics_worker.clients import (
    BACKGROUND,
    SESSION_TIMEOUT_MS,
    Fetching,
    clock_properties,
    consumer_properties,
    librdkafka,
    producer_properties,
)
from delayed_topics_worker.committed import CommittedReader
from delayed_topics_worker.config import WorkerConfig
from delayed_topics_worker.control import Controls
from delayed_topics_worker.engine_events import (
    Assigned,
    AssignmentFailed,
    Changed,
    CommitUnknown,
    EngineEvent,
    Fatal,
    Log,
    ProducersReplaced,
    Refused,
    Removed,
    Reported,
    Revoked,
    Stranded,
    event_of,
)
from delayed_topics_worker.errors import ClientFatal, ConfigInvalid, ProtocolRefused
from delayed_topics_worker.group_watch import GroupWatch
from delayed_topics_worker.known_offsets import KnownOffsets
from delayed_topics_worker.log import SYSLOG_LEVELS, kafka_log
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.registry_watch import RegistryWatch
from delayed_topics_worker.report import Reporter
from delayed_topics_worker.served import ServedTopics
from delayed_topics_worker.topic_watch import TopicWatch
from delayed_topics_worker.web import PublishedStatus

log = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.1
SOON_SECONDS: Final = 0.01
REPORT_SECONDS: Final = 0.5
LEAVE_SECONDS: Final = 18.0
MAX_FATAL: Final = 3
FATAL_WITHIN_SECONDS: Final = 120.0
PROTOCOL_REFUSALS: Final = frozenset({"UNSUPPORTED_VERSION", "UNSUPPORTED_ASSIGNOR"})
REFUSED_SECONDS: Final = 15.0  # the client reports a refusal every 5 s, with each refresh of its metadata
UNAVAILABLE: Final = re.compile(r"Subscribed topic not available: ([^\s:]+): ")
"""The Kafka client (2.16) gives the name of a topic that it may not describe in the text of the error, and nowhere else."""


class Relay:
    """Owns one engine, and makes its decisions on the thread that calls `run`."""

    def __init__(
        self,
        config: WorkerConfig,
        connection: Connection,
        served: ServedTopics,
        *,
        member: str,
        template: str = "",
        metrics: Metrics,
        published: PublishedStatus,
    ) -> None:
        """`template`: identifies the template of the worker's pod; empty if it has none."""
        self._config = config
        self._connection = connection
        self._member = member
        self._published = published
        self._served = served
        self._metrics = metrics
        self._background = replace(connection, further={**connection.further, **BACKGROUND})
        self._registry = RegistryWatch(self._background, served, boot_seconds, client_id=f"{member}-registry")
        admin = KafkaAdmin(self._background, client_id=f"{member}-watch", timeout_seconds=5)
        self._watch = TopicWatch(admin, boot_seconds)
        self._group_watch = GroupWatch(admin, boot_seconds)
        self._known = KnownOffsets(admin)
        self._controls = Controls(self._background, served, member=member)
        self._seen = self._watch.snapshot
        self._group = ""
        self._committed = CommittedReader(lambda: OffsetsReader(self._background, self._group, ended=True))
        self._engine: Engine | None = None
        self._assignment: Assignment | None = None
        self._fetching = Fetching(hurried=not config.topics, partitions=0)
        self._numbered = 0
        self._subscribed: list[str] = []
        self._watched: list[str] = []
        self._partitions: dict[str, int] = {}
        self._next_report = float("-inf")
        self._reporter = Reporter(
            self._background,
            admin,
            member=member,
            served=self._served,
            controls=self._controls,
            metrics=metrics,
            session_timeout_ms=SESSION_TIMEOUT_MS if config.protocol == "classic" else None,
            template=template,
        )
        self._refused: dict[str | None, tuple[str, float]] = {}  # by front topic; None stands for all topics
        self._stopping = False
        self._fatal_at: list[float] = []
        self._start_at = self._soon_until = float("-inf")

    def stop(self) -> None:
        """Makes `run` return after the current turn. A signal handler may call it."""
        self._stopping = True

    def run(self) -> None:
        """Runs until `stop`, and then waits up to LEAVE_SECONDS until everything that was sent is committed. Raises WorkerError."""
        self._watch.start()
        self._group_watch.start()
        self._known.start()
        self._reporter.started()
        while not self._stopping:
            self._published.turned_at = self._turned_at()
            self._follow()
            engine, assignment = self._engine, self._assignment
            if engine is None or assignment is None or not self._subscribed:
                nothing_to_serve = all(served.layout is None for served in self._served)
                self._published.ready = bool(self._config.group) and self._registry.caught_up and nothing_to_serve
                time.sleep(TURN_SECONDS)
            else:
                try:
                    self._turn(engine, assignment)
                except ClientFatal as e:
                    self._start_over(engine, assignment, e)
            if engine is not None and assignment is not None:
                self._report(engine, assignment)
        self._leave()

    def _turned_at(self) -> float:
        """Returns when the last turn ended: this thread's, which ends now, or that of the engine's thread, whichever ended earlier."""
        return boot_seconds() - (self._engine.still_seconds if self._engine is not None else 0.0)

    # -- the parts of a turn

    def _turn(self, engine: Engine, assignment: Assignment) -> None:
        """Raises ClientFatal."""
        self._controls.follow(engine)
        snapshot = self._watch.snapshot
        assignment.check_topics(snapshot)
        if undescribed := assignment.topics_to_describe(snapshot):
            self._watch.look(undescribed)
        assignment.check_removed()
        assignment.begin(snapshot)
        # Nothing wakes the loop when topics have been described, which takes milliseconds when all is well.
        soon = undescribed and boot_seconds() < self._soon_until
        self._handle_reports(engine, assignment, SOON_SECONDS if soon else TURN_SECONDS)

    def _handle_reports(self, engine: Engine, assignment: Assignment, longest_seconds: float) -> None:
        """Handles everything that the engine has reported, and then raises the first ClientFatal among it."""
        failed: ClientFatal | None = None
        for reported in engine.wait(longest_seconds):
            try:
                self._handle(assignment, event_of(reported))
            except ClientFatal as e:
                failed = failed or e
        if failed is not None:
            raise failed

    def _handle(self, assignment: Assignment, event: EngineEvent) -> None:
        match event:
            case Assigned():
                assignment.on_assigned(event)
                self._group_watch.assigned()
                self._soon_until = boot_seconds() + 1.0
            case Revoked() | Refused() | Removed() | CommitUnknown() | ProducersReplaced():
                assignment.take(event)
            case Changed():
                self._controls.on_changed(event)
            case Reported(error, topic, _):
                self._note_report(error.name, error.text, topic)
            case Fatal(error) if self._config.protocol == "consumer" and error.name in PROTOCOL_REFUSALS:
                raise ProtocolRefused(self._config.client_assignor, error)
            case Fatal(error) | AssignmentFailed(error):
                raise ClientFatal(f"a Kafka client failed permanently: {error}")
            case Stranded(client):
                raise ClientFatal(f"the Kafka {client} has lost the addresses of all brokers")
            case Log(level, facility, text):
                kafka_log.log(SYSLOG_LEVELS.get(level, logging.INFO), "%s: %s", facility, text)

    def _note_report(self, name: str, text: str, topic: str | None) -> None:
        if named := UNAVAILABLE.match(text):
            topic = named[1]
        if name in ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"):
            of_topic = f" of {topic}" if topic else ""
            message = f"Kafka does not let the worker read records{of_topic} ({name}: {text}). Check the worker's ACLs"
            served = self._served.find(topic) if topic else None
            self._refused[served.topic if served else None] = (message, boot_seconds())
        else:
            kafka_log.info("%s: %s", name, text)

    def _follow(self) -> None:
        """Follows the registry and the topics, and adapts the subscription to them."""
        now = boot_seconds()
        changed = self._registry.read()
        if changed and self._subscribed and all(served.layout is None for served in self._served):
            log.warning(
                "no topic is left to serve, and the worker leaves the group. It served: %s", ", ".join(self._subscribed)
            )
            self._leave_group(for_good=True)
        snapshot, before = self._watch.snapshot, self._seen
        recreated = self._served.recreated(snapshot, now) if changed or snapshot is not before else []
        if changed or recreated or (not self._subscribed and now >= self._start_at):
            self._subscribe(recreated)
            self._watch.look()
        if self._engine is not None and self._subscribed and self._group_watch.should_rejoin():
            places = shortened([f"{topic} [{partition}]" for topic, partition in self._group_watch.unassigned])
            log.warning("no worker has %s. This worker joins the group again, so that the group assigns them", places)
            self._join(self._engine, self._subscribed, sorted({topic for topic, _ in self._group_watch.unassigned}))
        if self._assignment is not None and self._assignment.keeps_from_others:
            self._leave_group(for_good=True)
        if snapshot is not before:
            self._seen = snapshot
            changed |= {s.topic for s in self._served if s.describe(snapshot)}
        if self._engine is not None:
            self._serve(self._engine, changed)

    def _number_topics(self, engine: Engine) -> None:
        """Adds new topics to the engine, which has to know a topic before it is assigned partitions of it."""
        fresh = [served for served in self._served if served.number >= self._numbered]
        for served in fresh:
            names = served.names
            engine.add_topic(names.front, names.delays, names.ready, names.dead_letter)
            self._reporter.serving(served.topic)
        self._numbered += len(fresh)
        self._serve(engine, {served.topic for served in fresh})

    def _serve(self, engine: Engine, changed: Collection[str]) -> None:
        """Tells the engine what the registry and Kafka say about the changed topics."""
        for served in (served for served in self._served if served.topic in changed):
            engine.serve(
                served.number,
                served.policy,
                paused=served.paused,
                skew_ms=served.skew_ms,
                compression=served.layout.compression if served.layout else "none",
                replicated=served.replicated,
                dead_letter_partitions=served.dead_letter_partitions,
                has_control_topic=served.has_control_topic,
            )

    def _subscribe(self, recreated: list[str]) -> None:
        """Subscribes to the topics that have a serving layout, with new clients if topics were created again."""
        serving = [s for s in self._served if s.layout is not None]
        groups = {s.layout.group: s.topic for s in serving if s.layout is not None}
        if len(groups) > 1:
            named = ", ".join(f"{topic} has {group}" for group, topic in sorted(groups.items()))
            raise ConfigInvalid(
                f"all topics of one worker must have the same consumer group in their layouts, but {named}"
            )
        wanted = [topic for s in serving for topic in (s.names.front, s.names.delays)]
        if not groups:
            return
        self._group = next(iter(groups))
        partitions = {topic: count for s in serving for topic, count in s.partitions.items()}
        grown = [topic for topic in self._subscribed if partitions.get(topic, 0) > self._partitions[topic]]
        hurried = self._fetching.hurried or any(s.hurried for s in serving)
        fetching = Fetching(hurried=hurried, partitions=sum(partitions.values()))
        if self._subscribed and (recreated or self._fetching.is_outgrown_by(fetching)):
            why = f" because topics were created again: {shortened(recreated)}" if recreated else ""
            log.info(
                "joining again%s, to ask for %d partitions every %d ms", why, fetching.partitions, fetching.wait_ms
            )
            # Kafka gives a returning static member only its former partitions, and none of topics that are new to it.
            self._leave_group(for_good=wanted != self._subscribed or bool(grown))
        if not self._subscribed:
            self._fetching = fetching
        watched = [topic for s in serving for topic in s.watched]
        if watched != self._watched:
            self._watch.follow(watched)
            self._watched = watched
        if wanted == self._subscribed and (not grown or self._config.protocol == "consumer"):
            return
        if self._engine is None:
            self._engine = self._new_engine()
            self._assignment = Assignment(
                self._engine, self._served, seconds=boot_seconds, reader=self._committed, known=self._known
            )
        self._number_topics(self._engine)
        self._join(self._engine, wanted, grown)
        self._subscribed, self._partitions = wanted, partitions
        log.info("subscribed to %s: %s", counted(len(wanted), "topic"), shortened(wanted))

    def _join(self, engine: Engine, topics: list[str], grown: list[str]) -> None:
        """Joins the group. A member that joins again makes the group's leader assign all partitions again."""
        consumer = consumer_properties(
            self._connection,
            group=self._group,
            member=self._member,
            protocol=self._config.protocol,
            assignor=self._config.client_assignor,
            fetching=self._fetching,
        )
        engine.subscribe(topics, consumer, grown=grown)
        if self._config.protocol == "classic":
            self._group_watch.joining(self._group, topics)

    def _new_engine(self) -> Engine:
        identity = transactional_id(self._group, self._member) if self._config.guarantee == "ExactlyOnce" else None
        return Engine(
            library=librdkafka(),
            producer=producer_properties(self._connection, member=self._member, transactional_id=identity),
            clock=clock_properties(self._connection, member=self._member),
            clock_topic=CLOCK_TOPIC,
            window_bytes=self._config.window_bytes,
            commit_interval_ms=self._config.commit_interval_ms,
            renew_seconds=self._config.renew_commits_seconds,
            exactly_once=identity is not None,
        )

    def _report(self, engine: Engine, assignment: Assignment) -> None:
        now = boot_seconds()
        if now < self._next_report:
            return
        began = time.thread_time()
        self._refused = {of: entry for of, entry in self._refused.items() if now - entry[1] <= REFUSED_SECONDS}
        of_all: dict[str | None, str] = {None: str(self._registry.refused)} if self._registry.refused else {}
        if self._subscribed:  # otherwise `run` has set it
            self._published.ready = assignment.settled
        self._published.status = self._reporter.report(
            engine,
            assignment,
            refused=of_all | {of: message for of, (message, _) in self._refused.items()},
            snapshot=self._watch.snapshot,
            unassigned=self._group_watch.unassigned,
        )
        self._next_report = now + max(REPORT_SECONDS, (time.thread_time() - began) / MAX_BUSY)

    # -- leaving

    def _start_over(self, engine: Engine, assignment: Assignment, error: ClientFatal) -> None:
        """Joins again after a client failed. A static member that was cut off for longer than its session fences itself when it
        returns, because Kafka has accepted its first try to join, whose answer was lost, when the second comes. Raises ProtocolRefused
        at once, and ClientFatal if clients fail too often, because another process then has the same name."""
        now = boot_seconds()
        self._fatal_at = [at for at in self._fatal_at if now - at < FATAL_WITHIN_SECONDS] + [now]
        if isinstance(error, ProtocolRefused) or len(self._fatal_at) > MAX_FATAL:
            raise error
        log.warning("%s. The worker joins the group again with a new client", error)
        self._lose_all(engine, assignment)
        self._start_at = now + len(self._fatal_at)

    def _lose_all(self, engine: Engine, assignment: Assignment) -> None:
        engine.leave_at_once()
        with suppress(ClientFatal):
            self._handle_reports(engine, assignment, 0.0)  # these are about the former client, not the next one
        assignment.lose_all()
        self._group_watch.left()
        self._subscribed = []

    def _leave_group(self, *, for_good: bool = False) -> None:
        """Leaves the group in an orderly way. A static member keeps its partitions for its successor, unless `for_good`."""
        engine, assignment = self._engine, self._assignment
        if engine is None or assignment is None:
            return
        engine.leave(for_good)
        deadline = boot_seconds() + LEAVE_SECONDS
        left = False
        try:
            while not left and boot_seconds() < deadline:
                self._published.turned_at = self._turned_at()
                left = engine.left  # read first, so that all reports from before are handled
                self._handle_reports(engine, assignment, 0.0 if left else TURN_SECONDS)
        except ClientFatal as e:
            log.warning("%s. The worker leaves the group at once", e)
        self._lose_all(engine, assignment)

    def _leave(self) -> None:
        log.info("stopping")
        if self._engine is not None:
            self._registry.read(whole=True)  # the wanted number of workers may have been written a moment ago
        self._leave_group(for_good=self._served.is_surplus(self._member))
        parts = (self._watch, self._group_watch, self._known, self._controls, self._committed, self._registry)
        closing(lambda: [part.close() for part in parts])
        self._reporter.stopped(self._assignment)
