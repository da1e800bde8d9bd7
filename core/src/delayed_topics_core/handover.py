"""What a delayed topic takes along when workers of another consumer group go on with it: where the former group was.

Offsets belong to a group, and a group that was there before may still have older ones. Releasing only goes forward, so of what a group has
committed and what was handed over to it, the further is what counts. Once every partition has committed that much, the handover is over.

A group can be handed its own offsets. Kafka forgets those of a group that has had no members for `offsets.retention.minutes`, seven days
unless set, and what is committed meanwhile lives no longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from delayed_topics_core.commit_metadata import decode_metadata
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.offsets import OffsetAndMetadata


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """`group`: to which one. `positions`: by topic name and partition; None: nothing was committed. `kept`: they are what that group has
    committed itself, and count where Kafka has forgotten them."""

    group: str
    positions: Mapping[str, tuple[OffsetAndMetadata | None, ...]]
    kept: bool = False

    def of(self, topic: str, partition: int) -> OffsetAndMetadata | None:
        """None for a partition that came later, too."""
        positions = self.positions.get(topic, ())
        return positions[partition] if partition < len(positions) else None

    def goes_on_at(self, topic: str, partition: int, committed: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
        """Where the group goes on that has committed this."""
        if self.kept and committed is not None:
            return committed
        return further(committed, self.of(topic, partition))

    def without(self, topics: set[str]) -> "Handover":
        """Of topics that were made again nothing holds any more."""
        return replace(self, positions={t: p for t, p in self.positions.items() if t not in topics})


def further(one: OffsetAndMetadata | None, other: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
    """`one` if both are the same."""
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
