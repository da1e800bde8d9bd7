"""What a worker does with its partitions when the registry or a broker reports a change of their topics."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from delayed_topics_core.layout import LayoutSpec, evolve, initial
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import Reason
from delayed_topics_core.registry import LayoutRecord, TopicsRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core_testing.served import serving
from delayed_topics_engine import Engine, encode_metadata
from delayed_topics_kafka.errors import KafkaCallError, KafkaUnreachable
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_worker.assignment import GONE_SECONDS, Assignment
from delayed_topics_worker.committed import CommittedReader
from delayed_topics_worker.config import WorkerConfig
from delayed_topics_worker.engine_events import Assigned, Fault, Removed
from delayed_topics_worker.known_offsets import KnownOffsets, Offsets
from delayed_topics_worker.served import ServedTopics
from delayed_topics_worker.topic_watch import TopicsSnapshot

LAYOUT = initial(LayoutSpec(delay_seconds=(0, 10), partitions=2, lanes_per_delay=1))
GROWN = evolve(LAYOUT, LayoutSpec(delay_seconds=(0, 10, 60), partitions=3, lanes_per_delay=1))
SERVING = serving("orders", LAYOUT, partitions=1)
IDS = {name: name for name in ("orders", "orders.delays", "orders.ready", "orders.dead")}
FRONT = ("orders", 0)
PLACES = [FRONT, ("orders.delays", 0), ("orders.delays", 1)]
COMMITTED = 7


class RecordingEngine:
    """Stands in for the engine and records calls for partitions. The committed offset of each partition of `PLACES` is `COMMITTED`, with
    the `metadata`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.metadata = ""
        self.withholds = False

    def committed(self, places: Sequence[tuple[str, int]], timeout_ms: int) -> list[tuple[str, int, int, str]]:
        return (
            []
            if self.withholds
            else [(*place, COMMITTED if place in PLACES else -1001, self.metadata) for place in places]
        )

    def assign(self, places: object) -> None:
        pass

    def is_finished(self, *_: object) -> None:
        return None

    def begin(self, topic: str, partition: int, *, offset: int, stands: bool, **_: object) -> None:
        self.calls.append(("stand" if stands else "begin", topic, partition, offset))

    def stop(self, *place: object) -> None:
        self.calls.append(("stop", *place))

    def go_on(self, *place: object) -> None:
        self.calls.append(("go_on", *place))

    def forget(self, *place: object) -> None:
        self.calls.append(("forget", *place))


