"""What is due of a delayed topic, and what of it is released: three calls to Kafka and one for the group, whatever waits."""

import asyncio
import time
from collections.abc import Callable

from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_kafka.model import GroupInfo, TopicPartitionKey

from delayed_topics_operator import metrics
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.load import LOOK_SECONDS, Load, Look, lag_of
from delayed_topics_operator.observation import KafkaView
from delayed_topics_operator.queue import Key

GRACE_MS = 1000
"""What has been due for less time may be on its way."""
SOON = 0.7
"""Of LOOK_SECONDS: whoever comes that much later may as well look."""


class Loads:
    """Of all resources that are scaled by it. `clock` counts monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._loads: dict[Key, Load] = {}

    def forget(self, key: Key) -> None:
        if self._loads.pop(key, None) is not None:
            metrics.DUE_LAG.remove(key.namespace, key.name)

    async def look(self, key: Key, link: KafkaLink, names: TopicNames, kafka: KafkaView, *, ready: int) -> Load:
        """With a new look if the last is some seconds old. `ready`: workers, 0 unless all are. Raises KafkaDoorError."""
        load, now = self._loads.get(key, Load()), self._clock()
        layout = kafka.registered.layout
        if layout is None or layout.state != "serving":
            return Load()
        if load.latest is None or now - load.latest.at_seconds >= SOON * LOOK_SECONDS:
            load = load.after(await self._look(link, names, layout, kafka.group, ready))
            self._loads[key] = load
            metrics.DUE_LAG.labels(key.namespace, key.name).set(load.latest.due_lag if load.latest is not None else 0)
        return load

    async def _look(
        self, link: KafkaLink, names: TopicNames, layout: LayoutRecord, group: GroupInfo, ready: int
    ) -> Look:
        delays_ms = _delays_ms(names, layout)
        partitions = list(delays_ms)
        at_seconds = self._clock()
        committed, ends, newest = await asyncio.gather(
            link.committed(group.group, partitions),
            link.offsets(partitions, "stable"),
            link.newest_times([*partitions, *((names.ready, number) for number in range(layout.ready_partitions))]),
        )
        # This machine's clock may differ from the brokers'. Where there is so much to do that it matters, the newest record is
        # milliseconds old.
        now_ms = max((at_ms for at_ms in newest.values() if at_ms is not None), default=0) - GRACE_MS
        found = await link.offsets_at({key: max(0, now_ms - delay_ms) for key, delay_ms in delays_ms.items()})
        released = {key: offset.offset for key, offset in committed.items() if offset is not None}
        due = {key: min(at if (at := found[key]) is not None else ends[key], ends[key]) for key in released}
        lag = lag_of(due, released)
        return Look(
            at_seconds=at_seconds,
            due=due,
            released=released,
            workers=ready if group.settled and len(group.members) == ready else 0,
            shared=any(sum(partition in lag for partition in member.assignment) > 1 for member in group.members),
        )


def _delays_ms(names: TopicNames, layout: LayoutRecord) -> dict[TopicPartitionKey, int]:
    """Of every partition that is served: how long its records wait. What is in the front topic is to go on at once."""
    front = {(names.front, partition): 0 for partition in range(layout.front_partitions)}
    delays = enumerate(layout.layout.partition_delays)
    return front | {(names.delays, partition): seconds * 1000 for partition, seconds in delays}
