"""The window that a partition begins with, and goes on with when it is read again."""

import logging

from confluent_kafka import OFFSET_END
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.reasons import Reason
from delayed_topics_core.window import Window, committed_topic_id, decode_metadata

from delayed_topics_worker.owned import Owned

log = logging.getLogger(__name__)


def window_to_begin(owned: Owned) -> Window | None:
    """The window to begin with; None: it isn't known."""
    if owned.committed is None:
        return None
    offset, metadata = owned.committed
    made_for, noted = committed_topic_id(metadata), owned.served.noted_id(owned.topic)
    if made_for is not None and noted is not None and made_for != noted:
        owned.anew = True  # the last word of a worker that died before it saw that the topic was made again
    if offset < 0 or owned.anew:
        return _first(owned)
    try:
        return Window(offset, decode_metadata(offset, metadata))
    except UnreadableRecord as e:
        log.warning("%s: %s; records after the committed offset may come out again", owned, e)
        return Window(offset)


def _first(owned: Owned) -> Window | None:
    """The window of a partition that was never committed: from its noted start, if it was never begun either. A commit that
    is left from a topic that is gone looks to the operator as if this one had begun."""
    topics = owned.served.topics
    starts = topics.start_offsets.get(owned.topic, ()) if topics else ()
    if topics is None or owned.partition >= len(starts):
        return None
    if owned.partition < topics.begun.get(owned.topic, 0) and not owned.anew:
        return None
    return Window(starts[owned.partition])


def renew_window(owned: Owned) -> None:
    """The window without what was held, or that of a topic made again."""
    if owned.window is None:
        return
    if owned.served.noted_id(owned.topic) not in (None, owned.topic_id):
        owned.window = owned.committed = None
        owned.reads_at = OFFSET_END
        owned.void, owned.anew = False, True
    elif owned.void and owned.stop is not None and owned.stop.reason is Reason.TOPIC_RECREATED:
        # of the new topic nothing was released that anybody knows of: a commit made before that was seen is taken back,
        # else a worker that is started later would begin there
        owned.window = Window(0)
        owned.dirty = True
        owned.void = False
    else:
        owned.window = owned.window.renewed()