class Kafka:
    """The assignment of one worker, on a simulated clock, and what the registry and the brokers answer."""

    def __init__(self, *beside: str) -> None:
        """`beside`: further delayed topics that the worker serves, whose control topics it has yet to read."""
        self.now = 0.0
        self.late: list[tuple[tuple[str, int], int, OffsetAndMetadata]] = []
        """What Kafka reports as committed later than it was asked, with the generation."""
        self.engine = RecordingEngine()
        self.ids: dict[str, str | KafkaCallError | None] = {**IDS}
        self._state = RegistryState()
        self._served = ServedTopics(WorkerConfig(topics=("orders", *beside)))
        self.assignment = Assignment(
            cast(Engine, self.engine),
            self._served,
            seconds=lambda: self.now,
            reader=cast(CommittedReader, SimpleNamespace(take=lambda: self.late, want=lambda wanted: None)),
            known=cast(KnownOffsets, SimpleNamespace(look=lambda places: None, found={FRONT: Offsets(0, COMMITTED)})),
        )
        self.registers(SERVING)
        self.accepts(IDS)
        for topic in beside:
            self.registers(serving(topic, LAYOUT, partitions=1, control=True))
            names = TopicNames.of(topic)
            ids = {name: name for name in (*names.topics, names.control)}
            self.ids |= ids
            starts = {names.front: (0,), names.delays: (0, 0)}
            self.registers(TopicsRecord(topic=topic, ids=ids, start_offsets=starts))

    def registers(self, record: LayoutRecord | TopicsRecord) -> None:
        self._state.apply(self._state.next_offset, record.key, encode(record))
        self._served.follow(self._state)

    def accepts(self, ids: Mapping[str, str]) -> None:
        """Registers, as an operator does, that the topics with these ids are the right ones."""
        self.registers(
            TopicsRecord(
                topic="orders",
                ids=ids,
                start_offsets={"orders": (0,), "orders.delays": (0, 0)},
                begun={"orders": 1, "orders.delays": 2},
            )
        )

    def has_read_control(self, topic: str) -> None:
        self._served.of_source(topic).is_control_known = True

    def assigns(self, *places: tuple[str, int]) -> None:
        self.assignment.on_assigned(Assigned(list(places), 1))

    def stops(self) -> list[Reason]:
        return [owned.stop.reason for owned in self.assignment.owned.values() if owned.stop]

    def is_ready(self) -> bool:
        return self.assignment.settled

    def turns(self, seconds: float = 2.0) -> list[tuple[Any, ...]]:
        """Runs the loop for that long, with a turn every 0.5 s. Returns the calls to the engine."""
        self.engine.calls.clear()
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            topics = {
                name: TopicInfo(name=name, id=id_, partitions=3, replication_factor=1, leaders_known=True)
                if isinstance(id_, str)
                else id_
                for name, id_ in self.ids.items()
            }
            snapshot = TopicsSnapshot(topics, dict.fromkeys(topics, self.now))
            self.assignment.check_topics(snapshot)
            self.assignment.check_removed()
            self.assignment.begin(snapshot)
        return self.engine.calls


def removed(topic_id: str, offset: int) -> Removed:
    """Returns the engine's report that this offset of the front topic does not exist any more."""
    return Removed(*FRONT, offset, topic_id, Fault(-140, "_AUTO_OFFSET_RESET", "out of range"))


@pytest.fixture
def kafka() -> Kafka:
    """Returns a Kafka with a worker that serves `orders`."""
    made = Kafka()
    made.assigns(*PLACES)
    made.turns()
    assert made.is_ready()
    return made


@pytest.mark.parametrize("foreign", [("orders.delays", 2), ("orders", 1)])
def test_a_partition_beyond_the_layout_is_waited_for_by_nobody(foreign: tuple[str, int]) -> None:
    kafka = Kafka()
    kafka.assigns(*PLACES, foreign)

    assert not kafka.is_ready()
    assert foreign not in [call[1:3] for call in kafka.turns()]
    assert kafka.is_ready()
    assert [(change.kind, change.partitions) for change in kafka.assignment.changes] == [
        ("assignment", 4),
        ("assigned", 3),
    ]


def test_a_worker_is_ready_while_kafka_refuses_what_is_planned_and_serves_it_afterwards() -> None:
    """The planned partitions may exist for weeks before the layout is served."""
    kafka, planned = Kafka(), ("orders.delays", 2)
    kafka.registers(replace(SERVING, layout=GROWN, state="planned", before=SERVING))
    kafka.assigns(*PLACES, planned)
    kafka.turns()
    assert kafka.is_ready()

    starts = {"orders": (0,), "orders.delays": (0, 0, 0)}
    kafka.registers(
        TopicsRecord(topic="orders", ids=IDS, start_offsets=starts, begun={"orders": 1, "orders.delays": 2})
    )
    kafka.registers(replace(SERVING, layout=GROWN))

    assert not kafka.is_ready()
    assert kafka.turns() == [("begin", *planned, 0)]
    assert kafka.is_ready()


