"""Freezes and audits a delayed topic that a test has declared, as the operator and its Job would."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from delayed_topics_audit import session
from delayed_topics_audit.account import Result
from delayed_topics_audit.job import audit
from delayed_topics_audit.output import Output
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.carried import Carried
from delayed_topics_core.registry import Claim
from delayed_topics_crds.audit import Window
from delayed_topics_operator.audits.freeze import freeze
from delayed_topics_operator.audits.reconcile.chain import ended
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_worker_testing.harness import DeclaredTopic
from pyspark.sql import SparkSession

LATE_MS: Final = 600_000


def audited(orders: DeclaredTopic, jars: Path) -> Result:
    """Audits everything that has come in. `jars` is the folder that `make spark-jars` prints. Raises AuditFailed."""
    register(orders)
    spark = session.start(master=f"local[{os.cpu_count()}]", jars=jars)
    try:
        return audit(whole_window(orders), orders.harness.connection, lambda: spark, lambda _: None).result
    finally:
        spark.stop()


def whole_window(orders: DeclaredTopic) -> AuditWindow:
    """Returns a window of everything that has come in."""
    return window_of(orders, Window())


def window_of(orders: DeclaredTopic, asked: Window) -> AuditWindow:
    return asyncio.run(_window(orders, asked))


def chained(orders: DeclaredTopic, spark: SparkSession, folder: Path) -> tuple[AuditWindow, Result]:
    """Runs the next link of a chain of audits. It reads the table that the previous link wrote beside `folder`. Raises AuditFailed."""
    window, output = window_of(orders, Window(since_last=True)), Output(folder=str(folder), parquet=False)
    result = audit(window, orders.harness.connection, lambda: spark, lambda _: None, output).result
    assert result.carried_sha256 is not None, result
    written = Carried(folder=output.name, sha256=result.carried_sha256)
    orders.harness.write(ended(window, result.pending_since_ms, written))
    return window, result


async def _window(orders: DeclaredTopic, asked: Window) -> AuditWindow:
    link = link_to(orders)
    await link.open(brokers=1, registry_id=None)
    try:
        return await frozen(link, orders, asked=asked, now=datetime.now(UTC))
    finally:
        await link.close()


def register(orders: DeclaredTopic) -> None:
    """Writes what the operator records about a topic before workers serve it, and what workers don't read."""
    orders.harness.write(Claim(topic=orders.names.front, owner=orders.record.owner))
    orders.change(highest_retry_cap=orders.record.retry_cap, least_ready_partitions=orders.record.ready_partitions)


def link_to(orders: DeclaredTopic) -> KafkaLink:
    """Returns a link as the operator has one. The caller must open and close it."""
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
    """Returns the window of an audit that is requested at the time `now`."""
    window = await freeze(link, orders.names, orders.record.owner, asked=asked, max_lateness_ms=LATE_MS, now=now)
    assert isinstance(window, AuditWindow), window
    return window
