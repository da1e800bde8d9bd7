"""Records of one front partition and one delay leave in the order in which they came, on the short ways and the long one."""

from typing import Any, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from delayed_topics_core.headers import Header, OwnHeaders, Root, write_hop
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.registry import LayoutRecord, Owner
from delayed_topics_core.window import Window
from delayed_topics_worker.metrics import Lateness
from delayed_topics_worker.outbox import Outbox
from delayed_topics_worker.owned import Held, Owned
from delayed_topics_worker.release import Releaser
from delayed_topics_worker.served import Served
from hypothesis import given
from hypothesis import strategies as st

START_MS = 1_700_000_000_000


class Recorder:
    """Stands for the producer: which records were copied, to which topic, in order."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []

    def produce(self, topic: str, value: bytes, *_: Any) -> None:
        self.sent.append((topic, value))


def a_partition(topic: str) -> Owned:
    served = Served.of("orders")
    served.layout = LayoutRecord(
        topic="orders",
        owner=Owner("c", "n", "o"),
        state="serving",
        layout=initial(LayoutSpec(delay_seconds=(0, 1, 2), partitions=4)),
        retry_cap=3,
        front_partitions=1,
        ready_partitions=1,
        group="g",
    )
    served.policy = served.layout.policy
    owned = Owned(served, topic, 3, generation=1, assigned_at=0)
    owned.window = Window(0)
    return owned


def arrive(owned: Owned, offset: int, line: bytes, headers: list[Header], at_ms: int) -> None:
    message = Message(
        topic=owned.topic,
        partition=3,
        offset=offset,
        value=b"%b:%d" % (line, offset),
        timestamp=(TIMESTAMP_LOG_APPEND_TIME, at_ms),
    )
    owned.arrived.append(Held(owned, offset, message, headers))


def drain(owned: Owned, batches: list[tuple[int, list[Any]]], put: Any) -> list[tuple[str, bytes]]:
    """Batches arrive, time goes on by so many milliseconds after each, the worker works after each."""
    recorder = Recorder()
    releaser = Releaser(Outbox(lambda _: cast(Any, recorder)), Lateness())
    now_ms, offset = START_MS, 0
    for passes_ms, batch in batches:
        for what in batch:
            put(offset, what, now_ms)
            offset += 1
        now_ms += passes_ms
        releaser.work(owned, now_ms - 3)  # the cautious bound lags behind
        owned.uncommitted = 0
    for _ in range(offset + 1):
        releaser.work(owned, now_ms + 5000)
        owned.uncommitted = 0
    assert len(recorder.sent) == offset
    return recorder.sent


def in_order(sent: list[tuple[str, bytes]]) -> bool:
    lines: dict[tuple[str, bytes], list[int]] = {}
    for topic, value in sent:
        line, _, offset = value.partition(b":")
        lines.setdefault((topic, line), []).append(int(offset))
    return all(line == sorted(line) for line in lines.values())


steps = st.integers(0, 20)
front_lines = st.sampled_from([b"0", b"1", b"2", b"3"])


@given(st.lists(st.tuples(steps, st.lists(st.tuples(front_lines, st.booleans()), max_size=8)), max_size=8))
def test_at_the_front(batches: list[tuple[int, list[Any]]]) -> None:
    owned = a_partition("orders")

    def put(offset: int, what: tuple[bytes, bool], now_ms: int) -> None:
        level, long_way = what
        headers: list[Header] = [("dt-delay-level", level)] if level != b"0" else []
        line = b"1" if level == b"0" else level  # no level is the first one
        arrive(owned, offset, line, [*headers, *([("dt-group", b"billing")] if long_way else [])], now_ms)

    assert in_order(drain(owned, batches, put))


@given(st.lists(st.tuples(steps, st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=8)), max_size=8))
def test_in_a_delays_partition(batches: list[tuple[int, list[Any]]]) -> None:
    owned = a_partition("orders.delays")

    def put(offset: int, what: tuple[int, bool], now_ms: int) -> None:
        front_partition, long_way = what
        own = OwnHeaders(attempt=1, group=b"billing") if long_way else OwnHeaders()
        root = Root("f", front_partition, offset, "AbC")
        headers = write_hop([("a", b"")], own, root=root, origin=b"f:0:0", due_at_ms=now_ms + 30 - front_partition * 15)
        arrive(owned, offset, b"%d" % front_partition, headers, now_ms)

    assert in_order(drain(owned, batches, put))
