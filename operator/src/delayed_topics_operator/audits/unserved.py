"""Records that no worker reads, because no one serves their partition, or a transaction stays open before them."""

from collections.abc import Mapping, Sequence
from typing import Final

from delayed_topics_core.layout import format_ranges
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_operator.gateways.kafka import KafkaLink

OPEN_MS: Final = 600_000
"""How long a transaction may be open before it counts. Records that are overdue for longer make a verdict `Unknown`, too."""


async def in_partitions(link: KafkaLink, names: TopicNames, topics: Mapping[str, TopicInfo | None]) -> tuple[str, ...]:
    """Returns sentences about records in partitions that no worker serves. `topics`: as Kafka described them before. Partitions that the
    operator itself adds are in the layout before Kafka has them, so they are never found here. Raises KafkaCallError."""
    registry = await link.registry()
    layout, noted = registry.layouts.get(names.front), registry.topics.get(names.front)
    if layout is None or noted is None:
        return ()
    served = {names.front: layout.front_partitions, names.delays: layout.layout.partition_count}
    added = [
        (name, p)
        for name, count in served.items()
        if (info := topics[name]) is not None
        for p in range(max(count, len(noted.start_offsets.get(name, ()))), info.partitions)
    ]
    begins = await link.offsets(added, "earliest") if added else {}
    ends = await link.offsets(added, "latest") if added else {}
    messages = []
    for name in served:
        filled = [p for topic, p in added if topic == name and ends[topic, p] > begins[topic, p]]
        if filled:
            messages.append(
                f"topic {name} has records in partitions {format_ranges(filled)}, which somebody else added and no worker serves. See the "
                "condition TopicsReady of the DelayedTopic"
            )
    return tuple(messages)


async def behind_transactions(link: KafkaLink, front: Sequence[TopicPartitionKey], before_ms: int) -> tuple[str, ...]:
    """Returns sentences about records from before this time that are in an open transaction or behind one. `front`: the partitions of the
    front topic. Raises KafkaCallError."""
    ends = await link.offsets(front, "latest")
    stable = await link.offsets(front, "stable")  # afterwards, so that it is lower only if a transaction is open
    places = [place for place in front if stable[place] < ends[place]]
    newer = await link.offsets_at(dict.fromkeys(places, before_ms)) if places else {}
    held = [place for place in places if (at := newer[place]) is None or at > stable[place]]
    if not held:
        return ()
    (topic, first), partitions = held[0], format_ranges([p for _, p in held])
    return (
        f"topic {topic} has records in partitions {partitions} behind a transaction that has been open for more than "
        f"{OPEN_MS // 60_000} minutes. No worker reads them, and no audit does. In partition {first}, they begin at offset "
        f"{stable[topic, first]}. To find the producer, run kafka-transactions.sh describe-producers --topic {topic} --partition {first}. "
        "If find-hanging lists the transaction too, end it with abort",
    )
