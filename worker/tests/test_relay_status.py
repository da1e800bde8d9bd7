"""What a worker shows in /status, /metrics, probes and events."""

import pytest
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.generations import events_of
from delayed_topics_worker_testing.harness import WorkerHarness

pytestmark = pytest.mark.broker


def test_counts_and_probes_tell_what_happened(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 10, 3600), front_partitions=2, partitions=4)
    worker = harness.start(orders)
    for n in range(30):
        orders.produce(b"%d" % n, headers=[("dt-delay-level", b"%d" % (n % 3 + 1))])
    orders.produce(b"bad", headers=[("dt-attempt", b"x")])
    orders.flush()
    orders.ready(20)
    orders.dead(1)
    topic = orders.names.front

    def ten_wait() -> bool:
        shown = worker.status()["topics"][topic]
        released = worker.metric("delayedtopics_released_total", topic=topic)
        return (shown["waiting"], shown["due_lag"], released) == (10, 0, 20)  # waiting records are not due lag

    wait_until(ten_wait, what="ten records wait, none is due, and the others are counted")
    hopped = harness.admin.list_offsets([(orders.names.delays, p) for p in range(4)], "latest")
    hops = sum(end for end in hopped.values() if isinstance(end, int))
    assert hops >= 20
    status = worker.status()

    assert status["member"] == "orders-0"
    assert status["topics"][topic]["partitions"] == [f"{topic}[0-1]", f"{orders.names.delays}[0-3]"]
    assert (status["alarms"], status["rebalance"]["last"]["change"]) == ([], "assigned")
    assert worker.metric("delayedtopics_released_total", topic=topic) == 20
    assert worker.metric("delayedtopics_partition_changes_total", topic=topic, change="assigned") == 6
    assert worker.metric("delayedtopics_hopped_total", topic=topic) == hops
    assert worker.metric("delayedtopics_dead_lettered_total", topic=topic, reason="HeaderUnreadable") == 1
    assert worker.metric("delayedtopics_lateness_seconds_count", topic=topic) == 20
    assert worker.metric("delayedtopics_waiting_records", topic=topic) == 10
    assert worker.get("/livez") == (200, "ok\n")
    assert worker.get("/readyz") == (200, "ok\n")
    assert worker.get("/other")[0] == 404


def test_what_waits_is_counted_by_when_it_is_due(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 10, 3600), front_partitions=2, partitions=4)
    worker = harness.start(orders)
    for level, count in ((2, 3), (3, 4)):
        for _ in range(count):
            orders.produce(headers=[("dt-delay-level", b"%d" % level)])
    orders.flush()
    topic = orders.names.front
    wait_until(lambda: worker.metric("delayedtopics_hopped_total", topic=topic) == 7, what="all records have hopped")
    worker.terminate()
    worker = harness.start(orders)  # counts pending records when it begins, and then every 30 s

    def pending(delay: str, within: str) -> float:
        labels = {"topic": topic, "delay_seconds": delay, "due_within_seconds": within}
        return worker.metric("delayedtopics_pending_records", **labels)

    wait_until(lambda: pending("3600", "+Inf") == 4, what="records that wait an hour are counted")
    assert [pending("3600", within) for within in ("0", "60", "600", "3600", "86400")] == [0, 0, 0, 4, 4]
    assert (pending("10", "60"), pending("0", "+Inf")) == (3, 0)


def test_a_life_is_written_to_the_events(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=1, partitions=1)
    worker = harness.start(orders, member="orders-7")
    assert worker.terminate() == 0

    events = events_of(orders)

    kinds = ["worker-started", "assignment", "rebalance", "rebalance", "rebalance", "worker-stopped"]
    assert [e.kind for e in events] == kinds
    assert {e.member for e in events} == {"orders-7"}
    assignment, assigned, *others = (event.detail for event in events[1:5])
    revoked, caught_up = sorted(others, key=lambda detail: detail["change"] == "caught-up")
    assert (caught_up["change"], caught_up["delayed"], caught_up["places"]) == ("caught-up", 0, assigned["places"])
    assert assignment == {
        "group": orders.names.group,
        "generation": assigned["generation"],
        "places": assigned["places"],
        "kept": [],
        "session_timeout_ms": 10_000,
    }
    assert (assigned["change"], assigned["partitions"]) == ("assigned", 2)
    assert (revoked["change"], revoked["partitions"]) == ("revoked", 2)
    assert (revoked["kept"], revoked["in_flight"]) == ([], 0)
    assert assigned["places"] == revoked["places"] == [f"{orders.names.front}[0]", f"{orders.names.delays}[0]"]
    assert revoked["generation"] == assigned["generation"] == 1, "as Kafka counts them"
    assert assigned["took_ms"] >= 0
