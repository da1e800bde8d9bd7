"""Workers are killed under load: no record is lost or early, and few come out twice."""

import threading
import time

import pytest
from delayed_topics_core import headers as own
from delayed_topics_e2e.checker import Checker, unexplained_repeats
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = pytest.mark.cluster

RECORDS = 60_000


@pytest.mark.usefixtures("own_cluster")
def test_killed_workers_lose_nothing_are_never_early_and_repeat_little(tenant: Tenant, report: Report) -> None:
    orders = tenant.declare("orders", delaySeconds=[0, 1, 2], partitions=6, workers={"replicas": 2})
    orders.apply().wait_ready()
    producing = threading.Thread(target=produce_steadily, args=(orders,))
    with orders.checker() as checker:
        producing.start()
        kills_ms: list[int] = []
        for released in (RECORDS // 10, RECORDS // 3):
            wait_for_flow(checker, released)
            kills_ms.append(kill_one_worker(orders, len(kills_ms)))
        producing.join()
        account = checker.settled(produced=RECORDS)
        assert (account.lost, account.early, account.changed) == (0, 0, 0), account
        assert not unexplained_repeats(front=checker.front, ready=checker.ready, kills_ms=kills_ms)
    orders.wait_ready()
    report.add(
        "worker killed",
        f"{len(kills_ms)} kills in {RECORDS} records: {account.doubled} doubled, {account.lateness()}",
        doubled=account.doubled,
    )


def produce_steadily(orders: Declared) -> None:
    """Produces in portions, so that the kills happen while records flow."""
    portion = RECORDS // 30
    for first in range(0, RECORDS, portion):
        orders.kafka.produce(
            orders.topic,
            (
                (b"k%d" % (i % 97), b"%d" % i, ((own.DELAY_LEVEL, b"%d" % (i % 3 + 1)),))
                for i in range(first, first + portion)
            ),
        )


def wait_for_flow(checker: Checker, released: int) -> None:
    until(
        checker.account,
        what=f"{released} records are released",
        enough=lambda account: account.released >= released,
        poll_seconds=0.05,
    )


def kill_one_worker(orders: Declared, which: int) -> int:
    """Kills the first worker by SIGKILL of its process, so that its container restarts, or the next one as if its node had died. Returns
    the time in ms since the epoch."""
    pod = sorted(orders.pods(), key=lambda p: str(p["metadata"]["name"]))[which]
    killed_ms = int(time.time() * 1000)
    if which == 0:
        orders.kill(pod)
    else:
        orders.kube.delete("pod", pod["metadata"]["name"], namespace=orders.workers_in, now=True)
    return killed_ms
