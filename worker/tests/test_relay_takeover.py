"""A worker takes over partitions from one that died in the middle of a transaction. A worker gets partitions back while the beginning of
their former assignment is still to come."""

from collections.abc import Sequence
from typing import Any

import pytest
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_engine import Engine
from delayed_topics_worker import relay as relay_module
from delayed_topics_worker.config import Guarantee
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled
from delayed_topics_worker_testing.running import running_relay
from delayed_topics_worker_testing.transactions import left_open

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_an_open_transaction_holds_up_only_the_partition_that_it_is_about(
    harness: WorkerHarness, protocol: Any
) -> None:
    orders = harness.declare((0,), front_partitions=2)
    dead = left_open(orders, 1)
    worker = harness.start(orders, guarantee="ExactlyOnce", protocol=protocol, ready=False)
    for n in range(20):
        orders.produce(b"%d" % n, partition=n % 2)
    orders.flush()

    assert {r.partition for r in orders.ready(10, timeout_seconds=30)} == {0}

    dead.abort_transaction(60)
    assert len(orders.ready(20)) == 20
    worker.ready()
    wait_until(
        lambda: [orders.committed()[orders.names.front, p].offset for p in range(2)] == [10, 10],
        what="every record is committed",
    )


class BeginsFromTheFirst:
    """Wraps an engine. It begins each partition as in a former assignment, after Kafka has assigned the partition again and before Python
    has taken the new assignment."""

    def __init__(self, orders: DeclaredTopic, **settings: Any) -> None:
        self._engine = Engine(**settings)
        self._orders = orders

    def assign(self, places: Sequence[tuple[str, int, int]]) -> None:
        names, ids = self._orders.names, self._orders.topics.ids
        for topic, partition, _ in places:
            delay_seconds = None if topic == names.front else 0
            self._engine.begin(
                topic,
                partition,
                topic_id=ids[topic],
                delay_seconds=delay_seconds,
                offset=0,
                metadata="",
                commit=False,
            )
        self._engine.assign(places)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_where_a_former_assignment_began_makes_nothing_come_twice(
    harness: WorkerHarness, guarantee: Guarantee, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition may be revoked and assigned again while the thread that decides where it begins gets no processor time."""
    orders = harness.declare((0,))
    sent = list(range(30))
    for n in sent:
        orders.produce(b"%d" % n)
    orders.flush()
    with running_relay(orders, guarantee):
        all_ready(orders, sent)
    monkeypatch.setattr(relay_module, "Engine", lambda **settings: BeginsFromTheFirst(orders, **settings))
    with running_relay(orders, guarantee) as (_, published):
        wait_until(lambda: published.ready, what="the relay serves again")
        sent.append(30)
        orders.produce(b"30")
        orders.flush()
        assert doubled(all_ready(orders, sent)) == 0
