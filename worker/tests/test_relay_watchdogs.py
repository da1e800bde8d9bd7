"""How a worker reports that it can't do its work, in probes and alarms, and which topics its alarms do not name."""

import socket
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import cast

import pytest
from delayed_topics_core.reasons import Reason
from delayed_topics_engine import Seen
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_worker import web
from delayed_topics_worker.alarms import StallTimes, of_partitions, of_unacknowledged
from delayed_topics_worker.assigned import AssignedPartition, Stop
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.served import Served
from delayed_topics_worker.topic_watch import TopicsSnapshot
from delayed_topics_worker.web import ALIVE_SECONDS, PublishedStatus, serve


def sending(topic: str, stuck_seconds: float = 4.2) -> AssignedPartition:
    """Returns a partition of the delayed topic with a release that has been in flight for so long."""
    owned = AssignedPartition(
        served=Served.of(topic), topic=topic, partition=0, generation=1, group_generation=1, assigned_at=0
    )
    state = SimpleNamespace(stuck_seconds=stuck_seconds, unacknowledged=(True, False, False, False))
    owned.seen = cast(Seen, state)
    return owned


def seen(name: str, *lagging: int) -> TopicInfo:
    return TopicInfo(name=name, id=name, partitions=2, replication_factor=3, leaders_known=True, lagging=lagging)


@pytest.mark.process
def test_livez_says_so_when_the_owning_thread_does_not_turn() -> None:
    now = 0.0
    published = PublishedStatus(lambda: now)
    server = serve(published, Metrics(), 0)
    url = f"http://127.0.0.1:{server.server_address[1]}/livez"
    try:
        assert urllib.request.urlopen(url, timeout=60).status == 200
        now = ALIVE_SECONDS
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(url, timeout=60)
        published.turned_at = now
        assert urllib.request.urlopen(url, timeout=60).status == 200
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.process
@pytest.mark.parametrize("has_ipv6", [True, False])
def test_probes_are_answered_by_each_protocol_that_the_kernel_has(
    has_ipv6: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods of some clusters have IPv6 only."""
    if not has_ipv6:
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    server = serve(PublishedStatus(lambda: 0.0), Metrics(), 0)
    try:
        for host in ("127.0.0.1", *(["[::1]"] if socket.has_dualstack_ipv6() else [])):
            url = f"http://{host}:{server.server_address[1]}/livez"
            assert urllib.request.urlopen(url, timeout=60).status == 200
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.process
def test_a_connection_on_which_nothing_is_asked_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection occupies a thread."""
    monkeypatch.setattr(web, "IDLE_SECONDS", 0.1)
    server = serve(PublishedStatus(lambda: 0.0), Metrics(), 0)
    try:
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=60) as idle:
            idle.sendall(b"GET /livez")
            assert idle.recv(1) == b""
    finally:
        server.shutdown()
        server.server_close()


def test_copies_that_are_not_acknowledged_are_blamed_on_the_topic_whose_replicas_lag() -> None:
    orders, parcels = sending("orders"), sending("parcels")
    snapshot = TopicsSnapshot({"orders.ready": seen("orders.ready", 1), "parcels.ready": seen("parcels.ready")}, {})

    (alarm,) = of_unacknowledged([orders, parcels], snapshot)

    assert (alarm.topic, alarm.reason) == ("orders", Reason.TARGET_UNAVAILABLE)
    assert "orders.ready [1] has replicas out of sync" in alarm.message
    assert "Kafka has not acknowledged copies to orders.ready for 4 s" in alarm.message


def test_copies_that_are_on_their_way_as_usual_are_no_alarm() -> None:
    assert of_unacknowledged([sending("orders", 2.9)], TopicsSnapshot({}, {})) == []


def test_copies_that_are_not_acknowledged_for_no_reason_that_is_known_are_told_of_all_topics() -> None:
    owned = [sending("orders"), sending("parcels")]

    alarms = of_unacknowledged(owned, TopicsSnapshot({}, {}))

    assert {alarm.topic for alarm in alarms} == {"orders", "parcels"}


def test_the_alarm_of_a_refused_copy_stays_while_it_is_tried_again() -> None:
    owned = sending("orders")
    owned.tried = Stop(
        reason=Reason.TARGET_UNAVAILABLE, message="refused", retry_at=1.0, refused=0, target="orders.dead"
    )

    assert [alarm.reason for alarm in of_partitions([owned])] == [Reason.TARGET_UNAVAILABLE]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(0, 5, 0.0), (0, 5, 11.0)], 11.0),
        ([(0, 5, 0.0), (3, 5, 9.0), (3, 5, 11.0)], 2.0),
        ([(0, 5, 0.0), (0, 0, 9.0), (0, 5, 11.0)], 2.0),
        ([(0, 0, 0.0), (0, 0, 60.0)], 0.0),
    ],
)
def test_a_standstill_lasts_from_the_last_release_or_the_last_idle_moment(
    steps: list[tuple[int, int, float]], expected: float
) -> None:
    standstill = StallTimes()

    seconds = [standstill.seconds("orders", done=done, lag=lag, now=now) for done, lag, now in steps]

    assert seconds[-1] == expected
