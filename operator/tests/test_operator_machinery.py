"""Queue, gatherer, store and event log: the machinery below the controllers."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.events import Event
from delayed_topics_core.registry import Claim, Owner, decode, encode
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaUnreachable
from delayed_topics_operator.engine.queue import MAX_BACKOFF_SECONDS, WakeQueue
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.gateways.gather import Gatherer
from delayed_topics_operator.gateways.kafka import KafkaLink, merged
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.runtime import Runtime
from delayed_topics_operator.values.eventlog import EventLog, WorkerNews
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.labels import NAME_LABEL, NAMESPACE_LABEL, label_value
from delayed_topics_operator.workers.reconcile.worker_sets import shared_labels

A, B = Key("DelayedTopic", "shop", "a"), Key("DelayedTopic", "shop", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def next_now(queue: WakeQueue) -> Key | None:
    try:
        async with asyncio.timeout(0.01):
            return await queue.next()
    except TimeoutError:
        return None


def test_many_wakes_are_one_pass_and_one_resource_has_one_pass_at_a_time() -> None:
    async def story() -> None:
        queue = WakeQueue(interval_seconds=0, clock=Clock())
        for _ in range(10):
            queue.wake(A)
        assert await next_now(queue) == A
        queue.wake(A)
        queue.wake(B)
        assert await next_now(queue) == B
        assert await next_now(queue) is None
        queue.succeeded(A, next_seconds=1000)
        assert await next_now(queue) == A

    asyncio.run(story())


def test_two_who_ask_for_other_partitions_of_one_group_both_get_theirs() -> None:
    one, other = ("g", (("orders", 0), ("orders", 1))), ("g", (("orders", 1), ("orders", 2)))
    assert merged([one, other]) == {"g": [("orders", 0), ("orders", 1), ("orders", 2)]}


@pytest.mark.parametrize("wrong", [{"topic": {}}, {"member": []}, {"at_ms": "1"}, {"at_ms": True}])
def test_an_event_that_is_none_is_unreadable_and_ends_nothing(wrong: dict[str, object]) -> None:
    event = {"kind": "rebalance", "topic": "t", "member": "m", "at_ms": 1, "detail": {}}
    with pytest.raises(UnreadableRecord):
        Event.decode(json.dumps({**event, **wrong}).encode())


@pytest.mark.parametrize("topic", [7, None, "", "a b", "__x", "orders.ready"])
def test_a_claim_on_what_can_not_be_a_topic_is_unreadable(topic: object) -> None:
    claim = Claim(topic="orders", owner=Owner("c", "shop", "orders"))
    body = {**json.loads(encode(claim)), "topic": topic}
    with pytest.raises(UnreadableRecord):
        decode("claim/x/c/shop/orders", json.dumps(body).encode())


def test_events_cause_at_most_one_pass_in_each_interval() -> None:
    async def story() -> None:
        clock = Clock()
        queue = WakeQueue(interval_seconds=1, clock=clock)
        queue.wake(A)
        assert await next_now(queue) == A
        queue.succeeded(A, next_seconds=30)
        queue.wake(A)
        assert await next_now(queue) is None
        clock.now += 1
        assert await next_now(queue) == A

    asyncio.run(story())


def test_a_failing_resource_is_tried_later_and_later_up_to_the_cap_and_at_once_after_success() -> None:
    async def story() -> None:
        clock = Clock()
        queue = WakeQueue(interval_seconds=0, clock=clock)
        queue.wake(A)
        waits = []
        for _ in range(9):
            began = clock.now
            while await next_now(queue) is None:
                clock.now += 0.1
            waits.append(clock.now - began)
            queue.failed(A)
        assert waits[1] < 0.7
        assert waits[:7] == sorted(waits[:7])
        assert 0.7 * MAX_BACKOFF_SECONDS < waits[-1] <= MAX_BACKOFF_SECONDS + 0.2
        queue.wake(A)
        assert await next_now(queue) == A
        queue.succeeded(A, next_seconds=None)
        assert await next_now(queue) is None

    asyncio.run(story())


def test_what_many_ask_for_at_once_is_one_call_and_each_gets_its_own_part() -> None:
    async def story() -> None:
        calls: list[dict[str, int]] = []

        async def call(items: dict[str, int]) -> Mapping[str, int]:
            calls.append(dict(items))
            return {key: value * 2 for key, value in items.items()}

        gatherer = Gatherer(call, window_seconds=0.01)
        answers = await asyncio.gather(*(gatherer.ask({f"{n}": n, "shared": 7}) for n in range(5)))
        assert calls == [{"shared": 7, **{f"{n}": n for n in range(5)}}]
        assert answers[3] == {"3": 6, "shared": 14}
        assert await gatherer.ask({}) == {}

    asyncio.run(story())


def test_what_comes_while_a_call_is_under_way_goes_with_the_next() -> None:
    async def story() -> None:
        calls: list[int] = []
        answers = asyncio.Event()

        async def call(items: dict[int, None]) -> Mapping[int, int]:
            calls.append(len(items))
            await answers.wait()
            return dict.fromkeys(items, 0)

        gatherer = Gatherer(call, window_seconds=0)
        asked = [asyncio.create_task(gatherer.ask({0: None}))]
        while not calls:
            await asyncio.sleep(0)
        for n in range(1, 10):
            asked.append(asyncio.create_task(gatherer.ask({n: None})))
            await asyncio.sleep(0.001)
        answers.set()
        await asyncio.gather(*asked)
        assert calls == [1, 9]

    asyncio.run(story())


def test_a_call_that_fails_fails_for_all_who_asked_and_not_for_the_next() -> None:
    async def story() -> None:
        failing = True

        async def call(items: dict[str, None]) -> Mapping[str, int]:
            if failing:
                raise OSError("away")
            return dict.fromkeys(items, 1)

        gatherer = Gatherer(call, window_seconds=0.01)
        outcomes = await asyncio.gather(gatherer.ask({"a": None}), gatherer.ask({"b": None}), return_exceptions=True)
        assert all(isinstance(outcome, OSError) for outcome in outcomes)
        failing = False
        assert await gatherer.ask({"a": None}) == {"a": 1}

    asyncio.run(story())


def thing(name: str, version: int, uid: str = "u") -> dict[str, Any]:
    return {
        "kind": "ConfigMap",
        "metadata": {"namespace": "n", "name": name, "uid": uid, "resourceVersion": str(version)},
    }


def test_a_watch_that_lags_behind_an_answer_does_not_bring_back_the_past() -> None:
    store = Store(clock=Clock())
    assert store.put(thing("a", 5))
    assert not store.put(thing("a", 3))
    assert not store.put(thing("a", 5))
    assert (store.get("ConfigMap", "n", "a") or {})["metadata"]["resourceVersion"] == "5"
    assert not store.put(thing("a", 2, uid="former")), "so does an object that was deleted before this one was created"
    assert store.put(thing("a", 8, uid="another")), "an object that was created again replaces the former one"


def test_a_list_tells_of_deletions_that_the_watch_missed_but_not_of_what_is_younger_than_itself() -> None:
    clock = Clock()
    store = Store(clock=clock)
    store.put(thing("old", 1))
    clock.now += 10
    begun_at = clock.now
    clock.now += 1
    store.put(thing("young", 9))
    news = store.replace("ConfigMap", [thing("other", 4)], namespace="n", begun_at=begun_at)
    assert {m["metadata"]["name"] for m in news} == {"old", "other"}
    assert {m["metadata"]["name"] for m in store.all("ConfigMap")} == {"young", "other"}


def test_a_deletion_of_a_former_object_leaves_its_successor() -> None:
    store = Store(clock=Clock())
    store.put(thing("a", 7, uid="new"))
    store.gone(thing("a", 6, uid="old"))
    assert store.get("ConfigMap", "n", "a") is not None


def colours(manifest: dict[str, Any]) -> tuple[str, ...]:
    return tuple(manifest["metadata"].get("labels", {}).values())


def painted(name: str, version: int, *labels: str) -> dict[str, Any]:
    manifest = thing(name, version)
    manifest["metadata"]["labels"] = {label: label for label in labels}
    return manifest


@pytest.mark.parametrize("asked_before", [True, False])
def test_what_is_found_by_a_value_follows_every_change(asked_before: bool) -> None:
    clock = Clock()
    store = Store(clock=clock)

    def names(colour: str) -> set[str]:
        return {m["metadata"]["name"] for m in store.by_index("ConfigMap", colours, colour)}

    if asked_before:
        assert names("red") == set()
    store.put(painted("a", 1, "red"))
    store.put(painted("b", 1, "red", "blue"))
    assert (names("red"), names("blue"), names("green")) == ({"a", "b"}, {"b"}, set())
    store.put(painted("b", 2, "green"))
    store.put(painted("b", 1, "red"))  # an older version
    assert (names("red"), names("blue"), names("green")) == ({"a"}, set(), {"b"})
    store.absent("ConfigMap", "n", "a")
    assert names("red") == set()
    store.put(painted("c", 1, "red"))
    store.gone(painted("c", 1))
    assert names("red") == set()
    clock.now += 1
    store.replace("ConfigMap", [painted("d", 1, "red")], namespace="n", begun_at=clock.now)
    assert (names("red"), names("green")) == ({"d"}, set())


def event(kind: Any, at_ms: int, member: str = "w-0", **detail: Any) -> Event:
    return Event(kind=kind, topic="orders", member=member, at_ms=at_ms, detail=detail)


def test_alarms_are_raised_cleared_and_forgotten_with_their_worker() -> None:
    log = EventLog()
    log.add(event("alarm", 1, reason="CommitMissing", message="m", raised=True))
    log.add(event("alarm", 2, member="w-1", reason="CommitMissing", message="n", raised=True))
    assert [alarm.member for alarm in log.news("orders").alarms] == ["w-0", "w-1"]
    log.add(event("alarm", 3, reason="CommitMissing", message="m", raised=False))
    log.add(event("worker-started", 4, member="w-1"))
    assert log.news("orders").alarms == ()
    assert log.news("other").alarms == ()


def test_half_a_character_in_an_alarm_is_replaced() -> None:
    """Otherwise the status would never equal the wanted one, and the operator would write it again and again."""
    log = EventLog()
    log.add(event("alarm", 1, reason="CommitMissing", message=json.loads('"a \\ud800 b"')))
    assert [alarm.message for alarm in log.news("orders").alarms] == ["a ? b"]


def test_replaced_producers_are_no_rebalance() -> None:
    log = EventLog()
    log.add(event("producers-replaced", 1, partitions=3))
    assert log.news("orders") == WorkerNews()


def test_calls_by_a_connection_that_was_closed_meanwhile_are_tried_again_later() -> None:
    async def story() -> None:
        link = KafkaLink(
            Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": 0}),
            timeout_seconds=1,
            threads=1,
            registry_bytes=1,
            woken=lambda topics: None,
            transactional_id="operator",
            leadership=Leadership.without_end(),
        )
        await link.close()
        for call in (link.describe_cluster(), link.registry(), link.committed("group", [("orders", 0)])):
            with pytest.raises(KafkaUnreachable, match="changed or deleted meanwhile"):
                await call

    asyncio.run(story())


def a_runtime() -> Runtime:
    settings = Settings(namespace="system", audit_namespace="audits", worker_image="worker:1", audit_image="audit:1")
    return Runtime(settings=settings, kube=cast(Kube, None), cluster="cluster", leadership=Leadership.without_end())


@pytest.mark.parametrize("kind", ["DelayedTopic", "KafkaConnection", "ClusterKafkaConnection"])
def test_news_of_workers_wake_whose_they_are_and_nobody_else_however_long_the_names(kind: str) -> None:
    home = "" if kind == "ClusterKafkaConnection" else "shop"

    def labels(name: str) -> dict[str, str]:
        if kind == "DelayedTopic":
            return {NAMESPACE_LABEL: home, NAME_LABEL: label_value(name)}
        return shared_labels(Key(kind, home, name))

    async def story() -> None:
        runtime = a_runtime()
        names = ["o" * 63, "o" * 70, "o" * 71, f"{'o' * 50}-------{'o' * 9}"]
        for name in names:
            metadata = {"namespace": home, "name": name, "uid": name, "resourceVersion": "1"}
            runtime.store.put({"kind": kind, "metadata": metadata, "spec": {}})
        for name in names:
            workers = {"namespace": "shop", "name": "workers", "uid": name, "labels": labels(name)}
            runtime.seen("ADDED", {"kind": "StatefulSet", "metadata": workers})
            queue = runtime.runners[kind].queue
            assert [await next_now(queue), await next_now(queue)] == [Key(kind, home, name), None]

    asyncio.run(story())


def test_what_the_operator_itself_has_made_is_begun_although_it_was_known_before_the_watch_told() -> None:
    async def story() -> None:
        runtime = a_runtime()
        metadata = {"namespace": "shop", "name": "orders-1", "uid": "u", "resourceVersion": "7"}
        spec = {"delayedTopicRef": {"name": "orders"}}
        audit = {"kind": "DelayedTopicAudit", "metadata": metadata, "spec": spec}
        runtime.store.put(audit)
        queue = runtime.runners["DelayedTopicAudit"].queue
        runtime.seen("MODIFIED", audit)
        assert await next_now(queue) is None
        runtime.seen("ADDED", audit)
        assert await next_now(queue) == Key("DelayedTopicAudit", "shop", "orders-1")

    asyncio.run(story())
