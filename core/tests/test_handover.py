"""The offset at which a consumer group continues after another group: the further of their two commits."""

import base64
import zlib
from dataclasses import replace

import pytest
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.handover import Handover, further
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.registry import TopicsRecord, decode, encode
from hypothesis import given
from hypothesis import strategies as st

HANDOVER = Handover(
    group="g", positions={"orders": (OffsetAndMetadata(7, "dt1::id"), None), "orders.delays": (OffsetAndMetadata(0),)}
)


def committed(finished: set[int]) -> OffsetAndMetadata:
    """Returns the commit that workers write for a partition of which these offsets are finished."""
    lowest = next(offset for offset in range(len(finished) + 1) if offset not in finished)
    above = [offset - lowest - 1 for offset in finished if offset > lowest]
    bitmap = sum(1 << bit for bit in above).to_bytes(max(above, default=-1) // 8 + 1, "little")
    text = base64.b64encode(zlib.compress(bitmap)).decode() if above else ""
    return OffsetAndMetadata(lowest, f"dt1:{text}:id")


@given(st.lists(st.integers(0, 30), unique=True, min_size=1), st.data())
def test_of_two_commits_of_one_partition_the_later_is_the_further(order: list[int], data: st.DataObject) -> None:
    times = sorted(data.draw(st.lists(st.integers(0, len(order)), min_size=2, max_size=2)))
    earlier, later = (committed(set(order[:time])) for time in times)
    assert further(earlier, later) == later
    assert further(later, earlier) == later


def test_any_commit_is_further_than_none_and_what_cannot_be_read_counts_by_its_offset() -> None:
    assert further(None, OffsetAndMetadata(0)) == further(OffsetAndMetadata(0), None) == OffsetAndMetadata(0)
    assert further(OffsetAndMetadata(3, "somebody's"), committed({0, 1, 2, 5})) == committed({0, 1, 2, 5})


def test_partitions_that_came_later_and_topics_that_were_made_again_have_no_position() -> None:
    assert HANDOVER.of("orders", 0) == OffsetAndMetadata(7, "dt1::id")
    assert (HANDOVER.of("orders", 1), HANDOVER.of("orders", 2), HANDOVER.of("other", 0)) == (None,) * 3
    assert HANDOVER.without({"orders"}).positions == {"orders.delays": (OffsetAndMetadata(0),)}


def test_a_handover_is_noted_in_the_registry_and_a_damaged_one_is_an_error() -> None:
    record = TopicsRecord(topic="orders", handover=HANDOVER)
    assert decode(record.key, encode(record)) == record
    assert decode(record.key, encode(replace(record, handover=None))) == replace(record, handover=None)
    for damaged in (b'"positions":7', b'"positions":{"orders":[[]]}', b'"positions":{"orders":[["x",""]]}'):
        value = encode(record).replace(
            encode(record).partition(b'"handover":')[2].partition(b',"ids"')[0],
            b'{"group":"g","kept":false,' + damaged + b"}",
        )
        with pytest.raises(UnreadableRecord):
            decode(record.key, value)


def test_of_its_own_offsets_a_group_goes_on_with_those_that_kafka_still_has() -> None:
    """The group's own offsets may have been reset on purpose. Offsets that another group has handed over count if they are further."""
    positions = {"orders": (OffsetAndMetadata(1_000),)}
    kept = Handover(group="g", positions=positions, kept=True)
    handed = Handover(group="g", positions=positions)
    for committed in (OffsetAndMetadata(300), OffsetAndMetadata(2_000)):
        assert kept.goes_on_at("orders", 0, committed) == committed
    assert kept.goes_on_at("orders", 0, None) == OffsetAndMetadata(1_000)
    assert handed.goes_on_at("orders", 0, OffsetAndMetadata(300)) == OffsetAndMetadata(1_000)
