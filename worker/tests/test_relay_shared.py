"""The workers of a consumer group serve all delayed topics whose layouts name the group, while these come and go."""

import random
import struct
import time
import uuid
from dataclasses import replace

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from delayed_topics_core.handover import Handover
from delayed_topics_devcluster.kafka import limit_producer
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.model import GroupInfo
from delayed_topics_kafka_testing.rights import deny_only, lift
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker_testing.generations import events_of
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker

BACKLOG = 40_000
"""Records of 1 kB. Five requests of 1 MB are in flight before Kafka throttles the producer, for ten seconds at most."""
MANY = 2_000
"""More partitions than a worker should fetch ten times a second."""


@pytest.fixture
def group() -> str:
    return f"shared-{uuid.uuid4().hex[:8]}"


def declare(harness: WorkerHarness, group: str) -> DeclaredTopic:
    return harness.declare((0, 1, 2), group=group, begun=False)


def produce(orders: DeclaredTopic, count: int = 30, *, first: int = 0) -> list[int]:
    sent = list(range(first, first + count))
    for n in sent:
        orders.produce(b"%d" % n, headers=[("dt-delay-level", b"%d" % (n % 3 + 1))])
    orders.flush()
    return sent


def serves(worker: WorkerProcess, *topics: DeclaredTopic) -> None:
    def served() -> set[str]:
        return {name for name, told in worker.status().get("topics", {}).items() if told["partitions"]}

    wanted = {orders.names.front for orders in topics}
    wait_until(lambda: served() == wanted, what=f"{worker.member} serves {sorted(wanted)}", evidence=served)


def test_every_topic_of_the_group_is_served_and_no_other(harness: WorkerHarness, group: str) -> None:
    before = [declare(harness, group) for _ in range(3)]
    other = declare(harness, f"{group}-others")
    workers = [harness.start(member=f"shared-{n}", group=group) for n in range(2)]
    later = declare(harness, group)
    sent = produce(other)
    for orders in (*before, later):
        sent = produce(orders)
        assert doubled(all_ready(orders, sent)) == 0
    assert other.released() == 0
    assert [worker.terminate() for worker in workers] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_others_come_and_go_while_a_topic_is_busy_and_each_record_is_released_once(
    harness: WorkerHarness, group: str, protocol: str
) -> None:
    orders, beside = declare(harness, group), declare(harness, group)
    for n in range(2):
        harness.start(member=f"shared-{n}", group=group, protocol=protocol)
    with steady_load(orders) as sent:
        for _ in range(3):
            later = declare(harness, group)
            produced = produce(later)
            assert doubled(all_ready(later, produced)) == 0
            later.remove()
        beside.remove()
    assert doubled(all_ready(orders, sent)) == 0


