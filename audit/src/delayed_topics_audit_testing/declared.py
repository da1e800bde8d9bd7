"""A delayed topic that a test has declared, frozen and audited as the operator and its Job would do it."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from delayed_topics_audit import session
from delayed_topics_audit.account import Result
from delayed_topics_audit.job import audit
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.registry import Claim
from delayed_topics_crds.audit import Window
from delayed_topics_operator.audits.freeze import freeze
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.leadership import Leadership
from delayed_topics_worker_testing.harness import DeclaredTopic

LATE_MS: Final = 600_000


def audited(orders: DeclaredTopic, jars: Path) -> Result:
    """Of everything that has come in. `jars`: the folder that `make spark-jars` prints. Raises AuditFailed."""
    register(orders)
    spark = session.start(master=f"local[{os.cpu_count()}]", jars=jars)
    try:
        return audit(whole_window(orders), orders.harness.connection, lambda: spark, lambda _: None).result
    finally:
        spark.stop()


def whole_window(orders: DeclaredTopic) -> AuditWindow:
    """Of everything that has come in."""

    async def window() -> AuditWindow:
        link = link_to(orders)
        await link.open(brokers=1, registry_id=None)
        try:
            return await frozen(link, orders, asked=Window(), now=datetime.now(UTC))
        finally:
            await link.close()

    return asyncio.run(window())


def register(orders: DeclaredTopic) -> None:
    """What the operator notes of a topic before it is served, and workers don't read."""
    orders.harness.write(Claim(topic=orders.names.front, owner=orders.record.owner))
    orders.change(highest_retry_cap=orders.record.retry_cap, least_ready_partitions=orders.record.ready_partitions)


def link_to(orders: DeclaredTopic) -> KafkaLink:
    """As the operator has one; to be opened and closed."""
    return KafkaLink(
        orders.harness.connection,
        timeout_seconds=60,
        threads=4,
        registry_bytes=2**20,
        woken=lambda _: None,
        transactional_id=f"operator-of-{orders.names.front}",
        leadership=Leadership.without_end(),
    )


async def frozen(link: KafkaLink, orders: DeclaredTopic, *, asked: Window, now: datetime) -> AuditWindow:
    """The window that an audit that is asked for now gets."""
    window = await freeze(link, orders.names, orders.record.owner, asked=asked, max_lateness_ms=LATE_MS, now=now)
    assert isinstance(window, AuditWindow), window
    return window
