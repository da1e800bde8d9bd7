"""Produces records over all delays while a test disturbs the workers, and checks what became of the records."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from delayed_topics_devcluster.pace import paced

from delayed_topics_worker_testing.harness import DeclaredTopic, Seen


@contextmanager
def steady_load(orders: DeclaredTopic, *, per_second: int = 1000, levels: int = 3) -> Iterator[list[int]]:
    """Produces over all delays until the block ends. Yields the growing list of the records' numbers."""
    sent: list[int] = []

    def produce(n: int) -> None:
        orders.produce(b"%d" % n, key=b"%d" % n, headers=[("dt-delay-level", b"%d" % (n % levels + 1))])
        sent.append(n)

    with paced(produce, lambda: per_second):
        yield sent
    orders.flush()


def all_ready(orders: DeclaredTopic, sent: list[int], *, timeout_seconds: float = 300) -> list[Seen]:
    """Waits until every record is released, and fails if one is missing or early. Returns the records, duplicates included."""
    deadline = time.monotonic() + timeout_seconds
    with orders.harness.reader(orders.names.ready) as read:
        while len({r.value for r in read()}) < len(sent) and time.monotonic() < deadline:
            pass
        time.sleep(0.5)  # duplicates come late if at all
        ready = list(read())
    missing = sorted(set(sent) - {int(r.value or b"") for r in ready})
    assert not missing, f"{len(missing)} of {len(sent)} are not out after {timeout_seconds:g} s: {missing[:10]} …"
    assert min(r.late_ms for r in ready) >= 0, "early"
    return ready


def doubled(ready: list[Seen]) -> int:
    counts = Counter((r.header("dt-root"), r.header("dt-attempt")) for r in ready)
    assert len(counts) == len({r.value for r in ready}), "a double has the same root and attempt"
    return sum(counts.values()) - len(counts)
