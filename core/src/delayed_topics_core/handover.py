"""The positions of the former consumer group, which another group receives when its workers continue with a delayed topic.

Committed offsets belong to a group, and the new group may have older ones from an earlier time. Workers only move forward, so the further
position counts: that which the new group has committed, or that which was handed over to it. The handover is over when every partition has
committed at least the position that was handed over.

A group can be handed its own offsets. Kafka removes the offsets of a group that has had no members for `offsets.retention.minutes` (seven
days by default), including offsets that are committed meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from delayed_topics_core.commit_metadata import decode_metadata
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.offsets import OffsetAndMetadata


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """`group` is the consumer group that continues. `positions` has a position for each topic name and partition; None means that nothing
    was committed. With `kept`, the positions are those that `group` has committed itself. They count where Kafka has removed them."""

    group: str
    positions: Mapping[str, tuple[OffsetAndMetadata | None, ...]]
    kept: bool = False

    def of(self, topic: str, partition: int) -> OffsetAndMetadata | None:
        """Returns the position that was handed over, or None. A partition that was added later has none."""
        positions = self.positions.get(topic, ())
        return positions[partition] if partition < len(positions) else None

    def goes_on_at(self, topic: str, partition: int, committed: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
        """Returns the position from which the group continues, given what it has committed."""
        if self.kept and committed is not None:
            return committed
        return further(committed, self.of(topic, partition))

    def without(self, topics: set[str]) -> "Handover":
        """Removes the positions of topics that were created again, because they no longer apply."""
        return replace(self, positions={t: p for t, p in self.positions.items() if t not in topics})


def further(one: OffsetAndMetadata | None, other: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
    """Returns the position that is further, or `one` if both are equal."""
    return other if _progress(other) > _progress(one) else one


def decode_handover(body: Mapping[str, Any] | None) -> Handover | None:
    """Raises KeyError, TypeError, ValueError."""
    if body is None:
        return None
    positions = {
        topic: tuple(_decode_position(*at) if at is not None else None for at in of_topic)
        for topic, of_topic in body["positions"].items()
    }
    return Handover(group=body["group"], positions=positions, kept=body["kept"])


def _decode_position(offset: Any, metadata: Any) -> OffsetAndMetadata:
    return OffsetAndMetadata(int(offset), str(metadata))


def _progress(at: OffsetAndMetadata | None) -> tuple[int, int]:
    if at is None:
        return -1, 0
    try:
        return at.offset, len(decode_metadata(at.offset, at.metadata))
    except UnreadableRecord:
        return at.offset, 0
