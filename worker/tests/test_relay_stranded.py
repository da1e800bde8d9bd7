"""A Kafka client that has lost the addresses of all brokers is replaced. No record that it held is lost or early."""

import time
from collections.abc import Sequence
from typing import Any, cast

import pytest
from delayed_topics_core.events import Event
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_engine import Engine
from delayed_topics_kafka.events import EventFollower
from delayed_topics_worker.config import Guarantee
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.running import running_relay

pytestmark = pytest.mark.broker


class InjectingEngine:
    """Wraps an engine and adds events of the test's own, such as that a client is stranded: one event to each `wait`, and the events
    `leaving` after `leave`. `reported` keeps the events of the engine itself."""

    def __init__(self, engine: Engine, *injected: tuple[Any, ...], leaving: Sequence[tuple[Any, ...]] = ()) -> None:
        self._engine = engine
        self._injected = list(injected)
        self._leaving = leaving
        self.reported: list[tuple[Any, ...]] = []

    def wait(self, longest_seconds: float) -> list[tuple[Any, ...]]:
        reported = self._engine.wait(longest_seconds)
        self.reported += reported
        next_injected, self._injected = self._injected[:1], self._injected[1:]
        return [*reported, *next_injected]

    def leave(self, for_good: bool) -> None:
        self._engine.leave(for_good)
        self._injected += self._leaving

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.mark.parametrize(
    ("guarantee", "client"),
    [
        ("AtLeastOnce", "producer"),
        ("ExactlyOnce", "consumer"),
        pytest.param("AtLeastOnce", "consumer", marks=pytest.mark.slow),
        pytest.param("ExactlyOnce", "producer", marks=pytest.mark.slow),
    ],
)
def test_a_stranded_client_is_replaced_and_everything_comes_out(
    harness: WorkerHarness, guarantee: Guarantee, client: str
) -> None:
    """No broker can be made to strand a client, which happens in one outage of fifty. The test injects the engine's event instead."""
    orders = harness.declare((0, 1, 2))
    with running_relay(orders, guarantee) as (relay, published):
        wait_until(lambda: published.ready, what="the relay serves")
        generation = published.status["rebalance"]["generation"]
        with steady_load(orders) as sent:
            time.sleep(2)  # in the middle of the flow
            assert relay._engine is not None
            engine = InjectingEngine(relay._engine, ("Stranded", client))
            relay._engine = cast(Engine, engine)
            wait_until(
                lambda: published.status["rebalance"]["generation"] >= generation + 2,
                what="the partitions are lost and assigned again",
            )
            time.sleep(1)
        ready = all_ready(orders, sent)

    if guarantee == "ExactlyOnce":
        assert doubled(ready) == 0
    assert (("ProducersReplaced",) in engine.reported) == (guarantee == "AtLeastOnce")


def test_a_replaced_producer_is_an_event_since_what_it_had_on_its_way_may_come_out_twice(
    harness: WorkerHarness,
) -> None:
    """There is no rebalance by which an audit could explain doubled records."""
    orders = harness.declare((0,), front_partitions=1, partitions=1)
    with running_relay(orders, "AtLeastOnce") as (relay, published), EventFollower(harness.connection) as follower:
        wait_until(lambda: published.ready, what="the relay serves")
        assert relay._engine is not None
        relay._engine = cast(Engine, InjectingEngine(relay._engine, ("ProducersReplaced",)))

        places: list[object] = []

        def replaced() -> bool:
            events: list[Event] = []
            follower.catch_up(60, events.append)
            ours = [event for event in events if event.topic == orders.names.front]
            places.extend(event.detail["places"] for event in ours if event.kind == "producers-replaced")
            return bool(places)

        wait_until(replaced, what="the event")
        assert places == [[f"{orders.names.front}[0]", f"{orders.names.delays}[0]"]]
        assert published.status["rebalance"]["last"]["change"] == "assigned"


def test_what_was_told_of_a_former_client_is_not_taken_for_what_the_next_one_has(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=2, partitions=1)
    front = orders.names.front
    with running_relay(orders) as (relay, published):
        wait_until(lambda: published.ready, what="the relay serves")
        before = published.status
        assert relay._engine is not None
        late = ("Assigned", [(front, 7)], 1)  # another member has this partition by now
        relay._engine = cast(Engine, InjectingEngine(relay._engine, ("Stranded", "consumer"), late))

        def joined_again() -> bool:
            changes: int = published.status["rebalance"]["generation"] - before["rebalance"]["generation"]
            return changes >= 3 and published.ready

        wait_until(joined_again, what="the relay has partitions again")
        time.sleep(1)
        assert published.status["topics"][front]["partitions"] == before["topics"][front]["partitions"]


def test_a_client_that_is_stranded_while_it_leaves_does_not_end_the_worker(harness: WorkerHarness) -> None:
    orders = harness.declare((0,))
    with running_relay(orders) as (relay, published):
        wait_until(lambda: published.ready, what="the relay serves")
        assert relay._engine is not None
        relay._engine = cast(Engine, InjectingEngine(relay._engine, leaving=[("Stranded", "consumer")]))
        orders.remove()
        wait_until(lambda: not published.status["topics"], what="the relay has left the group")
        harness.write(orders.topics, orders.record)
        orders.produce(b"later")
        orders.flush()
        assert [r.value for r in orders.ready(1, timeout_seconds=30)] == [b"later"]
