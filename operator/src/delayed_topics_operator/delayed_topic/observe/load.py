"""Measures how many records of a delayed topic are due, and how many of them are released. This takes three calls to Kafka and one for the
group, however many records wait."""

import asyncio
import time
from collections.abc import Callable

from delayed_topics_core.commit_metadata import decode_metadata
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.registry import LayoutRecord, TopicsRecord

from delayed_topics_operator import metrics
from delayed_topics_operator.delayed_topic.reconcile import handover
from delayed_topics_operator.delayed_topic.reconcile.load import (
    LOOK_SECONDS,
    BrokerTime,
    Load,
    Look,
    can_be_shared,
    lag_of,
)
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.values.key import Key

GRACE_MS = 1000
"""A record that became due less than this time ago does not count as due, since its copy may be on its way."""
LOOK_AGAIN_FRACTION = 0.7
"""A pass looks at the offsets again after this fraction of LOOK_SECONDS, since passes do not come exactly in time."""


class Loads:
    """The loads of all resources whose due lag is measured. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._loads: dict[Key, Load] = {}
        self._times: dict[Key, BrokerTime] = {}

    def forget(self, key: Key) -> None:
        """Drops what is known of a resource whose due lag is no longer measured."""
        self._times.pop(key, None)
        self._loads.pop(key, None)
        self.unknown(key)

    def unknown(self, key: Key) -> None:
        """Removes the metric of a resource while its due lag can't be measured."""
        metrics.DUE_LAG.remove(key.namespace, key.name)

    async def look(self, key: Key, link: KafkaLink, names: TopicNames, kafka: KafkaView, *, ready: int) -> Load:
        """Returns the load, with a new look if the last one is some seconds old. The load is empty while Kafka could not answer. `ready`:
        the number of ready workers; 0 while workers are being removed. Raises KafkaCallError."""
        registered = kafka.registered.layout
        layout = registered.served if registered is not None else None
        if layout is None or not _can_be_asked(names, layout, kafka):
            self._loads.pop(key, None)
            self.unknown(key)
            return Load()
        load, now = self._loads.get(key, Load()), self._clock()
        if load.latest is None or now - load.latest.at_seconds >= LOOK_AGAIN_FRACTION * LOOK_SECONDS:
            look = await self._look(key, link, names, layout, kafka, ready)
            self._loads[key] = load = load.after(look)
            metrics.DUE_LAG.labels(key.namespace, key.name).set(look.due_lag)
        return load

    async def _look(
        self, key: Key, link: KafkaLink, names: TopicNames, layout: LayoutRecord, kafka: KafkaView, ready: int
    ) -> Look:
        group, record = kafka.group, kafka.registered.topics or TopicsRecord(topic=names.front)
        waits_ms = layout.waits_ms
        partitions = list(waits_ms)
        at_seconds = self._clock()
        committed, ends, newest = await asyncio.gather(
            link.committed(group.group, partitions),
            link.offsets(partitions, "stable"),
            link.newest_times([*partitions, *((names.ready, number) for number in range(layout.ready_partitions))]),
        )
        newest_ms, seen_at = max((at_ms for at_ms in newest.values() if at_ms is not None), default=0), self._clock()
        before = self._times.get(key, BrokerTime(newest_ms=newest_ms, seen_at_seconds=seen_at))
        self._times[key] = time_now = before.after(newest_ms, seen_at)
        now_ms = time_now.at_ms(at_seconds) - GRACE_MS
        found = await link.offsets_at({place: max(0, now_ms - wait_ms) for place, wait_ms in waits_ms.items()})
        counts = handover.committed(record, group.group, committed)
        released = {place: finished(at) for place, at in counts.items() if at is not None}
        due = {place: min(at if (at := found[place]) is not None else ends[place], ends[place]) for place in released}
        lag = lag_of(due, released)
        return Look(
            at_seconds=at_seconds,
            due=due,
            released=released,
            workers=ready if group.settled and len(group.members) == ready else 0,
            shared=any(can_be_shared([lag.get(place, 0) for place in member.assignment]) for member in group.members),
        )


def _can_be_asked(names: TopicNames, layout: LayoutRecord, kafka: KafkaView) -> bool:
    """Whether all partitions that a look asks about exist and have a leader. Otherwise a call would fail, or get no answer for 15 s. The
    pass would then treat Kafka as unreachable, and not even apply a pause."""
    needed = {
        names.front: layout.front_partitions,
        names.delays: layout.layout.partition_count,
        names.ready: layout.ready_partitions,
    }
    return all(
        (info := kafka.topics.get(name)) is not None and info.leaders_known and info.partitions >= partitions
        for name, partitions in needed.items()
    )


def finished(at: OffsetAndMetadata) -> int:
    """Returns the number of finished offsets of a partition, counted from 0. The metadata of a commit lists finished offsets above the
    committed one."""
    try:
        return at.offset + len(decode_metadata(at.offset, at.metadata))
    except UnreadableRecord:
        return at.offset  # the worker does not serve this partition, and raises an alarm
