"""Decides where a partition begins."""

import logging
from typing import NamedTuple

from delayed_topics_engine import committed_topic_id, decode_metadata

from delayed_topics_worker.assigned import AssignedPartition

log = logging.getLogger(__name__)


class Beginning(NamedTuple):
    """`offset`: the lowest unfinished one. `metadata`: the finished offsets above it, as in a commit. `commit`: the worker has to commit it
    even if no record comes, because only members can commit for a group that has some. `is_new`: it is that of a topic created again."""

    offset: int
    metadata: str = ""
    commit: bool = False
    is_new: bool = False


def beginning_of(owned: AssignedPartition) -> Beginning | None:
    """Returns None if the offset is not known."""
    if not owned.committed_known:
        return None
    position = owned.served.goes_on_at(*owned.place, owned.committed)
    if position is None or owned.recreated:
        return _first(owned, is_new=owned.recreated)
    offset, metadata = position
    made_for, registered_id = committed_topic_id(metadata), owned.served.registered_id(owned.topic)
    mirrored = made_for is not None and made_for == owned.served.mirrored_id(owned.topic)
    if mirrored:
        metadata = ""  # MirrorMaker translates only the offset, and not those of the finished records above it
    elif made_for is not None and registered_id is not None and made_for != registered_id:
        # committed by a worker that died before it saw that the topic was created again
        return _first(owned, is_new=True)
    try:
        decode_metadata(offset, metadata)
    except ValueError as e:
        log.warning("%s: %s. Records after the committed offset may be released again", owned, e)
        metadata = ""
    return Beginning(offset, metadata, commit=mirrored or position != owned.committed)


def _first(owned: AssignedPartition, *, is_new: bool) -> Beginning | None:
    """Returns the registered start of a partition without a valid commit; None if the registry says that the partition has begun before.
    That does not count if the topic `is_new`, created again, because the operator may take a commit for the former topic for one of it."""
    topics = owned.served.topics
    starts = topics.start_offsets.get(owned.topic, ()) if topics else ()
    if topics is None or owned.partition >= len(starts):
        return None
    if owned.partition < topics.begun.get(owned.topic, 0) and not is_new:
        return None
    return Beginning(starts[owned.partition], commit=True, is_new=is_new)
