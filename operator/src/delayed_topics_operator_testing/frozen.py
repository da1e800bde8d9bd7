"""Windows that the operator freezes of a delayed topic, from what a made-up Kafka answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_core.registry import AuditedRecord, Claim, LayoutRecord, TopicsRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core_testing.served import OWNER, serving
from delayed_topics_crds.audit import Window as Asked
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_operator.audits.freeze import freeze
from delayed_topics_operator.audits.reconcile.observation import Unauditable, Waiting
from delayed_topics_operator.gateways.kafka import KafkaLink

NAMES = TopicNames.of("orders")
IDS = {name: f"id-{name}" for name in (*NAMES.topics, "invoices", "shipments")}
WITH_CONTROL = {**IDS, NAMES.control: "id-control"}
LAYOUT = initial(LayoutSpec(delay_seconds=(0, 10), partitions=2))
AUDITED = AuditedRecord(
    topic="orders",
    ids=IDS,
    offsets={"orders": (40,), "orders.delays": (0, 30)},
    since_ms=9_000_000,
    ready_partitions=1,
    ends={"orders.delays": (0, 35), "orders.ready": (32,), "orders.dead": (45, 0)},
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
Meanwhile = Callable[[RegistryState], TopicsRecord | LayoutRecord]


class Offsets:
    """Answers like a KafkaLink for a topic with two front partitions, the second of which is new."""

    def __init__(self, *records: Any) -> None:
        self._registry = RegistryState()
        for at, record in enumerate(records):
            self._registry.apply(at, record.key, encode(record))
        self.asked_ms: set[int] = set()
        self.beginning = 0
        self.removed_meanwhile = 0
        self.stable = 60
        self.meanwhile: Meanwhile | None = None
        self.looked_up: list[tuple[str, str]] = []
        self.missing: set[str] = set()

    async def registry(self) -> RegistryState:
        return self._registry

    async def topics(self, names: Sequence[str]) -> dict[str, TopicInfo | None]:
        def info(name: str) -> TopicInfo:
            return TopicInfo(name=name, id=IDS[name], partitions=2, replication_factor=1, leaders_known=True)

        return {name: info(name) if name not in self.missing else None for name in names}

    async def committed(
        self, group: str, partitions: Sequence[TopicPartitionKey]
    ) -> dict[TopicPartitionKey, OffsetAndMetadata | None]:
        return dict.fromkeys(partitions, OffsetAndMetadata(50))

    async def offsets(self, partitions: Sequence[TopicPartitionKey], which: str) -> dict[TopicPartitionKey, int]:
        self.looked_up += [(topic, which) for topic in dict.fromkeys(topic for topic, _ in partitions)]
        if self.meanwhile is not None and which == "stable":
            recorded = self.meanwhile(self._registry)
            self._registry.apply(99, recorded.key, encode(recorded))
        found = {"latest": 60, "stable": self.stable, "earliest": self.beginning}
        return dict.fromkeys(partitions, found[which])

    async def offsets_at(self, times_ms: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int | None]:
        self.asked_ms |= set(times_ms.values())
        self.beginning = max(self.beginning, self.removed_meanwhile)
        return {key: 33 if key[1] == 0 else None for key in times_ms}


def freeze_it(
    asked: Asked,
    *chain: AuditedRecord,
    beginning: int = 0,
    removed_meanwhile: int = 0,
    stable: int = 60,
    meanwhile: Meanwhile | None = None,
    allowed: Sequence[AllowedTopic] = (),
    missing: Sequence[str] = (),
    control: bool = False,
    made_again: Sequence[str] = (),
    ids: Mapping[str, str] = IDS,
    **declared: Any,
) -> tuple[AuditWindow | Waiting | Unauditable, Offsets]:
    known: dict[str, Any] = {
        "highest_retry_cap": 5,
        "least_ready_partitions": 1,
        "ready_topics": tuple(allowed),
        "control": control,
    }
    layout = replace(serving("orders", LAYOUT, **known), **declared)
    recorded = TopicsRecord(
        topic="orders",
        ids=ids,
        made_again=tuple(made_again),
        start_offsets={"orders": (7, 0), "orders.delays": (0, 0)},
        begun={"orders": 2, "orders.delays": 2},
    )
    link = Offsets(Claim(topic="orders", owner=OWNER), layout, recorded, *chain)
    link.removed_meanwhile = removed_meanwhile
    link.beginning, link.stable, link.meanwhile, link.missing = beginning, stable, meanwhile, set(missing)
    frozen = asyncio.run(freeze(cast(KafkaLink, link), NAMES, OWNER, asked=asked, max_lateness_ms=1000, now=NOW))
    return frozen, link