def test_partitions_that_come_alone_are_told_as_served_once_the_layout_has_them(kafka: Kafka) -> None:
    """With protocol `consumer`, Kafka assigns new partitions as soon as they exist."""
    kafka.assignment.changes.clear()
    kafka.assigns(("orders.delays", 2))
    kafka.turns()
    assert [change.kind for change in kafka.assignment.changes] == ["assignment"]

    starts = {"orders": (0,), "orders.delays": (0, 0, 0)}
    kafka.registers(
        TopicsRecord(topic="orders", ids=IDS, start_offsets=starts, begun={"orders": 1, "orders.delays": 2})
    )
    kafka.registers(replace(SERVING, layout=GROWN))
    kafka.turns()

    assert [(change.kind, change.places) for change in kafka.assignment.changes] == [
        ("assignment", ["orders.delays[2]"]),
        ("assigned", ["orders.delays[2]"]),
    ]


def test_a_topic_whose_control_topic_cannot_be_read_does_not_hide_that_another_one_is_served() -> None:
    """Once, no event reported the takeover of `orders`, so an audit did not excuse the records of `orders` that a crash had repeated."""
    kafka = Kafka("bookings")
    kafka.assigns(*PLACES, ("bookings", 0))
    kafka.turns(2)
    of_orders = ["orders[0]", "orders.delays[0-1]"]
    assert [(change.kind, change.places, change.took_ms) for change in kafka.assignment.changes] == [
        ("assignment", of_orders, 0),
        ("assignment", ["bookings[0]"], 0),
        ("assigned", of_orders, 500),
    ]
    assert not kafka.is_ready()

    kafka.has_read_control("bookings")
    kafka.turns()

    served = kafka.assignment.changes[-1]
    assert (served.kind, served.places, served.took_ms) == ("assigned", ["bookings[0]"], 2_500)
    assert len(kafka.assignment.changes) == 4
    assert kafka.is_ready()


def test_a_topic_that_one_answer_lacks_costs_nothing_that_was_done(kafka: Kafka) -> None:
    """The broker lags behind. Copies in flight are settled and committed, and not sent again."""
    kafka.ids["orders"] = None
    assert kafka.turns() == [("stop", *FRONT)]

    kafka.ids["orders"] = "orders"

    assert kafka.turns() == [("go_on", *FRONT)]


@pytest.mark.parametrize(("name", "found"), [("orders.ready", "another"), ("orders.ready", None), ("orders", None)])
def test_a_topic_that_is_gone_is_not_back_because_kafka_gives_no_answer(
    kafka: Kafka, name: str, found: str | None
) -> None:
    """Otherwise, due records would go into a topic that someone else has created."""
    kafka.ids[name] = found
    assert ("stop", *FRONT) in kafka.turns()
    kafka.ids[name] = KafkaUnreachable("no broker answered")

    assert kafka.turns() == []

    kafka.ids[name] = IDS[name]
    assert ("go_on", *FRONT) in kafka.turns()


def test_a_refused_fetch_of_the_topic_before_does_not_stop_the_one_that_was_made_again(kafka: Kafka) -> None:
    kafka.ids["orders"] = "again"
    kafka.accepts({**IDS, "orders": "again"})
    assert ("begin", *FRONT, 0) in kafka.turns()

    kafka.assignment.take(removed("again", 0))

    assert kafka.turns() == [("go_on", *FRONT)]
    assert kafka.assignment.owned[FRONT].stop is None


def test_a_refused_fetch_does_not_stop_a_worker_that_finds_a_commit_for_the_topic_before() -> None:
    kafka = Kafka()
    kafka.engine.metadata = encode_metadata(COMMITTED, [], "orders")
    kafka.ids["orders"] = "again"
    kafka.accepts({**IDS, "orders": "again"})
    kafka.assigns(FRONT)
    assert kafka.turns() == [("begin", *FRONT, 0)]

    kafka.assignment.take(removed("again", 0))

    assert kafka.turns() == [("go_on", *FRONT)]
    assert kafka.assignment.owned[FRONT].stop is None


