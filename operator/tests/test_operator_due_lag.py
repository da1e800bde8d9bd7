"""The due lag of a delayed topic, computed from the append times and offsets that Kafka has."""

import asyncio
import base64
import zlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_kafka.errors import KafkaUnreachable
from delayed_topics_operator.delayed_topic.observe.load import Loads
from delayed_topics_operator.delayed_topic.reconcile.autoscale import decided
from delayed_topics_operator.delayed_topic.reconcile.load import Load
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.workers.reconcile.children import ready_pods
from delayed_topics_operator_testing.simulation import Simulation, member, resource

KEY = Key("DelayedTopic", "shop", "orders")
NAMES = TopicNames.of("orders")
FRONT, DELAYED = (NAMES.front, 0), (NAMES.delays, 4)
"""The second partition has a delay of 10 s."""
YESTERDAY_MS = 1_700_000_000_000
"""A time of the broker's clock, which is years behind."""


@dataclass
class FakeLink:
    """A KafkaLink whose topics have records with these append times: `appended_ms` has those of each partition, by offset."""

    appended_ms: dict[TopicPartitionKey, list[int]] = field(default_factory=dict)
    committed_offsets: dict[TopicPartitionKey, int] = field(default_factory=dict)
    metadata: str = ""

    async def committed(self, group: str, places: Sequence[TopicPartitionKey]) -> Mapping[TopicPartitionKey, Any]:
        assert group == NAMES.group
        return {place: OffsetAndMetadata(self.committed_offsets.get(place, 0), self.metadata) for place in places}

    async def offsets(self, places: Sequence[TopicPartitionKey], which: str) -> Mapping[TopicPartitionKey, int]:
        assert which == "stable"
        return {place: len(self.appended_ms.get(place, ())) for place in places}

    async def newest_times(self, places: Sequence[TopicPartitionKey]) -> Mapping[TopicPartitionKey, int | None]:
        return {place: max(self.appended_ms.get(place, ()), default=None) for place in places}

    async def offsets_at(self, times_ms: Mapping[TopicPartitionKey, int]) -> Mapping[TopicPartitionKey, int | None]:
        found = {place: bisect_left(self.appended_ms.get(place, []), at_ms) for place, at_ms in times_ms.items()}
        return {place: at if at < len(self.appended_ms.get(place, ())) else None for place, at in found.items()}


def served() -> KafkaView:
    simulation = Simulation(resource(delaySeconds=[0, 10], partitions=5, workers={"autoscale": {"max": 4}}))
    simulation.settle()
    view = simulation.observe().kafka
    assert view is not None
    return view


def look(link: FakeLink, view: KafkaView | None = None, *, ready: int = 1) -> Load:
    return asyncio.run(Loads().look(KEY, cast(KafkaLink, link), NAMES, view or served(), ready=ready))


def lag(link: FakeLink) -> int:
    found = look(link).latest
    assert found is not None
    return found.due_lag


class Looks:
    """Looks at the load again and again, by a clock that the test sets."""

    def __init__(self, link: FakeLink) -> None:
        self._link = cast(KafkaLink, link)
        self._now = 0.0
        self._view = served()
        self._loads = Loads(clock=lambda: self._now)

    def look(self, at_seconds: float, view: KafkaView | None = None, *, ready: int = 1) -> Load:
        self._now = at_seconds
        return asyncio.run(self._loads.look(KEY, self._link, NAMES, view or self._view, ready=ready))

    def lag(self, at_seconds: float) -> int:
        found = self.look(at_seconds).latest
        assert found is not None
        return found.due_lag


def lags(link: FakeLink, *, at_seconds: Sequence[float]) -> list[int]:
    looks = Looks(link)
    return [looks.lag(at) for at in at_seconds]


