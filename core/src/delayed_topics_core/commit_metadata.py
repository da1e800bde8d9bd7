"""What a worker's commit says beside its offset, read without the engine.

Committed is the lowest unfinished offset. Finished offsets above it travel in the commit's metadata, so that a restart
repeats none of them. Format: `dt1:` + base64(zlib(bitmap)) + `:` + topic id. Bit i (least significant first) stands for offset
committed + 1 + i, 1 is finished; no bitmap when nothing above is finished. The topic id tells a commit that was made for a topic
that is gone from one of the topic that has its name now: Kafka keeps commits by name.

`delayed_topics_engine` writes it, and tests compare what both read.
"""

import base64
import zlib
from typing import Final

from delayed_topics_core.errors import UnreadableRecord

_PREFIX: Final = "dt1:"


def decode_metadata(committed: int, metadata: str | None) -> frozenset[int]:
    """The finished offsets above `committed`. Raises UnreadableRecord for metadata that is neither empty nor ours."""
    if not metadata:
        return frozenset()
    if not metadata.startswith(_PREFIX):
        raise UnreadableRecord(f"commit metadata must start with {_PREFIX!r}, but it starts with {metadata[:16]!r}")
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
    """The id of the topic that a commit was made for. None: it does not say, as the operator's first one, or a person's."""
    if not metadata or not metadata.startswith(_PREFIX):
        return None
    return metadata[len(_PREFIX) :].partition(":")[2] or None
