"""The engine decides as Python does, and writes the same copies."""

from random import Random
from typing import Literal

import delayed_topics_engine as engine
import pytest
from delayed_topics_core.headers import OWN_HEADERS, Header
from delayed_topics_core.partitioner import partition_for_key
from delayed_topics_worker_testing.differential import Case, compare
from delayed_topics_worker_testing.differential_cases import NOW_MS, NUMBERS, POOLS, Cases, random_setting
from hypothesis import given
from hypothesis import strategies as st

settings = st.integers(0, 2**32).map(lambda seed: random_setting(Random(seed)))
names = st.sampled_from(sorted(OWN_HEADERS)) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
times_ms = st.integers(NOW_MS - 4_000_000, NOW_MS + 4_000_000)


@st.composite
def header(draw: st.DrawFn) -> Header:
    name = draw(names)
    return name, draw(st.sampled_from(POOLS.get(name, NUMBERS)) | st.none() | st.binary(max_size=24))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    setting = draw(settings)
    door: Literal["f", "d"] = draw(st.sampled_from(("f", "d")))
    highest = 2**31 - 1 if door == "f" else setting.policy.layout.partition_count - 1
    now_ms = draw(times_ms)
    return Case(
        setting=setting,
        door=door,
        partition=draw(st.integers(0, highest)),
        offset=draw(st.integers(0, 2**63 - 2)),
        appended_at_ms=draw(st.none() | times_ms),
        key=draw(st.none() | st.binary(max_size=20)),
        value=draw(st.none() | st.binary(max_size=5)),
        headers=draw(st.none() | st.lists(header(), max_size=8)),
        now_ms=now_ms,
        later_ms=now_ms + draw(st.integers(0, 4_000_000)),
    )


@given(cases())
def test_any_headers_have_the_same_outcome(case: Case) -> None:
    list(compare(case))


@given(st.integers(0, 2**32))
def test_what_clients_and_workers_write_has_the_same_outcome(seed: int) -> None:
    drawn = Cases(Random(seed))
    for _ in range(20):
        list(compare(drawn.draw()))


@given(st.binary(min_size=1, max_size=40), st.integers(1, 100))
def test_a_key_finds_the_same_partition(key: bytes, partitions: int) -> None:
    policy = engine.Policy(delay_seconds=[0], partition_delays=[0], retry_cap=0, ready_partitions=partitions)
    direct = engine.Record(
        delay_seconds=0, partition=0, offset=0, topic_id="", appended_at_ms=NOW_MS, key=key, headers=[]
    )
    wait = engine.decide(direct, policy, NOW_MS)
    assert isinstance(wait, engine.Wait)
    assert wait.ready_partition == partition_for_key(key, partitions)


def test_a_header_name_may_be_any_bytes() -> None:
    policy = engine.Policy(delay_seconds=[0], partition_delays=[0], retry_cap=0, ready_partitions=1)
    foreign = [(b"\xff\xfe", b"1"), (b"dt-id\x00", None), (b"", b"")]
    record = engine.Record(
        delay_seconds=None, partition=0, offset=7, topic_id="id", appended_at_ms=NOW_MS, key=None, headers=foreign
    )
    wait = engine.decide(record, policy, NOW_MS)
    assert isinstance(wait, engine.Wait)
    copy = engine.release(record, wait, NOW_MS)
    assert copy.headers[:3] == foreign
    assert copy.headers[3:] == [
        (b"dt-id", b"f:0:7:id"),
        (b"dt-attempt", b"0"),
        (b"dt-root", b"f:0:7:id"),
        (b"dt-origin", b"f:0:7"),
        (b"dt-due-at", b"%d" % NOW_MS),
        (b"dt-released", b"0:%d" % NOW_MS),
        (b"dt-hops", b"0"),
    ]


def test_what_is_not_due_is_not_released() -> None:
    policy = engine.Policy(delay_seconds=[0], partition_delays=[0], retry_cap=0, ready_partitions=1)
    record = engine.Record(
        delay_seconds=None, partition=0, offset=7, topic_id="id", appended_at_ms=NOW_MS, key=None, headers=[]
    )
    wait = engine.decide(record, policy, NOW_MS - 5)
    assert isinstance(wait, engine.Wait)
    with pytest.raises(ValueError, match="must not be released"):
        engine.release(record, wait, NOW_MS - 1)
    assert engine.release(record, wait, NOW_MS).target == "ready"


@pytest.mark.parametrize(("delays", "partitions"), [([], [0]), ([0, 5], [0])])
def test_a_layout_that_has_no_partition_for_a_delay_is_refused(delays: list[int], partitions: list[int]) -> None:
    with pytest.raises(ValueError, match="must have"):
        engine.Policy(delay_seconds=delays, partition_delays=partitions, retry_cap=0, ready_partitions=1)
