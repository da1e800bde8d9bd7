"""The layout record that the operator writes into the registry for a topic that workers serve."""

from dataclasses import replace
from typing import Any

from delayed_topics_core.delay_list import DelayList
from delayed_topics_core.layout import Layout
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord, Owner

__all__ = ["OWNER", "serving"]

OWNER = Owner("cluster", "shop", "orders")


def serving(topic: str, layout: Layout, *, partitions: int = 2, **further: Any) -> LayoutRecord:
    """Returns a record in the state `serving`.

    `partitions` is the number of partitions of the front topic and of the ready topic. `further` replaces fields of the record.
    """
    ahead_seconds = further.get("max_delay_seconds", 0) if layout.ladder_seconds else None
    record = LayoutRecord(
        topic=topic,
        owner=OWNER,
        state="serving",
        layout=layout,
        retry_cap=3,
        front_partitions=partitions,
        ready_partitions=partitions,
        group=TopicNames.of(topic).group,
        lists=(DelayList(delay_seconds=layout.delay_seconds, retry_cap=3, from_ms=0, max_delay_seconds=ahead_seconds),),
    )
    return replace(record, **further)
