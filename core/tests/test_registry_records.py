"""The registry's records: the owner of each topic, and that every record can be decoded again."""

import gzip
import json
import sys
from dataclasses import MISSING, fields, replace

import pytest
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.carried import Carried
from delayed_topics_core.delay_list import DelayList
from delayed_topics_core.errors import IllegalTopicName, UnreadableRecord
from delayed_topics_core.events import Event
from delayed_topics_core.handover import Handover
from delayed_topics_core.layout import LayoutSpec, evolve, initial
from delayed_topics_core.names import MAX_FRONT_NAME_LENGTH, TopicNames, check_topic_name
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_core.registry import (
    AuditedRecord,
    Claim,
    Owner,
    RegistryRecord,
    TopicsRecord,
    decode,
    encode,
)
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core.settings import creation_mark, topic_settings
from delayed_topics_core_testing.served import serving
from hypothesis import given
from hypothesis import strategies as st

SHOP = Owner("cluster-1", "shop", "orders")
EVIL = Owner("cluster-1", "evil", "orders")
LAYOUT = evolve(
    initial(LayoutSpec(delay_seconds=(0, 10), partitions=4)),
    LayoutSpec(delay_seconds=(0, 60), partitions=6, lanes_per_delay=2),
)


SERVING = serving("orders", LAYOUT, owner=SHOP)


def claim(topic: str, owner: Owner) -> Claim:
    return Claim(topic=topic, owner=owner)


def test_what_is_served_while_another_layout_is_planned_is_the_one_before() -> None:
    planned = replace(SERVING, state="planned", before=replace(SERVING, paused=True))
    assert decode(planned.key, encode(planned)) == planned
    assert planned.served == planned.before
    assert SERVING.served == SERVING
    assert replace(SERVING, state="planned").served is replace(SERVING, state="retired").served is None


@pytest.mark.parametrize("ranges", ["0-9999999999", "0-60000,60001-120000"])
def test_a_layout_of_more_partitions_than_there_can_be_is_unreadable_before_it_fills_the_memory(ranges: str) -> None:
    body = json.loads(encode(SERVING))
    body["kinds"][0]["partitions"] = ranges
    with pytest.raises(UnreadableRecord, match="more than 100000 numbers"):
        decode(SERVING.key, json.dumps(body).encode())


def test_a_record_that_is_nested_too_deep_is_unreadable() -> None:
    with pytest.raises(UnreadableRecord):
        decode("layout/orders", b"[" * 100_000)
    with pytest.raises(UnreadableRecord):
        Event.decode(b"[" * 100_000)


def test_whose_topic_it_is_follows_claims_that_come_and_go_and_a_copy_stays_as_it_was() -> None:
    read = state(claim("orders", SHOP), claim("orders", EVIL))
    assert read.holder("orders") == claim("orders", SHOP)
    before = read.copy()
    read.apply(2, claim("orders", SHOP).key, None)
    assert read.holder("orders") == claim("orders", EVIL)
    read.apply(3, claim("orders", SHOP).key, encode(claim("orders", SHOP)))
    assert read.holder("orders") == claim("orders", EVIL)
    assert before.holder("orders") == claim("orders", SHOP)


def state(*records: RegistryRecord) -> RegistryState:
    read = RegistryState()
    for offset, record in enumerate(records):
        read.apply(offset, record.key, encode(record))
    return read


RECORDS: list[RegistryRecord] = [
    Claim(topic="orders", owner=SHOP, adopted=True, mark=86_400_001),
    Claim(topic="orders", owner=SHOP, epoch=2, taken_from=EVIL, taken_at_ms=1_700_000_000_000),
    replace(
        SERVING,
        state="planned",
        paused=True,
        compression="zstd",
        broker_skew_ms=5,
        highest_retry_cap=7,
        least_ready_partitions=2,
        exactly_once_from_ms=12,
        lists=(
            DelayList(delay_seconds=(0, 10), retry_cap=7, from_ms=0),
            DelayList(delay_seconds=(0, 60), retry_cap=5, from_ms=9),
        ),
        ready_topics=(AllowedTopic("invoices", 3), AllowedTopic("shipments", 4, 9)),
        outage_budget_seconds=60,
        ready_topics_forgotten_ms=2,
        max_delay_seconds=3600,
        workers=3,
        control=True,
        before=SERVING,
    ),
    AuditedRecord(
        topic="orders",
        ids={"orders": "abc"},
        offsets={"orders": (5, 6)},
        since_ms=7,
        ready_partitions=2,
        ends={"orders.ready": (8, 9)},
        carried=Carried(folder="orders-audit-0a1b2c3d", sha256="ab"),
        made_again=("invoices",),
    ),
    TopicsRecord(
        topic="orders",
        ids={"orders": "abc"},
        start_offsets={"orders": (0, 7)},
        begun={"orders": 1},
        made_again=("orders.ready",),
        handover=Handover(group="shared", positions={"orders": (OffsetAndMetadata(7, "!"), None)}),
        mirrored_from={"orders": "xyz"},
    ),
]


