"""Records in partitions that no worker serves."""

from collections.abc import Mapping

from delayed_topics_core.layout import format_ranges
from delayed_topics_core.names import TopicNames
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_operator.gateways.kafka import KafkaLink


async def unserved(link: KafkaLink, names: TopicNames, topics: Mapping[str, TopicInfo | None]) -> tuple[str, ...]:
    """Returns sentences about such records, as in AuditWindow. `topics`: as Kafka described them before. Partitions that the operator
    itself adds are in the layout before Kafka has them, so they are never found here. Raises KafkaCallError."""
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
