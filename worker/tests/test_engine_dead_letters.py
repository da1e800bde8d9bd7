"""A dead letter keeps each `dt-` header of its record that a client may set and that can be read."""

from collections.abc import Sequence

import delayed_topics_engine as engine
from delayed_topics_core.headers import Header
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_worker_testing.engine_records import NOW_MS, TOPIC_ID, Case, Setting

SETTING = Setting(initial(LayoutSpec(delay_seconds=(0, 10, 60), partitions=4)), retry_cap=100, ready_partitions=4)


def decided(headers: Sequence[Header], *, setting: Setting = SETTING) -> engine.Copy:
    case = Case(
        setting=setting,
        topic_letter="f",
        partition=3,
        offset=17,
        appended_at_ms=NOW_MS,
        headers=headers,
        now_ms=NOW_MS,
        later_ms=NOW_MS,
    )
    found = engine.decide(case.record(), setting.policy, NOW_MS)
    assert isinstance(found, engine.Copy)
    return found


GOOD: list[Header] = [
    ("dt-id", b"payment-77"),
    ("dt-attempt", b"2"),
    ("dt-group", b"billing"),
    ("dt-deliver-at", b"1900000000000"),
    ("dt-delay-level", b"3"),
    ("dt-target", b"invoices"),
    ("dt-created-at", b"5"),
    ("dt-done-at", b"6"),
]


def test_of_a_record_that_is_refused_for_one_header_the_others_are_kept() -> None:
    for name, value in GOOD:
        others = [header for header in GOOD if header[0] != name]
        twice = decided([*GOOD, (name, value)])
        assert twice.reason == "HeaderTwice"
        unreadable = decided([*others, (name, b"")])
        assert unreadable.reason == "HeaderUnreadable"
        root = f"f:3:17:{TOPIC_ID}".encode()
        absent = {"dt-id": root, "dt-attempt": b"0"}.get(name)
        for copy in (twice, unreadable):
            found = {header: content for header, content in copy.headers if header.decode() in dict(GOOD)}
            kept = {header.encode(): content for header, content in others}
            assert found == kept | ({} if absent is None else {name.encode(): absent}), name


def test_a_dead_letter_without_readable_headers_has_its_root_as_its_id() -> None:
    record = engine.Record(
        delay_seconds=None, partition=3, offset=17, topic_id=TOPIC_ID, appended_at_ms=NOW_MS, key=None, headers=None
    )
    copy = engine.decide(record, SETTING.policy, NOW_MS)
    assert isinstance(copy, engine.Copy)
    assert dict(copy.headers)[b"dt-id"] == copy.root
