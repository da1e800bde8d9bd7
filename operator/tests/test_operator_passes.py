"""Passes over the resources of one Kafka hold up no others, and events from Kafka take a bounded amount of memory."""

import asyncio
import contextlib

import pytest
from delayed_topics_core.events import Event
from delayed_topics_kafka.errors import KafkaRefused, KafkaUnreachable
from delayed_topics_operator.engine import controller
from delayed_topics_operator.engine.controller import Runner
from delayed_topics_operator.engine.queue import WakeQueue
from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator.gateways.kube import _error
from delayed_topics_operator.values.eventlog import MAX_ALARMS, EventLog
from delayed_topics_operator.values.key import Key
from prometheus_client import REGISTRY


def key_of(connection: str, number: int) -> Key:
    """Returns the key of a resource whose connection is named by its namespace, so that the namespace is its lane."""
    return Key("DelayedTopic", connection, f"{number}")


def lane_of(key: Key) -> Key:
    return Key("KafkaConnection", key.namespace, "")


def queue(now: list[float]) -> WakeQueue:
    return WakeQueue(interval_seconds=0, clock=lambda: now[0], lane_of=lane_of, lane_slots=2)


async def begun(queue: WakeQueue) -> list[Key]:
    """Returns the keys of all passes that may begin now."""
    keys: list[Key] = []
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0.01):
                keys.append(await queue.next())
    return keys


def test_a_lane_without_a_free_slot_holds_up_no_other() -> None:
    async def story() -> None:
        lanes = queue([100.0])
        for number in range(5):
            lanes.wake(key_of("slow", number))
        lanes.wake(key_of("other", 0))
        assert set(await begun(lanes)) == {key_of("slow", 0), key_of("slow", 1), key_of("other", 0)}
        lanes.wake(key_of("other", 1))
        assert await begun(lanes) == [key_of("other", 1)]

    asyncio.run(story())


def test_a_slot_goes_to_whoever_has_waited_longest() -> None:
    async def story() -> None:
        now = [100.0]
        lanes = queue(now)
        for number in range(4):
            lanes.wake(key_of("slow", number))
            now[0] += 1
        assert await begun(lanes) == [key_of("slow", 0), key_of("slow", 1)]
        assert lanes.overdue_seconds() == 2
        lanes.failed(key_of("slow", 1))
        assert await begun(lanes) == [key_of("slow", 2)]
        lanes.succeeded(key_of("slow", 0), next_seconds=None)
        lanes.succeeded(key_of("slow", 2), next_seconds=None)
        assert await begun(lanes) == [key_of("slow", 3)]
        assert lanes.overdue_seconds() == 0

    asyncio.run(story())


def test_a_slot_is_not_lost_when_whoever_waits_for_it_goes_to_another_lane() -> None:
    """This happens when a resource is deleted, or edited to use another connection, while its Kafka is slow."""
    moved: set[Key] = set()

    def lane(key: Key) -> Key:
        return key if key in moved else lane_of(key)

    async def story() -> None:
        lanes = WakeQueue(interval_seconds=0, clock=lambda: 100.0, lane_of=lane, lane_slots=1)
        for number in range(3):
            lanes.wake(key_of("slow", number))
        assert await begun(lanes) == [key_of("slow", 0)]
        moved.add(key_of("slow", 1))
        lanes.succeeded(key_of("slow", 0), next_seconds=None)
        assert await begun(lanes) == [key_of("slow", 1), key_of("slow", 2)]

    asyncio.run(story())


def test_a_lane_whose_passes_all_end_before_the_offered_slot_is_taken_is_gone_and_nobody_misses_it() -> None:
    """The passes over a Kafka that does not answer end at the same moment, and the resource that waits may be deleted meanwhile."""
    moved: set[Key] = set()

    async def story() -> None:
        lanes = WakeQueue(
            interval_seconds=0,
            clock=lambda: 100.0,
            lane_of=lambda key: key if key in moved else lane_of(key),
            lane_slots=2,
        )
        for number in range(3):
            lanes.wake(key_of("slow", number))
        assert await begun(lanes) == [key_of("slow", 0), key_of("slow", 1)]
        moved.add(key_of("slow", 2))
        for number in range(2):
            lanes.succeeded(key_of("slow", number), next_seconds=None)
        assert await begun(lanes) == [key_of("slow", 2)]

    asyncio.run(story())