@pytest.mark.parametrize(("made_again", "offset"), [(False, COMMITTED), (True, 1)])
def test_an_offset_that_kafka_refused_and_has_by_now_stops_the_partition(
    kafka: Kafka, made_again: bool, offset: int
) -> None:
    """Kafka had lost it, and gave it to another record, and lower offsets, too."""
    topic_id = "again" if made_again else "orders"
    if made_again:
        kafka.ids["orders"] = topic_id
        kafka.accepts({**IDS, "orders": topic_id})
        kafka.turns()

    kafka.assignment.take(removed(topic_id, offset))

    assert kafka.turns() == []
    stop = kafka.assignment.owned[FRONT].stop
    assert stop is not None
    assert stop.reason is Reason.RECORDS_REMOVED


@pytest.mark.parametrize("begun_again", [True, False])
def test_an_offset_that_the_topic_before_lacked_stops_not_the_one_that_was_made_again(
    kafka: Kafka, begun_again: bool
) -> None:
    """The client requested the offset from the old topic, and the answer is reported only after the id of the new topic is registered."""
    kafka.ids["orders"] = "again" if begun_again else KafkaUnreachable("no broker answered")
    kafka.accepts({**IDS, "orders": "again"})
    assert kafka.turns()[0] == ("forget", *FRONT)

    kafka.assignment.take(removed("orders", COMMITTED + 100))

    kafka.ids["orders"] = "again"
    kafka.turns()
    assert kafka.assignment.owned[FRONT].stop is None
    assert kafka.is_ready()


def test_a_topic_that_is_away_for_long_holds_up_no_rebalance_with_commits_that_kafka_refuses(kafka: Kafka) -> None:
    kafka.ids["orders"] = None
    assert kafka.turns(GONE_SECONDS + 2) == [("stop", *FRONT), ("forget", *FRONT)]
    assert kafka.turns(60) == []

    kafka.ids["orders"] = "orders"

    assert kafka.turns() == [("begin", *FRONT, COMMITTED)]


@pytest.mark.parametrize("missing_seconds", [0, 2])
def test_what_was_committed_of_a_topic_that_was_made_again_is_taken_back(kafka: Kafka, missing_seconds: float) -> None:
    """Otherwise, a worker that starts later would begin at the offset that was committed for the old topic."""
    kafka.ids["orders"] = None
    kafka.turns(missing_seconds)
    kafka.ids["orders"] = "again"

    assert kafka.turns() == [("forget", *FRONT), ("stand", *FRONT, 0)]

    kafka.accepts({**IDS, "orders": "again"})
    assert kafka.turns() == [("forget", *FRONT), ("begin", *FRONT, 0)]


def test_a_topic_that_is_accepted_before_anybody_has_seen_it_begins_at_its_start(kafka: Kafka) -> None:
    kafka.ids["orders"] = None
    kafka.turns()
    kafka.accepts({**IDS, "orders": "again"})
    assert ("begin", *FRONT, COMMITTED) not in kafka.turns()
    kafka.ids["orders"] = "again"

    assert kafka.turns() == [("begin", *FRONT, 0)]


def test_what_was_committed_of_a_new_topic_counts_for_a_worker_that_learns_of_it_later() -> None:
    """Another worker has read of the topic in the registry, and has begun it."""
    kafka = Kafka()
    kafka.ids["orders"] = "again"
    kafka.engine.metadata = encode_metadata(COMMITTED, [], "again")
    kafka.assigns(FRONT)
    kafka.turns()
    kafka.accepts({**IDS, "orders": "again"})

    assert ("begin", *FRONT, COMMITTED) in kafka.turns()


def test_a_partition_whose_committed_offset_kafka_does_not_tell_is_an_alarm_until_it_does() -> None:
    kafka = Kafka()
    kafka.engine.withholds = True
    kafka.assigns(FRONT)
    kafka.turns(25)
    assert kafka.stops() == [], "a transaction of a worker that was killed stays open for as long"
    kafka.turns(10)
    assert kafka.stops() == [Reason.NOT_RELEASING]

    kafka.late = [(FRONT, kafka.assignment.generation, OffsetAndMetadata(COMMITTED))]
    assert ("begin", *FRONT, COMMITTED) in kafka.turns()
    assert kafka.stops() == []
