"""Scheduled audits of a topic under traffic and disturbances: together they account for every offset exactly once."""

import os
import signal
import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from delayed_topics_core import headers as own
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_e2e.node import processes_of, send_signal
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Tenant
from delayed_topics_e2e.waiting import until

AUDITS = int(os.environ.get("AUDITS", "0"))
"""The number of audits. A schedule starts at most one a minute."""
EACH_TIMEOUT_SECONDS = 240.0
PER_SECOND = 200

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(120 + AUDITS * EACH_TIMEOUT_SECONDS),
    pytest.mark.skipif(AUDITS == 0, reason="some minutes for each audit of the chain: AUDITS=10"),
]


@pytest.mark.usefixtures("own_cluster")
def test_audits_on_a_schedule_account_for_every_offset_once(tenant: Tenant, report: Report) -> None:
    schedule = {"schedule": "* * * * *", "historyLimit": AUDITS + 10, "maxLatenessMs": 600_000}
    orders = tenant.declare("orders", delaySeconds=[0, 1, 5], partitions=4, workers={"replicas": 2}, audit=schedule)
    orders.apply().wait_ready()
    enough = threading.Event()
    sent: list[int] = []
    traffic = threading.Thread(target=produce_until, args=(orders, enough, sent))
    traffic.start()
    try:
        for done in range(1, AUDITS + 1):
            disturb(orders, done)
            wait_concluded(orders, done)
    finally:
        enough.set()
        traffic.join()
    orders.apply(audit=None)
    with orders.checker() as checker:
        seen = checker.settled(produced=sum(sent))
    orders.audit("last", timeout_seconds=EACH_TIMEOUT_SECONDS, window={"sinceLast": True})

    chain = concluded(orders)
    windows = [orders.window(status) for status in chain]
    settled = [settled_by(status["account"]) for status in chain]
    assert [status["verdict"] for status in chain] == ["Verified"] * len(chain), chain
    for before, after in pairwise(windows):
        for name in (orders.names.front, orders.names.delays):
            begins, ended = after.from_offsets[name], before.committed_offsets[name]
            assert begins == ended + (0,) * (len(begins) - len(ended)), (name, ended, begins)
    assert settled == [width(orders, window) for window in windows]
    assert chain[-1]["account"]["pending"] == 0
    assert sum(windows[-1].committed_offsets[orders.names.front]) == sum(sent)
    report.add(
        "audit chain",
        f"{len(chain)} audits account for {sum(settled)} records of {sum(sent)} produced, {seen.doubled} doubled by "
        f"{AUDITS} disturbances; of each: {settled}",
    )


def produce_until(orders: Declared, enough: threading.Event, sent: list[int]) -> None:
    while not enough.wait(1.0):
        records = ((b"k%d" % (i % 97), b"%d" % i, ((own.DELAY_LEVEL, b"%d" % (i % 3 + 1)),)) for i in range(PER_SECOND))
        orders.kafka.produce(orders.topic, records)
        sent.append(PER_SECOND)


def disturb(orders: Declared, number: int) -> None:
    """Kills a worker, changes the number of workers, or adds a partition, in turn."""
    match number % 3:
        case 0:
            orders.apply(partitions=orders.spec["partitions"] + 1)
        case 1:
            pod = min(orders.pods(), key=lambda p: str(p["metadata"]["name"]))
            send_signal(processes_of(pod["metadata"]["uid"]), signal.SIGKILL)
        case _:
            orders.scale(2 + number % 2)


def concluded(orders: Declared) -> list[dict[str, Any]]:
    """The statuses of all audits that have a verdict, the earliest first."""
    audits = orders.kube.list("dtaudit", namespace=orders.namespace)
    statuses: list[dict[str, Any]] = [audit["status"] for audit in audits if "verdict" in audit.get("status", {})]
    return sorted(statuses, key=lambda status: str(status["startedAt"]))


def wait_concluded(orders: Declared, count: int) -> None:
    until(
        lambda: len(concluded(orders)),
        what=f"{count} audits have a verdict",
        enough=lambda found: found >= count,
        timeout_seconds=EACH_TIMEOUT_SECONDS,
        poll_seconds=2,
    )


def settled_by(account: Mapping[str, int]) -> int:
    return sum(account[term] for term in ("released", "hopped", "deadLettered", "cancelled", "lost"))


def width(orders: Declared, window: AuditWindow) -> int:
    """The number of offsets that an audit with this window judges."""
    names = (orders.names.front, orders.names.delays)
    return sum(sum(window.committed_offsets[name]) - sum(window.from_offsets[name]) for name in names)