class Hangs:
    """A controller whose passes in the lane `slow` never end."""

    kind = "DelayedTopic"

    def __init__(self) -> None:
        self.under_way = 0
        self.done: list[Key] = []

    async def reconcile(self, key: Key) -> float | None:
        if key.namespace == "slow":
            self.under_way += 1
            await asyncio.Event().wait()
        self.done.append(key)
        return None


def test_a_runner_whose_passes_hang_begins_others_and_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "BEAT_SECONDS", 0.001)

    async def story() -> None:
        hangs = Hangs()
        runner = Runner(hangs, lane_of=lane_of, lane_slots=2, interval_seconds=0)
        assert runner.silent_seconds() == 0, "the runner has not begun"
        running = asyncio.create_task(runner.run())
        for number in range(100):
            runner.queue.wake(key_of("slow", number))
        while hangs.under_way < 2:
            await asyncio.sleep(0)
        for number in range(10):
            runner.queue.wake(key_of("other", number))
        while len(hangs.done) < 10:
            await asyncio.sleep(0)
        assert hangs.under_way == 2
        beat_at = runner._beat_at
        while runner._beat_at == beat_at:
            await asyncio.sleep(0.001)
        running.cancel()

    asyncio.run(story())


REFUSED_BY_WEBHOOK = b'{"message": "admission webhook \\"labels.example.com\\" denied the request: no label team"}'


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (SpecInvalid("spec.audit.schedule is none"), "refused"),
        (KafkaRefused("100 replicas", code="INVALID_REPLICATION_FACTOR"), "refused"),
        (_error("APPLY StatefulSet a", 422, b"{}", {}), "refused"),
        (_error("APPLY StatefulSet a", 403, b'{"message": "exceeded quota: full"}', {}), "refused"),
        (_error("APPLY StatefulSet a", 403, REFUSED_BY_WEBHOOK, {}), "refused"),
        (_error("APPLY StatefulSet a", 400, REFUSED_BY_WEBHOOK, {}), "refused"),
        (_error("APPLY StatefulSet a", 403, b'{"message": "User a cannot patch"}', {}), "failed"),
        (_error("APPLY StatefulSet a", 409, b"{}", {}), "failed"),
        (KafkaRefused("no ACL", code="TOPIC_AUTHORIZATION_FAILED"), "failed"),
        (KafkaUnreachable("no broker answers"), "failed"),
        (AssertionError("a defect"), "crashed"),
    ],
)
def test_what_one_resource_asks_for_in_vain_is_no_failure_of_the_operator(error: Exception, outcome: str) -> None:
    class Fails:
        kind = "DelayedTopic"

        async def reconcile(self, key: Key) -> float | None:
            raise error

    def counted() -> float:
        labels = {"kind": "DelayedTopic", "outcome": outcome}
        return REGISTRY.get_sample_value("delayedtopics_operator_reconciles_total", labels) or 0

    async def story() -> None:
        runner = Runner(Fails(), lane_of=lane_of, lane_slots=1, interval_seconds=0)
        running = asyncio.create_task(runner.run())
        runner.queue.wake(key_of("any", 0))
        while counted() == before:
            await asyncio.sleep(0)
        running.cancel()

    before = counted()
    asyncio.run(asyncio.wait_for(story(), 60))


def alarm(topic: str, member: str, message: str = "m") -> Event:
    return Event(
        kind="alarm", topic=topic, member=member, at_ms=1, detail={"reason": "TopicMissing", "message": message}
    )


def test_events_of_any_number_of_topics_and_members_take_a_bounded_memory() -> None:
    log = EventLog(most_bytes=100_000)
    for number in range(2_000):
        log.add(alarm(f"topic-{number}", "w-0", "x" * 2_000))
        log.add(Event(kind="worker-started", topic="orders", member=f"w-{number}", at_ms=1, detail={}))
        log.add(alarm("orders", f"w-{number}"))
    assert log._bytes == sum(topic.bytes for topic in log._topics.values()) <= 100_000
    assert log.news("topic-0").alarms == ()
    assert log.news("topic-1999").alarms


def test_of_one_topic_the_latest_alarms_are_kept() -> None:
    log = EventLog()
    for number in range(MAX_ALARMS + 5):
        log.add(alarm("orders", f"w-{number}"))
    kept = [alarm.member for alarm in log.news("orders").alarms]
    assert (len(kept), kept[-1]) == (MAX_ALARMS, f"w-{MAX_ALARMS + 4}")
    log.add(alarm("orders", "w" * 300))
    log.add(alarm("o" * 300, "w-0"))
    assert [alarm.member for alarm in log.news("orders").alarms] == kept
    assert log.news("o" * 300).alarms == ()