@pytest.mark.slow
def test_others_come_and_go_while_copies_take_long_and_none_comes_twice(harness: WorkerHarness, group: str) -> None:
    orders = declare(harness, group)
    for n in range(BACKLOG):
        orders.produce(b"%d" % n, headers=[("padding", random.randbytes(1000))])
    orders.flush()
    limit_producer(harness.connection.bootstrap_servers, group, 250_000)
    worker = harness.start(member=group, group=group)
    orders.ready(BACKLOG // 2)  # more than Kafka accepts before it throttles the producer
    for _ in range(5):
        later = declare(harness, group)
        serves(worker, orders, later)
        later.remove()
        serves(worker, orders)
    assert orders.released() < BACKLOG, "copies were in flight all the time"
    limit_producer(harness.connection.bootstrap_servers, group, None)
    assert doubled(all_ready(orders, list(range(BACKLOG)))) == 0


@pytest.mark.slow
def test_a_worker_whose_group_has_grown_asks_as_seldom_as_one_that_found_it_so(
    harness: WorkerHarness, wire: SlowWire, group: str
) -> None:
    """Workers usually exist before their topics. A broker answers some 20 fetches of 1,000 idle partitions per second and core."""
    waits_ms: list[int] = []

    def note(request: bytes) -> bytes:
        if (wait_ms := max_wait_ms(request, client_id=group)) is not None:
            waits_ms.append(wait_ms)
        return request

    orders = declare(harness, group)
    worker = harness.start(member=group, group=group)
    sent = produce(orders)
    assert doubled(all_ready(orders, sent)) == 0
    wire.change_requests(Api.FETCH, note)
    wait_until(lambda: 100 in waits_ms, what="the worker fetches records", evidence=lambda: waits_ms[-10:])
    large = harness.declare((0, 1), group=group, begun=False, front_partitions=MANY)
    serves(worker, orders, large)
    assert "no worker has" not in worker.log_path.read_text(), "the worker joined again with all topics"
    wait_until(
        lambda: set(waits_ms[-5:]) == {MANY // 8 + 1}, what="it fetches less often", evidence=lambda: waits_ms[-10:]
    )
    assert doubled(all_ready(orders, [*sent, *produce(orders, first=len(sent))])) == 0
    large.remove()
    wait_until(lambda: set(waits_ms[-5:]) == {100}, what="it fetches more often", evidence=lambda: waits_ms[-10:])


def max_wait_ms(fetch: bytes, *, client_id: str) -> int | None:
    """Returns `max_wait_ms` of a fetch request, or None if the request is another client's. From version 12 on, the header ends with a tag
    buffer. Up to version 14, the body begins with the replica's id."""
    version, length = struct.unpack_from(">2xh4xh", fetch)
    if fetch[10 : 10 + length] != client_id.encode():
        return None
    assert version >= 12, version
    (found,) = struct.unpack_from(">i", fetch, 10 + length + 1 + (4 if version < 15 else 0))
    return int(found)


@pytest.mark.slow
def test_a_worker_whose_topics_went_to_another_group_leaves_its_own_and_takes_them_again(
    harness: WorkerHarness, group: str
) -> None:
    orders = declare(harness, group)
    worker = harness.start(member="shared-0", group=group)
    assert doubled(all_ready(orders, produce(orders))) == 0

    orders.change(group=f"{group}-others")

    def left() -> bool:
        found = harness.admin.describe_groups([group])[group]
        return isinstance(found, GroupInfo) and not found.members

    wait_until(left, what="the worker has left the group")
    wait_until(lambda: worker.get("/readyz")[0] == 200, what="the worker is ready, though it has no topic")
    wait_until(lambda: orders.names.front not in worker.get("/metrics")[1], what="no metric names the topic")
    assert worker.status()["topics"] == {}
    produce(orders)
    orders.change(group=group)
    serves(worker, orders)
    wait_until(lambda: orders.released() == 60, what="all records are out", evidence=orders.released)
    topic = orders.names.front
    wait_until(
        lambda: worker.metric("delayedtopics_released_total", topic=topic) == 60,
        what="the metric goes on from its last value",
    )
    revoked = [e.detail for e in events_of(orders) if e.kind == "rebalance" and e.detail["change"] == "revoked"]
    assert sum(detail["partitions"] for detail in revoked) == 6


@pytest.mark.slow
def test_a_worker_that_ended_serves_the_others_when_one_of_its_topics_has_gone_meanwhile(
    harness: WorkerHarness, group: str
) -> None:
    """Kafka gives a static member its former partitions, even of topics to which the member no longer subscribes."""
    gone, stays = declare(harness, group), declare(harness, group)
    worker = harness.start(member="shared-0", group=group)
    serves(worker, gone, stays)
    worker.kill()
    gone.remove()
    worker = harness.start(member="shared-0", group=group)
    assert doubled(all_ready(stays, produce(stays))) == 0
    serves(worker, stays)


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["Sticky", "Range"])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_worker_that_ended_gives_up_a_topic_that_left_it_meanwhile(
    harness: WorkerHarness, group: str, assignor: str, comes_back: bool
) -> None:
    """The next workers of the topic wait until it is given up, and so does the deletion of a DelayedTopic. If the topic comes back to this
    worker, the worker serves it."""
    moved, stays = declare(harness, group), declare(harness, group)
    worker = harness.start(member="shared-0", group=group, assignor=assignor)
    serves(worker, moved, stays)
    worker.kill()
    moved.change(group=f"{group}-others")
    worker = harness.start(member="shared-0", group=group, assignor=assignor)
    serves(worker, stays)
    if comes_back:
        moved.change(group=group)
        assert doubled(all_ready(moved, produce(moved))) == 0
        return

    def held() -> set[str]:
        found = harness.admin.describe_groups([group])[group]
        assert isinstance(found, GroupInfo)
        return {topic for member in found.members for topic, _ in member.assignment}

    wait_until(lambda: held() == {stays.names.front, stays.names.delays}, what="the topic is given up", evidence=held)
    assert doubled(all_ready(stays, produce(stays))) == 0


@pytest.mark.slow
@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.ALL])
def test_a_topic_that_may_not_be_read_is_an_alarm_of_its_own_and_named_to_no_other(
    guarded: WorkerHarness, group: str, operation: AclOperation
) -> None:
    orders, beside = declare(guarded, group), declare(guarded, group)
    deny_only(guarded.connection, ResourceType.TOPIC, orders.names.front, operation)
    worker = guarded.start(member="shared-0", group=group)
    sent = produce(beside)
    alarms = worker.alarms

    wait_until(lambda: any(alarm["reason"] == "KafkaRefused" for alarm in alarms()), what="the alarm", evidence=alarms)
    assert doubled(all_ready(beside, sent)) == 0
    raised = alarms()
    assert [alarm["topic"] for alarm in raised if alarm["reason"] == "KafkaRefused"] == [orders.names.front]
    assert not [alarm for alarm in raised if alarm["topic"] == beside.names.front]

    lift(guarded.connection, ResourceType.TOPIC, orders.names.front)
    wait_until(lambda: not alarms(), what="no alarm", evidence=alarms)