def append_times(count: int, *, until_ms: int = YESTERDAY_MS, per_second: int = 100) -> list[int]:
    """Returns the append times of `count` records at this rate, the last of which is appended at `until_ms`."""
    return [until_ms - 1000 * number // per_second for number in range(count)][::-1]


def test_what_waits_does_not_count_and_what_is_due_does_by_the_brokers_clock() -> None:
    link = FakeLink({DELAYED: append_times(3000)})
    assert lag(link) == 3000 - 1101, "the last 10 s wait, and records due within the last second may be in flight"
    link.committed_offsets[DELAYED] = 1899
    assert lag(link) == 0


def test_all_of_the_front_topic_is_to_go_on_at_once() -> None:
    link = FakeLink({FRONT: append_times(500)}, {FRONT: 150})
    assert lag(link) == 500 - 101 - 150


def test_what_is_finished_above_the_committed_offset_does_not_count() -> None:
    finished = base64.b64encode(zlib.compress(bytes([0b11, 0b10]))).decode()
    link = FakeLink({FRONT: append_times(500)}, {FRONT: 150}, f"dt1:{finished}:id")
    assert lag(link) == 500 - 101 - 153
    link.metadata = "of somebody else"
    assert lag(link) == 500 - 101 - 150


def test_when_nothing_comes_in_any_more_the_last_releases_tell_the_time() -> None:
    link = FakeLink({DELAYED: append_times(3000)})
    link.appended_ms[NAMES.ready, 2] = [YESTERDAY_MS + 20_000]
    assert lag(link) == 3000


def test_when_nothing_comes_in_or_out_any_more_time_goes_on() -> None:
    link = FakeLink({DELAYED: append_times(3000), FRONT: [YESTERDAY_MS - 1]})
    assert lags(link, at_seconds=(0, 4, 10, 600)) == [1899, 2300, 2900, 3001]


def test_time_does_not_go_back_when_records_come_again() -> None:
    link = FakeLink({FRONT: [YESTERDAY_MS]})
    looks = Looks(link)
    assert [looks.lag(at_seconds) for at_seconds in (0, 30)] == [0, 1]
    link.appended_ms[FRONT] += [YESTERDAY_MS + 30_001, YESTERDAY_MS + 33_000]
    assert looks.lag(34) == 2


def test_retention_that_removes_the_newest_record_does_not_turn_time_back() -> None:
    link = FakeLink({DELAYED: append_times(300), (NAMES.ready, 0): [YESTERDAY_MS + 20_000]})
    looks = Looks(link)
    assert looks.lag(0) == 300
    link.appended_ms[NAMES.ready, 0] = []
    assert looks.lag(4) == 300


def test_time_goes_on_while_kafka_can_not_be_asked() -> None:
    link, view = FakeLink({DELAYED: append_times(300)}), served()
    looks = Looks(link)
    assert looks.lag(0) == 0
    looks.look(4, replace(view, topics={**view.topics, NAMES.ready: None}))
    assert looks.lag(30) == 300


def test_a_topic_without_records_has_no_lag() -> None:
    assert lag(FakeLink()) == 0


def test_workers_count_when_all_that_are_ready_are_in_the_group() -> None:
    view = served()
    group = replace(view.group, state="Stable", members=(member("w-0", FRONT), member("w-1", DELAYED)))
    for settled, ready, expected in (
        ("Stable", 2, 2),
        ("Stable", 3, 0),
        ("PreparingRebalance", 2, 0),
        ("Stable", 0, 0),
    ):
        found = look(FakeLink(), replace(view, group=replace(group, state=settled)), ready=ready).latest
        assert found is not None
        assert found.workers == expected


def test_one_worker_more_helps_where_one_has_several_partitions_that_lag() -> None:
    view = served()
    for records, members, shared in (
        (2000, (member("w-0", FRONT, DELAYED),), True),
        (500, (member("w-0", FRONT, DELAYED),), False),
        (2000, (member("w-0", FRONT, (NAMES.front, 1)), member("w-1", DELAYED)), False),
        (0, (member("w-0"), member("w-1", FRONT, DELAYED)), False),
    ):
        link = FakeLink({FRONT: append_times(records), DELAYED: append_times(5000)})
        found = look(link, replace(view, group=replace(view.group, state="Stable", members=members))).latest
        assert found is not None
        assert found.shared is shared


def test_a_worker_for_which_there_is_no_node_does_not_keep_the_others_from_becoming_fewer() -> None:
    view = served()
    members = (member("w-0", FRONT), member("w-1", DELAYED), member("w-2", (NAMES.front, 1)))
    view = replace(view, group=replace(view.group, state="Stable", members=members))
    status = {"observedGeneration": 2, "replicas": 4, "updatedReplicas": 4, "readyReplicas": 3}
    workers = {"metadata": {"generation": 2}, "spec": {"replicas": 4}, "status": status}
    looks, load = Looks(FakeLink()), Load()
    for step in range(150):
        load = looks.look(4.0 * step, view, ready=ready_pods(workers, 4))
    wanted, why = decided(load, 4, 1, 8)
    assert wanted < 4
    assert "in the last 5 minutes at most 0 records a second came due" in why


class Silent(FakeLink):
    """Fails as Kafka would: it does not answer for a partition without a leader, and refuses requests about a missing topic."""

    async def offsets(self, places: Sequence[TopicPartitionKey], which: str) -> Mapping[TopicPartitionKey, int]:
        raise KafkaUnreachable("no answer")


@pytest.mark.parametrize("topic", [NAMES.front, NAMES.delays, NAMES.ready])
def test_kafka_is_asked_nothing_that_it_can_not_answer(topic: str) -> None:
    view = served()
    info = view.topics[topic]
    assert info is not None
    for other in (None, replace(info, leaders_known=False), replace(info, partitions=1)):
        assert look(Silent(), replace(view, topics={**view.topics, topic: other})) == Load()
    with pytest.raises(KafkaUnreachable):
        look(Silent(), view)
