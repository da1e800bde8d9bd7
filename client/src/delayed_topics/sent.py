"""Up to where dead letters were sent: what the committed offsets of the group of redrives say, and for how long they say it."""

import time
from collections.abc import Mapping
from typing import Final

from delayed_topics_core.names import TopicNames
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.commits import committed_offsets
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import values_of
from delayed_topics_kafka.model import TopicInfo, TopicPartitionKey

from delayed_topics.errors import RedrivePositionUnknown
from delayed_topics.scan import Ranges

TIMEOUT_SECONDS: Final = 30.0
SHORTEST_RETENTION_MS: Final = 86_400_000
"""Of offsets, where Kafka does not say for how long it keeps them: few brokers have less than its own default of seven days."""

Sent = Mapping[TopicPartitionKey, int]
"""Up to which offset, and without it, dead letters of a partition were sent."""


def committed(connection: Connection, names: TopicNames, dead_letters: TopicInfo) -> Sent:
    """Of the partitions of which Kafka has it. Offsets of a former topic of the same name say nothing of this one.

    Raises KafkaCallError.
    """
    places = [(dead_letters.name, partition) for partition in range(dead_letters.partitions)]
    found = committed_offsets(connection, names.redrive_group, places, timeout_seconds=TIMEOUT_SECONDS, ended=True)
    return {place: at.offset for place, at in found.items() if at.metadata in ("", dead_letters.id)}


def where_unknown(admin: KafkaAdmin, there: Ranges, *, assume_sent_until_ms: int | None, all_wanted: bool) -> Sent:
    """Of the partitions of which Kafka has no position. `all_wanted`: whether or not they were sent before.

    Kafka forgets the position of a partition some time after the last redrive. Only if all dead letters that are there are younger is
    it known that none was sent. Raises KafkaCallError, and RedrivePositionUnknown.
    """
    nothing = {place: span.start for place, span in there.items()}
    if all_wanted or not there:
        return nothing
    if assume_sent_until_ms is not None:
        return _since(admin, there, assume_sent_until_ms)
    retention_ms = admin.offsets_retention_ms() or SHORTEST_RETENTION_MS
    young = _since(admin, there, int(time.time() * 1000) - retention_ms)
    if old := sorted(place for place, at in young.items() if at > nothing[place]):
        topic, partition = old[0]
        raise RedrivePositionUnknown(
            f"it can't be known whether old dead letters of {topic} [{partition}] were sent before, because Kafka forgets that "
            f"{retention_ms / 86_400_000:.3g} days after the last redrive. Set either --from-beginning to send all of {topic}, "
            "or --assume-sent-until TIME to send only those that came at that time or later"
        )
    return nothing


def _since(admin: KafkaAdmin, there: Ranges, at_ms: int) -> Sent:
    """The first offsets that came at that time or later."""
    found = values_of(admin.offsets_for_times(dict.fromkeys(there, max(0, at_ms))))
    return {place: span.end if (at := found[place]) is None else min(at, span.end) for place, span in there.items()}
