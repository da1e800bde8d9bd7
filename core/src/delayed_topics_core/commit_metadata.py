"""Reads the metadata of a worker's commit without the engine.

A worker commits the lowest unfinished offset. The metadata of the commit lists the finished offsets above it, so that a worker that starts
again repeats none of them. Format: `dt1:` + base64(zlib(bitmap)) + `:` + topic id. Bit i (least significant first) stands for offset
committed + 1 + i, and 1 means finished. There is no bitmap if no offset above is finished. Kafka keeps commits by topic name, so the topic
id distinguishes a commit for a deleted topic from one for the topic that has this name now.

`delayed_topics_engine` writes the metadata, and tests compare what both implementations read.
"""

import base64
import zlib
from typing import Final

from delayed_topics_core.errors import UnreadableRecord

_PREFIX: Final = "dt1:"


def decode_metadata(committed: int, metadata: str | None) -> frozenset[int]:
    """Returns the finished offsets above `committed`. Raises UnreadableRecord for metadata that is not empty and that no worker wrote."""
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
    """Returns the id of the topic for which a commit was made. None if the metadata has no id, as in the operator's first commit or one
    that a person made."""
    if not metadata or not metadata.startswith(_PREFIX):
        return None
    return metadata[len(_PREFIX) :].partition(":")[2] or None
