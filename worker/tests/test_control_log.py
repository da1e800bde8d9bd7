"""The control topic alone determines which requests are in force. It does not matter which worker has read it, or when."""

from collections.abc import Collection, Sequence
from typing import Any, Final, cast

import pytest
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import TopicsRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core.settings import least_retention_seconds
from delayed_topics_core_testing.served import serving
from delayed_topics_engine import Engine
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.control import ControlRead
from delayed_topics_worker import control
from delayed_topics_worker.config import WorkerConfig
from delayed_topics_worker.control import Controls, ControlTopic
from delayed_topics_worker.engine_events import Changed
from delayed_topics_worker.served import ServedTopics

MOST: Final = 4
NOW_MS: Final = 1_790_000_000_000
RETENTION_MS: Final = 1000 * least_retention_seconds((0,))


class Log:
    """Stands in for the watch of control topics. A worker reads what was written since its last read."""

    def __init__(self) -> None:
        self._written: list[ControlRead] = []
        self._known: frozenset[ControlTopic] = frozenset()

    def write(self, topic: str, ids: Sequence[bytes], *, at_ms: int, kind: ControlKind = ControlKind.CANCEL) -> None:
        name = TopicNames.of(topic).control
        self._written += [ControlRead(name, i, Control(kind), is_understood=True, at_ms=at_ms) for i in ids]
        self._known |= {ControlTopic(name, 0)}

    def look(self, topics: Collection[ControlTopic]) -> None:
        pass

    def take(self) -> tuple[frozenset[ControlTopic], list[ControlRead]]:
        reads, self._written = self._written, []
        return self._known, reads


class NothingReleased:
    """Stands in for an engine that has released nothing lately. `withheld`: ids whose records it does not release."""

    def __init__(self) -> None:
        self.withheld: set[bytes] = set()

    def withdraw(self, _: int, ids: list[bytes] | None) -> None:
        self.withheld -= self.withheld if ids is None else set(ids)

    def want(self, _: int, changes: list[tuple[bytes, int | None]]) -> list[bool]:
        self.withheld |= {of_id for of_id, _ in changes}
        return [False for _ in changes]


class Worker:
    """Serves these topics and follows their control topics."""

    def __init__(self, *topics: str) -> None:
        self._state, self._served = RegistryState(), ServedTopics(WorkerConfig(topics=topics))
        for topic in topics:
            self.registers(topic)
        served = self._served
        self.log = Log()
        self._engine = NothingReleased()
        self._controls = Controls(Connection(bootstrap_servers="127.0.0.1:1"), served, member="orders-0")
        self._controls._watch = cast(Any, self.log)

    def registers(self, topic: str, *, control: bool = True, control_id: str = "first") -> None:
        layout = initial(LayoutSpec(delay_seconds=(0,), partitions=1))
        record = serving(topic, layout, control=control, outage_budget_seconds=0, group="shared")
        topics = TopicsRecord(topic=topic, ids={TopicNames.of(topic).control: control_id})
        for entry in (record, topics):
            self._state.apply(self._state.next_offset, entry.key, encode(entry))
        self._served.follow(self._state)

    def on_cancelled(self, of_id: bytes) -> None:
        """Handles the engine's report that it has cancelled a record with this id of the first topic."""
        self._controls.on_changed(Changed(0, of_id, "cancelled", None))

    def read(self) -> set[bytes]:
        """Returns the ids whose records the worker withholds, after it has read what was written."""
        self._controls.follow(cast(Engine, self._engine))
        in_force = set().union(*(followed.requests.in_force for followed in self._controls._followed.values()))
        assert self._engine.withheld == in_force
        return in_force


@pytest.fixture(autouse=True)
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MAX_REQUESTS", MOST)


@pytest.mark.parametrize("kind", [ControlKind.CANCEL, ControlKind.CANCELLED])
def test_a_worker_that_starts_later_has_the_same_requests_in_force(kind: ControlKind) -> None:
    """Kafka keeps records of a control topic for longer than requests are in force."""
    before, after = Worker("orders"), Worker("orders")
    for number in range(10):
        ids, at_ms = [b"o-%d" % number], NOW_MS + number * RETENTION_MS // 3
        before.log.write("orders", ids, at_ms=at_ms, kind=kind)
        before.read()
        after.log.write("orders", ids, at_ms=at_ms, kind=kind)
    assert after.read() == before.read() == {b"o-6", b"o-7", b"o-8", b"o-9"}


def test_what_was_accepted_stays_in_force_though_more_topics_share_a_worker_since() -> None:
    ids = [b"o-%d" % number for number in range(MOST)]
    worker = Worker("orders", "invoices", "shipments")
    worker.log.write("orders", ids, at_ms=NOW_MS)
    assert worker.read() == set(ids)

    worker.log.write("orders", [b"one more"], at_ms=NOW_MS)
    worker.log.write("invoices", [b"i-0", b"i-1"], at_ms=NOW_MS)
    assert worker.read() == set(ids), "no further request is accepted"


def test_what_is_told_of_a_control_topic_that_was_made_again_and_given_up_ends_no_worker() -> None:
    worker = Worker("orders")
    worker.log.write("orders", [b"o-1"], at_ms=NOW_MS)
    assert worker.read() == {b"o-1"}
    worker.registers("orders", control=False, control_id="second")
    assert worker.read() == set()

    worker.on_cancelled(b"o-1")


def test_answers_that_nobody_asked_for_take_no_more_room_than_requests() -> None:
    worker = Worker("orders")
    worker.log.write("orders", [b"%d" % number for number in range(100)], at_ms=NOW_MS, kind=ControlKind.TOO_LATE)
    assert len(worker.read()) == MOST
