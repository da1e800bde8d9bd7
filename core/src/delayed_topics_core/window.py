"""The window of one partition: what is taken in and not yet finished, and the offset that may be committed.

Committed is the lowest unfinished offset. Finished offsets above it travel in the commit's metadata, so that a restart
repeats none of them. Format of the metadata: `dt1:` + base64(zlib(bitmap)) + `:` + topic id. Bit i (least significant first)
stands for offset committed + 1 + i, 1 is finished; no bitmap when nothing above is finished. The topic id tells a commit that
was made for a topic that is gone from one of the topic that has its name now: Kafka keeps commits by name.
"""

import base64
import zlib
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from delayed_topics_core.errors import UnreadableRecord

MAX_METADATA_CHARS: Final = 4000
"""Kafka refuses more than 4,096 (`offset.metadata.max.bytes`), and then commits nothing."""
MAX_SPAN: Final = 20_000
"""Offsets that a bitmap may have to cover before intake waits. With nothing to compress, base64 of 23,700 / 8 bytes fits into
MAX_METADATA_CHARS beside a topic id; the rest is room for a batch that is taken in before anybody looks."""

_PREFIX: Final = "dt1:"


class CommitPoint(NamedTuple):
    """What to commit for a partition: the lowest unfinished offset, and the finished ones above it as metadata."""

    offset: int
    metadata: str


class Window:
    """Offsets of one partition between the committed one and the position. Not thread-safe: it belongs to one thread."""

    __slots__ = ("_finished", "_taken", "position")

    def __init__(self, start: int, finished: Iterable[int] = ()) -> None:
        """`start`: the committed offset; `finished`: those above it that are already done (decode_metadata)."""
        self.position = start
        self._taken: deque[int] = deque()
        self._finished = set(finished)

    @property
    def span(self) -> int:
        """How many offsets lie between the one to commit and the position. At MAX_SPAN intake has to wait: what finishes
        above the lowest unfinished offset would no longer fit the metadata. Finished offsets of a former life may lie
        above the position; they don't count, or intake would never get there."""
        return self.position - self.lowest_unfinished

    @property
    def lowest_unfinished(self) -> int:
        return self._taken[0] if self._taken else self.position

    def take(self, offset: int) -> bool:
        """Take in an offset; False if it is finished already. Offsets that Kafka skips (transaction marks) count as finished.

        Raises ValueError if the offset lies before the position: the consumer went back without a new window.
        """
        if offset < self.position:
            raise ValueError(f"offset {offset} was taken already, the position is {self.position}")
        self.position = offset + 1
        self._taken.append(offset)
        if self._finished and offset in self._finished:
            self._shed()
            return False
        return True

    def skip_to(self, offset: int) -> bool:
        """Kafka has no more records below `offset`, only transaction marks and aborted ones; False if that is no news."""
        if offset <= self.position:
            return False
        self.position = offset
        return True

    def renewed(self) -> "Window":
        """One that begins at the lowest unfinished offset and knows what is finished above it."""
        lowest = self.lowest_unfinished
        return Window(lowest, (offset for offset in self._finished if offset > lowest))

    def finish(self, offset: int) -> None:
        """The record is released, hopped or dead-lettered, and acknowledged."""
        self._finished.add(offset)
        self._shed()

    def finish_all(self, offsets: Iterable[int]) -> None:
        """As `finish` of each. They nearly always are those that come first."""
        taken, finished = self._taken, self._finished
        for offset in offsets:
            if taken and taken[0] == offset:
                taken.popleft()
            else:
                finished.add(offset)
        self._shed()

    def is_finished(self, offset: int) -> bool:
        return offset < self.lowest_unfinished or offset in self._finished

    def commit_point(self, topic_id: str = "") -> CommitPoint:
        lowest = self.lowest_unfinished
        return CommitPoint(lowest, encode_metadata(lowest, self._finished, topic_id))

    def _shed(self) -> None:
        """What is left begins with an unfinished offset."""
        while self._taken and self._taken[0] in self._finished:
            self._finished.discard(self._taken.popleft())


def encode_metadata(committed: int, finished: Iterable[int], topic_id: str = "") -> str:
    """Metadata for a commit at `committed`. What would not fit is left out, highest offsets first: it is repeated, never lost."""
    suffix = f":{topic_id}" if topic_id else ""
    above = [offset - committed - 1 for offset in finished if offset > committed]
    if not above:
        return _PREFIX + suffix if suffix else ""
    span = max(above) + 1
    bitmap = bytearray((span + 7) // 8)
    for bit in above:
        bitmap[bit >> 3] |= 1 << (bit & 7)
    while len(text := _PREFIX + base64.b64encode(zlib.compress(bytes(bitmap))).decode() + suffix) > MAX_METADATA_CHARS:
        bitmap = bitmap[: len(bitmap) * 3 // 4]
    return text


def decode_metadata(committed: int, metadata: str | None) -> frozenset[int]:
    """The finished offsets above `committed`. Raises UnreadableRecord for metadata that is neither empty nor ours."""
    if not metadata:
        return frozenset()
    if not metadata.startswith(_PREFIX):
        raise UnreadableRecord(f"commit metadata must start with {_PREFIX!r}, it starts with {metadata[:16]!r}")
    encoded = metadata[len(_PREFIX) :].partition(":")[0]
    if not encoded:
        return frozenset()
    try:
        bitmap = zlib.decompress(base64.b64decode(encoded, validate=True))
    except (ValueError, zlib.error) as e:
        raise UnreadableRecord(f"commit metadata at offset {committed} is damaged: {e}") from e
    return frozenset(
        committed + 1 + byte * 8 + bit
        for byte, value in enumerate(bitmap)
        if value
        for bit in range(8)
        if value >> bit & 1
    )


def committed_topic_id(metadata: str | None) -> str | None:
    """The id of the topic that a commit was made for; None: it doesn't say, as the operator's first one, or a person's."""
    if not metadata or not metadata.startswith(_PREFIX):
        return None
    return metadata[len(_PREFIX) :].partition(":")[2] or None
