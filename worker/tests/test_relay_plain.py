"""The short ways of a record have the outcome of the long one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from delayed_topics_core.headers import Header
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.registry import LayoutRecord, Owner
from delayed_topics_core.routing import Wait
from delayed_topics_worker.copies import copy_of, decide
from delayed_topics_worker.metrics import Lateness
from delayed_topics_worker.outbox import Outbox
from delayed_topics_worker.owned import Held, Owned
from delayed_topics_worker.plain import release_shelved, send_front, shelve_hops
from delayed_topics_worker.served import Served
from hypothesis import given
from hypothesis import strategies as st

NOW_MS = 1_700_000_000_000


class Stub:
    """A message, which only the client library can make."""

    def __init__(
        self, key: bytes | None, value: bytes | None, at_ms: int, kind: int = TIMESTAMP_LOG_APPEND_TIME
    ) -> None:
        self._key, self._value, self._at_ms, self._kind = key, value, at_ms, kind

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return self._kind, self._at_ms

    def __len__(self) -> int:
        return len(self._value or b"")


class Recorder:
    """Stands for the producer."""

    def __init__(self) -> None:
        self.produced: list[tuple[Any, ...]] = []

    def produce(self, *arguments: Any) -> None:
        topic, value, key, partition, _, _, _, headers = arguments
        self.produced.append((topic, partition, key, value, headers))


def owned_partition(topic: str, partition: int, delays: tuple[int, ...] = (0, 10)) -> Owned:
    served = Served.of("orders")
    layout = initial(LayoutSpec(delay_seconds=delays, partitions=4))
    served.layout = LayoutRecord(
        topic="orders",
        owner=Owner("c", "n", "o"),
        state="serving",
        layout=layout,
        retry_cap=3,
        front_partitions=3,
        ready_partitions=2,
        group="g",
    )
    served.policy = served.layout.policy
    owned = Owned(served, topic, partition, generation=1, assigned_at=0)
    owned.topic_id = "AbC-_12"
    return owned


def arrive(owned: Owned, offset: int, headers: Sequence[Header] | None, **message: Any) -> Held:
    stub = Stub(**{"key": None, "value": b"v", "at_ms": NOW_MS, **message})
    held = Held(owned, offset, cast(Message, stub), headers)
    owned.arrived.append(held)
    return held


def send(owned: Owned, now_ms: int = NOW_MS) -> list[tuple[Any, ...]]:
    """The copies that were made on the short ways."""
    recorder = Recorder()
    outbox = Outbox(lambda _: cast(Any, recorder))
    policy = owned.served.policy
    assert policy is not None
    if owned.door == "f":
        send_front(outbox, Lateness(), owned, policy, now_ms, 10)
    else:
        shelve_hops(owned, policy)
    release_shelved(outbox, Lateness(), owned, policy, now_ms, 10)
    assert len(recorder.produced) == len(owned.outstanding) == owned.uncommitted == outbox.outstanding
    return recorder.produced


def the_long_way(held: Held, now_ms: int = NOW_MS) -> tuple[Any, ...]:
    policy = held.owned.served.policy
    assert policy is not None
    return tuple(copy_of(held, decide(held, policy, now_ms), now_ms))


names = st.sampled_from(["trace", "", "größe", "dtx", "Dt-id"])
plain_headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=5)), max_size=4)
any_bytes = st.none() | st.binary(max_size=5)


levels = st.sampled_from([b"1", b"2", b"3", b"999"]).map(lambda value: ("dt-delay-level", value))
front_headers = st.tuples(plain_headers, st.lists(levels, max_size=1), plain_headers).map(
    lambda t: [*t[0], *t[1], *t[2]]
)


@given(
    front_headers,
    any_bytes,
    any_bytes,
    st.integers(0, 2**40),
    st.integers(0, 2),
    st.integers(0, 50_000),
    st.sampled_from([(0, 10), (10, 0), (10, 5), (1, 3600)]),
)
def test_a_record_without_own_headers_but_a_level_is_sent_as_on_the_long_way(
    headers: list[Header],
    key: bytes | None,
    value: bytes | None,
    offset: int,
    partition: int,
    age_ms: int,
    delays: tuple[int, ...],
) -> None:
    owned = owned_partition("orders", partition, delays)
    held = arrive(owned, offset, headers, key=key, value=value, at_ms=NOW_MS - age_ms)
    assert owned.served.policy is not None
    decision = decide(held, owned.served.policy, NOW_MS)
    waits_ms = decision.turn_at_ms - NOW_MS if isinstance(decision, Wait) else 0

    produced = send(owned)

    assert not owned.arrived
    if waits_ms > 0:
        assert produced == []
        assert owned.shelf.next_turn_ms == NOW_MS + waits_ms
        produced = send(owned, NOW_MS + waits_ms)
        assert produced == [the_long_way(held, NOW_MS + waits_ms)]
    else:
        assert produced == [the_long_way(held)]


small = st.sampled_from([b"0", b"1", b"12", b"999", b"1000", b"007", b"", b"-1", None])
wrong_roots = b"f:01:17:AbC f:1:017:AbC g:1:1:x f:1:1 f:1:1:x:y f:1::x f:70000:1:x".split()
too_much = [b"f:1:9223372036854775808:x", b"f:1:1:" + b"x" * 251]
roots = st.sampled_from([b"f:1:17:AbC", b"d:2:0:x", *wrong_roots, *too_much, "f:1:1:é".encode(), b"", None])
dues = st.sampled_from([b"%d" % (NOW_MS + n) for n in (-50_000, -1, 0, 1, 500, 5000, 10**13)])
hop_headers = st.tuples(
    st.tuples(st.just("dt-id"), st.sampled_from([b"f:1:17:AbC", b"order-7", b"", b"\xe9", b"x" * 300, None])),
    st.tuples(st.just("dt-attempt"), small),
    st.tuples(st.just("dt-root"), roots),
    st.tuples(st.just("dt-origin"), st.sampled_from([b"f:1:17", None])),
    st.tuples(st.just("dt-due-at"), dues | st.sampled_from([b"0", b"01700000000000", b"x", None])),
    st.tuples(st.just("dt-hops"), small),
)
mostly_right = st.tuples(
    st.just(("dt-id", b"f:1:17:AbC")),
    st.just(("dt-attempt", b"1")),
    st.tuples(st.just("dt-root"), st.sampled_from([b"f:1:17:AbC", b"d:2:0:x"])),
    st.just(("dt-origin", b"f:1:17")),
    st.tuples(st.just("dt-due-at"), dues),
    st.just(("dt-hops", b"1")),
)
further = st.lists(
    st.tuples(names | st.sampled_from(["dt-id", "dt-group", "dt-released", "dt-error"]), st.just(b"1")), max_size=2
)


@given(plain_headers, st.one_of(mostly_right, hop_headers), further, st.integers(0, 3), st.randoms(), st.booleans())
def test_a_hop_is_released_as_on_the_long_way(
    before: list[Header], hop: tuple[Header, ...], after: list[Header], partition: int, random: Any, shuffle: bool
) -> None:
    headers = [*before, *hop, *after]
    if shuffle:
        random.shuffle(headers)
    owned = owned_partition("orders.delays", partition)
    held = arrive(owned, 5, headers, at_ms=NOW_MS - 11_000)
    assert owned.served.policy is not None
    decision = decide(held, owned.served.policy, NOW_MS)

    produced = send(owned)

    if owned.arrived:
        assert produced == []  # the long way is taken
    else:
        assert isinstance(decision, Wait)
        assert produced == ([the_long_way(held)] if decision.due_at_ms <= NOW_MS else [])
        assert produced or owned.shelf.next_turn_ms == decision.turn_at_ms


def test_what_a_worker_writes_for_a_plain_record_takes_the_short_way() -> None:
    front = owned_partition("orders", 1, (10, 0))
    arrive(front, 7, [("trace", b"1")])
    [(topic, partition, key, value, headers)] = send(front)
    assert topic == front.outstanding[0].target == "orders.delays"

    delays = owned_partition(topic, partition, (10, 0))
    held = arrive(delays, 3, headers, key=key, value=value, at_ms=NOW_MS + 5)
    assert send(delays, NOW_MS + 9_999) == []
    assert send(delays, NOW_MS + 10_000) == [the_long_way(held, NOW_MS + 10_000)]


further_names = st.sampled_from(["dt-attempt", "dt-id", "dt-released", "dt-root"])
wrong_levels = st.sampled_from([b"0", b"01", b"", b"-1", None]).map(lambda value: [("dt-delay-level", value)])
two_levels = st.just([("dt-delay-level", b"1"), ("dt-delay-level", b"1")])


@given(st.one_of(further_names.map(lambda name: [(name, b"1")]), wrong_levels, two_levels))
def test_other_own_headers_need_more_thought(headers: list[Header]) -> None:
    owned = owned_partition("orders", 0)
    arrive(owned, 0, [])
    held = arrive(owned, 1, [("a", b""), *headers])
    behind = arrive(owned, 2, [])

    assert len(send(owned)) == 1
    assert list(owned.arrived) == [held, behind]


def test_unreadable_headers_and_a_producers_clock_need_more_thought() -> None:
    for topic in ("orders", "orders.delays"):
        owned = owned_partition(topic, 0)
        held = arrive(owned, 0, None)
        assert send(owned) == []
        assert list(owned.arrived) == [held]

        owned = owned_partition(topic, 0)
        held = arrive(owned, 0, [], kind=TIMESTAMP_CREATE_TIME)
        assert send(owned) == []
        assert list(owned.arrived) == [held]


def test_a_paused_topic_releases_nothing_and_forgets_nothing() -> None:
    owned = owned_partition("orders", 0)
    assert owned.served.layout is not None
    owned.served.layout = replace(owned.served.layout, paused=True)
    arrive(owned, 0, [], at_ms=NOW_MS - 10)
    policy = owned.served.policy
    assert policy is not None

    sent = send_front(Outbox(lambda _: cast(Any, Recorder())), Lateness(), owned, policy, NOW_MS, 10)

    assert sent == 0
    assert owned.waiting == 1
