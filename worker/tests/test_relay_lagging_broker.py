"""A broker does not know a topic: for a moment, because the broker lags behind the others, or because the topic was deleted."""

import time
from typing import Any, cast

import pytest
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_engine import encode_metadata
from delayed_topics_worker.config import Guarantee
from delayed_topics_worker.topic_watch import TopicsSnapshot, TopicWatch
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.running import running_relay

pytestmark = [pytest.mark.broker, pytest.mark.slow]


class LaggingWatch:
    """A topic watch whose broker lags behind for a moment. `unknown`: the topic that the broker does not know yet."""

    def __init__(self, watch: TopicWatch) -> None:
        self.unknown: str | None = None
        self._watch = watch

    @property
    def snapshot(self) -> TopicsSnapshot:
        seen = self._watch.snapshot
        unknown = {} if self.unknown is None else {self.unknown: None}
        return seen._replace(topics={**seen.topics, **unknown})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_a_broker_that_does_not_know_a_topic_for_a_moment_makes_nothing_come_twice(
    harness: WorkerHarness, guarantee: Guarantee
) -> None:
    """No broker can be made to lag behind at will. Copies in flight at that moment are neither sent again nor left out of the commit."""
    orders = harness.declare((0, 1, 2))
    with running_relay(orders, guarantee) as (relay, published):
        wait_until(lambda: published.ready, what="the worker is ready")
        lagging = LaggingWatch(relay._watch)
        relay._watch = cast(TopicWatch, lagging)
        with steady_load(orders) as sent:
            for topic in (orders.names.front, orders.names.delays) * 2:
                time.sleep(1.5)  # in the middle of the flow
                lagging.unknown = topic
                wait_until(lambda: published.status["alarms"], what="the worker raises an alarm")
                lagging.unknown = None
                wait_until(lambda: not published.status["alarms"], what="the worker serves again")
        ready = all_ready(orders, sent)

    assert doubled(ready) == 0


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
@pytest.mark.parametrize("begun", [0, 1])
def test_a_topic_that_was_deleted_is_served_from_its_start_once_it_is_made_again_and_accepted(
    harness: WorkerHarness, guarantee: Guarantee, begun: int
) -> None:
    """Until then, the worker keeps the finished offsets of the former topic, and may commit them when the name is taken again."""
    orders = harness.declare((0, 1), front_partitions=1)
    worker = harness.start(orders, guarantee=guarantee)
    for n in range(500):
        orders.produce(b"old%d" % n)
    orders.flush()
    harness.admin.delete_topics([orders.names.front])
    wait_until(lambda: Reason.TOPIC_MISSING in worker.alarm_reasons(), what="the alarm is raised")
    info = orders.make("front", 1)
    new = {b"new%d" % n for n in range(600)}
    for value in sorted(new):
        orders.produce(value)
    orders.flush()
    time.sleep(2)

    orders.accept(info, begun=begun)

    with harness.reader(orders.names.ready) as read:
        wait_until(lambda: {r.value for r in read()} >= new, what="every record of the new topic is released")
    expected = OffsetAndMetadata(600, encode_metadata(600, (), info.id))
    wait_until(lambda: orders.committed().get((orders.names.front, 0)) == expected, what="the commit follows")
    wait_until(lambda: not worker.alarm_reasons(), what="all alarms are cleared")
