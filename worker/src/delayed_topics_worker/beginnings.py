"""Where a partition begins."""

import logging
from typing import NamedTuple

from delayed_topics_engine import committed_topic_id, decode_metadata

from delayed_topics_worker.assigned import AssignedPartition

log = logging.getLogger(__name__)


class Beginning(NamedTuple):
    """The lowest unfinished offset, and the finished ones above it as metadata of a commit. `commit`: nobody else can do so for
    a live group, and it has to be done even if nothing comes."""

    offset: int
    metadata: str = ""
    commit: bool = False


def beginning_of(owned: AssignedPartition) -> Beginning | None:
    """Returns None if the offset is not known."""
    if not owned.told:
        return None
    position = owned.served.goes_on_at(*owned.place, owned.committed)
    if position is None or owned.anew:
        return _first(owned)
    offset, metadata = position
    made_for, noted = committed_topic_id(metadata), owned.served.noted_id(owned.topic)
    mirrored = made_for is not None and made_for == owned.served.mirrored_id(owned.topic)
    if mirrored:
        metadata = (
            ""  # MirrorMaker translates the offset, and leaves those of the finished records above it as they were
        )
    elif made_for is not None and noted is not None and made_for != noted:
        owned.anew = True  # the last word of a worker that died before it saw that the topic was made again
        return _first(owned)
    try:
        decode_metadata(offset, metadata)
    except ValueError as e:
        log.warning("%s: %s. Records after the committed offset may be released again", owned, e)
        metadata = ""
    return Beginning(offset, metadata, commit=mirrored or position != owned.committed)


def _first(owned: AssignedPartition) -> Beginning | None:
    """Of a partition that was never committed: its noted start, if it was never begun either. A commit that is left from a
    topic that is gone looks to the operator as if this one had begun."""
    topics = owned.served.topics
    starts = topics.start_offsets.get(owned.topic, ()) if topics else ()
    if topics is None or owned.partition >= len(starts):
        return None
    if owned.partition < topics.begun.get(owned.topic, 0) and not owned.anew:
        return None
    return Beginning(starts[owned.partition], commit=True)