def test_a_worker_may_be_there_before_the_first_topic_of_its_group(harness: WorkerHarness, group: str) -> None:
    worker = harness.start(member="shared-0", group=group)
    orders = declare(harness, group)
    serves(worker, orders)
    assert doubled(all_ready(orders, produce(orders))) == 0


def hand_over(orders: DeclaredTopic, to: str) -> None:
    """Hands the topic over as the operator does: retires it until no worker has it, then records the committed offsets for the other
    group, and names that group."""
    harness, former = orders.harness, orders.record.group
    orders.change(state="retired")

    def given_up() -> bool:
        found = harness.admin.describe_groups([former])[former]
        assert isinstance(found, GroupInfo)
        return not any(topic.startswith(orders.names.front) for m in found.members for topic, _ in m.assignment)

    wait_until(given_up, what=f"{orders.names.front} is given up by group {former}")
    committed = orders.committed()
    positions = {
        topic: tuple(committed[topic, p] for p in range(len(starts)))
        for topic, starts in orders.topics.start_offsets.items()
    }
    orders.topics = replace(orders.topics, handover=Handover(group=to, positions=positions))
    harness.write(orders.topics)
    orders.change(group=to, state="serving")


@pytest.mark.slow
def test_a_topic_goes_to_shared_workers_and_back_under_load_and_each_record_is_released_once(
    harness: WorkerHarness, group: str
) -> None:
    orders, beside = harness.declare((0, 1, 2)), declare(harness, group)
    own = orders.names.group
    harness.start(orders, member="orders-0", group=own)
    for n in range(2):
        harness.start(member=f"shared-{n}", group=group, assignor="Sticky")
    with steady_load(orders) as sent, steady_load(beside, per_second=200) as sent_beside:
        for to in (group, own, group):
            time.sleep(2)
            hand_over(orders, to)
            before = orders.released()
            wait_until(lambda: orders.released() > before + 1000, what="the other group releases")  # noqa: B023
    assert doubled(all_ready(orders, sent)) == 0
    assert doubled(all_ready(beside, sent_beside)) == 0
