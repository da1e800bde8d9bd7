"""A Kafka client that knows no broker any more is replaced, and what it held is neither lost nor early."""

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


class Tells:
    """An engine that tells something more, as that one of its clients knows no broker any more: one thing each time that it is asked, and
    `leaving` once it was told to leave. `heard`: what it tells itself."""

    def __init__(self, engine: Engine, *telling: tuple[Any, ...], leaving: Sequence[tuple[Any, ...]] = ()) -> None:
        self._engine = engine
        self._telling = list(telling)
        self._leaving = leaving
        self.heard: list[tuple[Any, ...]] = []

    def wait(self, longest_seconds: float) -> list[tuple[Any, ...]]:
        heard = self._engine.wait(longest_seconds)
        self.heard += heard
        told, self._telling = self._telling[:1], self._telling[1:]
        return [*heard, *told]

    def leave(self, for_good: bool) -> None:
        self._engine.leave(for_good)
        self._telling += self._leaving

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
    """No broker can be made to strand a client at will: one outage in fifty does."""
    orders = harness.declare((0, 1, 2))
    with running_relay(orders, guarantee) as (relay, published):
        wait_until(lambda: published.ready, what="the relay serves")
        generation = published.status["rebalance"]["generation"]
        with steady_load(orders) as sent:
            time.sleep(2)  # in the middle of the flow
            assert relay._engine is not None
            engine = Tells(relay._engine, ("Stranded", client))
            relay._engine = cast(Engine, engine)
            wait_until(
                lambda: published.status["rebalance"]["generation"] >= generation + 2, what="lost, and assigned again"
            )
            time.sleep(1)
        ready = all_ready(orders, sent)

    if guarantee == "ExactlyOnce":
        assert doubled(ready) == 0
    assert (("ProducersReplaced",) in engine.heard) == (guarantee == "AtLeastOnce")


def test_a_replaced_producer_is_an_event_since_what_it_had_on_its_way_may_come_out_twice(
    harness: WorkerHarness,
) -> None:
    """An audit has no rebalance to explain that by."""
    orders = harness.declare((0,), front_partitions=1, partitions=1)
    with running_relay(orders, "AtLeastOnce") as (relay, published), EventFollower(harness.connection) as follower:
        wait_until(lambda: published.ready, what="the relay serves")
        assert relay._engine is not None
        relay._engine = cast(Engine, Tells(relay._engine, ("ProducersReplaced",)))

        places: list[object] = []

        def replaced() -> bool:
            told: list[Event] = []
            follower.catch_up(60, told.append)
            ours = [event for event in told if event.topic == orders.names.front]
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
        late = ("Assigned", [(front, 7)], 1)  # as another member has it by now
        relay._engine = cast(Engine, Tells(relay._engine, ("Stranded", "consumer"), late))

        def joined_again() -> bool:
            changes: int = published.status["rebalance"]["generation"] - before["rebalance"]["generation"]
            return changes >= 3 and published.ready

        wait_until(joined_again, what="it has partitions again")
        time.sleep(1)
        assert published.status["topics"][front]["partitions"] == before["topics"][front]["partitions"]


def test_a_client_that_is_stranded_while_it_leaves_does_not_end_the_worker(harness: WorkerHarness) -> None:
    orders = harness.declare((0,))
    with running_relay(orders) as (relay, published):
        wait_until(lambda: published.ready, what="the relay serves")
        assert relay._engine is not None
        relay._engine = cast(Engine, Tells(relay._engine, leaving=[("Stranded", "consumer")]))
        orders.remove()
        wait_until(lambda: not published.status["topics"], what="it has left")
        harness.write(orders.topics, orders.record)
        orders.produce(b"later")
        orders.flush()
        assert [r.value for r in orders.ready(1, timeout_seconds=30)] == [b"later"]
