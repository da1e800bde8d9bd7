"""What the operator writes into the registry about a topic that is served."""

from dataclasses import replace
from typing import Any

from delayed_topics_core.delay_list import DelayList
from delayed_topics_core.layout import Layout
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord, Owner

__all__ = ["OWNER", "serving"]

OWNER = Owner("cluster", "shop", "orders")


def serving(topic: str, layout: Layout, *, partitions: int = 2, **further: Any) -> LayoutRecord:
    """`partitions`: of the front and of the ready topic. `further`: fields of the record."""
    record = LayoutRecord(
        topic=topic,
        owner=OWNER,
        state="serving",
        layout=layout,
        retry_cap=3,
        front_partitions=partitions,
        ready_partitions=partitions,
        group=TopicNames.of(topic).group,
        lists=(DelayList(delay_seconds=layout.delay_seconds, retry_cap=3, from_ms=0),),
    )
    return replace(record, **further)