def test_each_field_that_may_be_missing_in_a_record_is_not_missing_in_one_of_these() -> None:
    for kind in {type(record) for record in RECORDS}:
        for field in fields(kind):
            default = field.default if field.default is not MISSING else field.default_factory
            missing = default() if callable(default) else default
            is_set = [getattr(record, field.name) != missing for record in RECORDS if type(record) is kind]
            assert any(is_set), f"{kind.__name__}.{field.name}"


@pytest.mark.parametrize("record", RECORDS)
def test_every_record_reads_back(record: RegistryRecord) -> None:
    assert decode(record.key, encode(record)) == record


@pytest.mark.parametrize("record", RECORDS)
def test_a_field_that_is_missing_makes_a_record_unreadable_and_one_of_a_newer_writer_does_not(
    record: RegistryRecord,
) -> None:
    body = json.loads(encode(record))
    assert decode(record.key, json.dumps({**body, "newer": 1}).encode()) == record
    for name in body:
        without = {field: value for field, value in body.items() if field != name}
        with pytest.raises(UnreadableRecord, match=f"registry record '{record.key}' has no field '{name}'"):
            decode(record.key, json.dumps(without).encode())


def test_the_first_claim_by_offset_holds_all_four_names() -> None:
    read = state(claim("orders", SHOP), claim("orders", EVIL))
    assert read.holder("orders") == claim("orders", SHOP)
    read.apply(2, claim("orders", SHOP).key, None)
    assert read.holder("orders") == claim("orders", EVIL)


def test_a_claim_written_again_keeps_its_first_place() -> None:
    read = state(claim("orders", SHOP), claim("orders", EVIL), claim("orders", SHOP))
    assert read.holder("orders") == claim("orders", SHOP)


def test_names_that_kafka_takes_for_the_same_collide() -> None:
    read = state(claim("shop.orders", SHOP))
    assert read.holder("shop_orders") == claim("shop.orders", SHOP)
    assert read.holder("shop-orders") is None


def test_a_loser_blocks_nobody_else() -> None:
    read = state(claim("a.b", SHOP), claim("a_b", EVIL), claim("c", EVIL))
    assert read.holder("c") == claim("c", EVIL)
    assert read.holder("a_b") == claim("a.b", SHOP)


def test_a_copy_stays_as_it_is() -> None:
    read = state(claim("orders", SHOP))
    copy = read.copy()
    read.apply(1, claim("returns", EVIL).key, encode(claim("returns", EVIL)))
    read.apply(2, claim("orders", SHOP).key, None)
    assert (copy.holder("orders"), copy.holder("returns")) == (claim("orders", SHOP), None)
    assert (read.holder("orders"), read.holder("returns")) == (None, claim("returns", EVIL))


CLAIMS = tuple(
    claim(topic, Owner("cluster-1", namespace, "orders"))
    for topic in ("a.b", "a_b", "a.b.ready.x", "a_b_ready_x", "c", "c-d")
    for namespace in ("shop", "evil", "billing")
)


@given(steps=st.lists(st.tuples(st.sampled_from(CLAIMS), st.booleans()), max_size=30))
def test_holders_are_those_of_a_registry_that_is_read_from_the_beginning(steps: list[tuple[Claim, bool]]) -> None:
    """This holds after each claim and each removal, whether or not the holders were looked up in between."""
    followed, records = RegistryState(), list[tuple[str, bytes | None]]()
    for offset, (claimed, removed) in enumerate(steps):
        records.append((claimed.key, None if removed else encode(claimed)))
        followed.apply(offset, *records[-1])
        anew = RegistryState()
        for at, record in enumerate(records):
            anew.apply(at, *record)
        assert [followed.holder(c.topic) for c in CLAIMS] == [anew.holder(c.topic) for c in CLAIMS]


