"""A chain of audits, as over a day: the first audit that can see a violation finds it, and no other audit reports it."""

import itertools
import os
import random
from collections.abc import Callable

import pytest
from delayed_topics_core import headers as own
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core_testing import copies
from delayed_topics_e2e.by_hand import move_offset, stopped
from delayed_topics_e2e.plain import Record
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Tenant

LINKS = int(os.environ.get("LINKS", "0"))
EACH_TIMEOUT_SECONDS = 300.0
RECORDS = 3_000
DELAY_SECONDS = (0, 5, 20)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300 + LINKS * EACH_TIMEOUT_SECONDS),
    pytest.mark.skipif(LINKS == 0, reason="a minute or two for each audit of the chain: LINKS=24"),
]

BROKEN = (
    "lost", "early", "doubledBeyondPromise", "outOfOrder", "wrongPartition", "changed", "wrongAttempt", "overCap", "forged",
    "wronglyDeadLettered", "wronglyReleased",
)  # fmt: skip


@pytest.mark.usefixtures("own_cluster")
def test_each_wrong_is_found_by_the_first_audit_that_can_see_it(tenant: Tenant, report: Report) -> None:
    orders = tenant.declare("orders", delaySeconds=list(DELAY_SECONDS), partitions=4).apply().wait_ready()
    violations: dict[int, tuple[str, Violation]] = {
        LINKS // 5: ("lost", steal),
        2 * LINKS // 5: ("doubledBeyondPromise", repeat),
        3 * LINKS // 5: ("early", release_early),
        4 * LINKS // 5: ("wronglyDeadLettered", bury),
    }
    harmless = itertools.cycle((kill, scale, grow, edit, remove_old))
    found: list[str] = []
    for number in range(1, LINKS + 1):
        produce(orders)
        term, violate = violations.get(number, (None, None))
        place = violate(orders) if violate else next(harmless)(orders, number)
        status = orders.audit(f"link-{number}", timeout_seconds=EACH_TIMEOUT_SECONDS, window={"sinceLast": True})
        broken = {name: status["account"][name] for name in BROKEN if status["account"].get(name)}
        assert broken == ({term: 1} if term else {}), (number, status)
        assert status["verdict"] == ("Violated" if term else "Verified"), (number, status)
        if term:
            assert place in status["message"], (place, status)
            found.append(f"link {number}: {term} {place}")
            orders.wait_condition("DeliveryVerified", "False")
            orders.kube.kubectl(
                *("annotate", "dtopic", orders.name, "-n", orders.namespace, "--overwrite"),
                f"delayedtopics.io/acknowledged-audit=link-{number}",
            )
    orders.wait_condition("DeliveryVerified", "True")
    report.add(
        "a chain that finds", f"{LINKS} links, {len(found)} violations: {'; '.join(found)}; every other link Verified"
    )


Violation = Callable[[Declared], str]
"""Breaks a promise for one record, and returns the place that the audit should report."""


def produce(orders: Declared) -> None:
    levels = (((own.DELAY_LEVEL, b"%d" % (i % 3 + 1)),) for i in range(RECORDS))
    orders.kafka.produce(orders.topic, ((b"k%d" % (i % 97), b"%d" % i, headers) for i, headers in enumerate(levels)))


def kill(orders: Declared, _: int) -> str:
    orders.kill(random.choice(orders.pods()))
    return ""


def scale(orders: Declared, number: int) -> str:
    orders.scale(1 + number % 2)
    return ""


def grow(orders: Declared, _: int) -> str:
    orders.apply(partitions=orders.spec["partitions"] + 1).wait_ready()
    return ""


def edit(orders: Declared, number: int) -> str:
    orders.apply(delaySeconds=[*DELAY_SECONDS[:2], DELAY_SECONDS[2] + number]).wait_ready()
    return ""


def remove_old(orders: Declared, number: int) -> str:
    """Deletes the records before the offsets at which the previous audit began to read, as retention would. The next audit begins at
    these offsets or later."""
    window = orders.window(orders.audit_resource(f"link-{number - 1}")["status"])
    for topic in window.end_offsets:
        orders.kafka.remove_before(topic, dict(enumerate(window.read_from(topic))))
    return ""


def steal(orders: Declared) -> str:
    """Moves the committed offset of the group past a record."""
    orders.wait_front_settled()
    with stopped(orders):
        record = add_one(orders, level=1)
        move_offset(orders, 0, record.offset + 1)
    return f"f:0:{record.offset}"


def repeat(orders: Declared) -> str:
    """Copies a release that an earlier audit has already accounted for."""
    release = next(r for r in orders.kafka.read(orders.names.ready) if (r.header(own.ORIGIN) or b"").startswith(b"f:"))
    orders.kafka.copy(release, to=orders.names.ready, partition=release.partition)
    return (release.header(own.ORIGIN) or b"").decode()


def release_early(orders: Declared) -> str:
    """Releases a record before its due time, in place of the worker."""
    orders.wait_front_settled()
    with stopped(orders):
        record = add_one(orders, level=3)
        root = root_of(orders, record)
        due_at_ms = record.timestamp_ms + 1000 * orders.spec["delaySeconds"][2]
        headers = copies.release(
            record.headers, root=root, origin=origin_of(record), due_at_ms=due_at_ms, released_at_ms=record.timestamp_ms
        )
        orders.kafka.copy(record, to=orders.names.ready, headers=headers, partition=0)
        released_at = orders.kafka.ends(orders.names.ready)[0] - 1
        move_offset(orders, 0, record.offset + 1)
    return f"r:0:{released_at}"


def bury(orders: Declared) -> str:
    """Makes a dead letter of a record that was never retried, in place of the worker."""
    orders.wait_front_settled()
    with stopped(orders):
        record = add_one(orders, level=1)
        headers = copies.dead_letter(
            record.headers,
            root=root_of(orders, record),
            origin=origin_of(record),
            reason=DeadLetterReason.RETRY_CAP_EXCEEDED,
            error=b"by hand",
        )
        orders.kafka.copy(record, to=orders.names.dead_letter, headers=headers, partition=0)
        move_offset(orders, 0, record.offset + 1)
    return f"f:0:{record.offset}"


def add_one(orders: Declared, *, level: int) -> Record:
    """Produces a record that is the next one for a worker in partition 0 of the front topic, and returns it."""
    committed = orders.kafka.committed(orders.names.group)[orders.topic, 0].offset
    orders.kafka.produce(orders.topic, [(b"by-hand", b"v", ((own.DELAY_LEVEL, b"%d" % level),))], partition=0)
    of_partition = [record for record in orders.kafka.read(orders.topic) if record.partition == 0]
    assert of_partition[-1].offset == committed, "the workers had not settled partition 0"
    return of_partition[-1]


def root_of(orders: Declared, record: Record) -> own.Root:
    return own.Root("f", record.partition, record.offset, orders.kafka.topic_ids(orders.topic)[orders.topic])


def origin_of(record: Record) -> bytes:
    return own.origin("f", record.partition, record.offset)
