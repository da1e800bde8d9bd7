"""Decides from what Kafka says that a partition can't be served: its own topic, or one that its records go to, is missing or was created
again."""

from dataclasses import replace
from typing import Final

from delayed_topics_core.reasons import Reason
from delayed_topics_kafka.errors import KafkaCallError
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_worker.assigned import AssignedPartition, Stop
from delayed_topics_worker.engine_events import Removed
from delayed_topics_worker.known_offsets import Offsets
from delayed_topics_worker.served import Served
from delayed_topics_worker.topic_watch import TopicsSnapshot

WITHHELD_SECONDS: Final = 30.0
"""More than the 20 s for which Kafka withholds a committed offset after a worker was killed in a transaction."""
RECHECK_SECONDS: Final = 1.0


def stop_for(owned: AssignedPartition, snapshot: TopicsSnapshot, now: float) -> Stop | None:
    """Returns why this partition can't be served: its own topic, or one that its records go to, is missing or was created again. Returns
    None if it can be served.

    Other ready topics stop no partition, because records that request a missing one hop.
    """
    names, before = owned.served.names, owned.stop
    refused, target = (before.refused, before.target) if before else (None, None)
    needed = (owned.topic, names.ready, names.delays)
    for topic in (*needed, names.dead_letter) if target == names.dead_letter else needed:
        if (wrong := what_is_wrong(owned.served, topic, snapshot)) is None:
            if before and before.topic == topic and isinstance(snapshot.topics.get(topic), KafkaCallError):
                # an error does not mean that the right topic is back
                return replace(before, retry_at=now + RECHECK_SECONDS)
            continue
        reason, words = wrong
        gone = topic == owned.topic
        if reason is Reason.TOPIC_MISSING and not gone:
            reason = Reason.TARGET_UNAVAILABLE
        message = f"{owned} can't be served, because {words}. See the conditions of the DelayedTopic for what to do"
        return Stop(
            reason=reason,
            message=message,
            retry_at=now + RECHECK_SECONDS,
            topic=topic,
            topic_gone=gone,
            refused=refused,
            target=target,
        )
    return None


def what_is_wrong(served: Served, topic: str, snapshot: TopicsSnapshot) -> tuple[Reason, str] | None:
    """Returns the reason, with a text, if a topic of a delayed topic is missing or was created again. Returns None if it is neither, or if
    Kafka did not answer."""
    if topic not in snapshot.topics:
        return None
    info, registered_id = snapshot.topics[topic], served.registered_id(topic)
    if info is None:
        return Reason.TOPIC_MISSING, f"topic {topic} does not exist. The operator creates it again if it is allowed to"
    if isinstance(info, TopicInfo) and registered_id not in (None, info.id):
        words = (
            f"topic {topic} was deleted and created again, so it is not the topic that was served. Its id is {info.id}, but the registry "
            f"has {registered_id}"
        )
        return Reason.TOPIC_RECREATED, words
    return None


def has_offset(there: Offsets | KafkaCallError, offset: int) -> bool:
    """Returns whether a worker can read a partition from this offset on. `there`: the offsets that Kafka has."""
    return isinstance(there, Offsets) and there.first <= offset <= there.stable_end


def stop_of_withheld(owned: AssignedPartition, now: float) -> Stop | None:
    """Returns the stop of a partition whose committed offset Kafka has not told for long."""
    if owned.unanswered_since is None or now - owned.unanswered_since < WITHHELD_SECONDS:
        return None
    message = (
        f"Kafka does not tell the committed offset of {owned} in group {owned.served.names.group}, so the worker can't begin. Either the "
        "transaction in which a worker committed last can't end, because a partition of __transaction_state has no leader, or the "
        "coordinator of the group does not answer. Kafka removes each record when it is older than the retention.ms of its topic"
    )
    return Stop(reason=Reason.NOT_RELEASING, message=message, retry_at=now + RECHECK_SECONDS)


def stop_of_removed(owned: AssignedPartition, removed: Removed, there: Offsets | KafkaCallError | None) -> Stop:
    """Returns the stop of a partition whose next record is not in Kafka any more. `there`: the offsets that Kafka has; None: Kafka has lost
    the end of the partition."""
    if there is None:
        what = (
            "Kafka has lost the last records of the partition. From the broker's end offset on it gives their offsets to other records, "
            "which a worker skips that starts at its committed offset"
        )
    elif has_offset(there, removed.offset):
        what = (
            "Kafka has this offset by now, so it had lost the last records of the partition, and has given their offsets to other records "
            f"since. Of the records below offset {removed.offset}, a worker that starts at its committed offset skips those that came since"
        )
    else:
        offsets = (
            f"offsets {there.first} to {there.stable_end}"
            if isinstance(there, Offsets)
            else f"unknown offsets ({there})"
        )
        what = f"Records were removed before they were released, and the partition now has {offsets}"
    message = (
        f"the worker can't continue to read {owned} at offset {removed.offset} ({removed.error.text}). {what}. To accept the loss, "
        "stop the workers, set the group's offset, and start the workers again"
    )
    return Stop(reason=Reason.RECORDS_REMOVED, message=message, retry_at=None)