def test_a_holder_is_found_without_a_look_at_all_claims() -> None:
    """The test counts calls instead of seconds, as times vary."""

    def calls(claims: int) -> int:
        read = state(*(claim(f"orders-{n}", Owner("cluster-1", "shop", f"orders-{n}")) for n in range(claims)))
        read.holder("orders-0")
        counted = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            read.holder("orders-5")
        finally:
            sys.setprofile(before)
        return counted

    assert calls(1000) == calls(10)


@pytest.mark.parametrize(
    ("key", "value"), [("layout/x", b"{}"), ("claim/x/y", b"not json"), ("other/x", b"{}"), ("topics/x", b"[]")]
)
def test_a_damaged_record_is_an_error_and_counts_as_read(key: str, value: bytes) -> None:
    read = RegistryState()
    with pytest.raises(UnreadableRecord, match="registry"):
        read.apply(41, key, value)
    assert read.next_offset == 42


@pytest.mark.parametrize(
    "topic",
    [
        "",
        ".",
        "..",
        "a b",
        "ä",
        "a/b",
        "delayedtopics.x",
        "__consumer_offsets",
        "x.ready",
        "x.dead",
        "x.delays",
        "x.control",
        "a" * 242,
    ],
)
def test_an_illegal_topic_name_says_what_it_must_be(topic: str) -> None:
    with pytest.raises(IllegalTopicName, match="must"):
        check_topic_name(topic)


def test_the_longest_name_leaves_room_for_its_suffixes() -> None:
    names = TopicNames.of("a" * MAX_FRONT_NAME_LENGTH)
    assert max(len(name) for name in names.possible) == 249


def test_retention_outlives_the_longest_delay_the_outage_and_two_audits() -> None:
    def retention(role: str) -> int:
        settings = topic_settings(
            role=role,  # type: ignore[arg-type]
            delay_seconds=(0, 600),
            outage_budget_seconds=3600,
            dead_letter_retention_seconds=10**6,
            replication_factor=3,
        )
        assert (settings["min.insync.replicas"], settings["message.timestamp.type"]) == ("2", "LogAppendTime")
        return int(settings["retention.ms"])

    assert retention("front") == retention("ready") == (600 + 3600 + 2 * 86_400) * 1000
    assert retention("dead-letter") == 10**9


def test_a_frozen_window_reads_back_and_a_damaged_one_is_an_error() -> None:
    offsets = {"orders": (1, 2), "orders.delays": (3,)}
    window = AuditWindow(
        topic="orders",
        topic_ids={"orders": "abc"},
        partition_delays=(0, 10),
        delay_lists=(DelayList(delay_seconds=(0, 10), retry_cap=3, from_ms=0),),
        ready_partitions=2,
        least_ready_partitions=1,
        retry_cap=3,
        max_lateness_ms=1000,
        broker_skew_ms=0,
        frozen_at_ms=1,
        from_offsets=offsets,
        roots_from_offsets={},
        committed_offsets=offsets,
        end_offsets=offsets,
        beginning_offsets=offsets,
        to_offsets=offsets,
    )
    assert AuditWindow.decode(window.encode()) == window
    with pytest.raises(UnreadableRecord, match="frozen window"):
        AuditWindow.decode(gzip.compress(b"{}"))
    for damaged in (
        b"",
        b"{}",
        gzip.decompress(window.encode()),
        window.encode()[:-9],
        window.encode()[:20] + bytes(20),
        replace(window, delay_lists=()).encode(),
    ):
        with pytest.raises(UnreadableRecord, match="frozen window"):
            AuditWindow.decode(damaged)


def test_each_resource_has_a_mark_of_its_own_that_is_never_kafkas_default() -> None:
    marks = [creation_mark(f"uid-{n}") for n in range(1000)]
    assert len(set(marks)) == 1000
    assert min(marks) > 86_400_000
    assert max(marks) < 2 * 365 * 86_400_000
