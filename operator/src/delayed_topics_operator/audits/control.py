"""Whether the records of a delayed topic could be cancelled, as far as an audit has to know."""

from delayed_topics_core.names import TopicNames

from delayed_topics_operator.gateways.kafka import KafkaLink


async def control_id(link: KafkaLink, names: TopicNames) -> str | None:
    """Returns the id of the control topic, as in AuditWindow. Must be called when the ends are known, because the registry names the
    control topic before the first record below the ends is cancelled. Raises KafkaCallError."""
    registry = await link.registry()
    noted, layout = registry.topics.get(names.front), registry.layouts.get(names.front)
    if noted is None or layout is None or names.control in noted.made_again:
        return None
    return noted.ids.get(names.control, None if layout.control else "")
