"""Freezes windows under full traffic while workers are killed, and audits them in one Spark session, to show that no race makes a record
look lost.

python -m delayed_topics_audit_testing.freezes --windows 500 --jars "$(make --silent spark-jars)"
"""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Final

import click
from delayed_topics_audit import session
from delayed_topics_audit.account import Result
from delayed_topics_audit.job import audit
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_crds.audit import Window
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.load import steady_load
from delayed_topics_worker_testing.process import WorkerProcess
from pyspark.sql import SparkSession

from delayed_topics_audit_testing.declared import frozen, link_to, register

GUARANTEES: Final = ("AtLeastOnce", "ExactlyOnce")
WINDOWS_A_ROUND: Final = 25
"""An audit begins where a delayed topic began, so each round has a delayed topic of its own."""
APART_SECONDS: Final = 0.3


@dataclass(kw_only=True)
class Tally:
    """The results of all windows. `faults` has what was wrong, for the first 10 of them that were not Verified."""

    windows: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    records: int = 0
    pending: int = 0
    lost: int = 0
    doubled_within_promise: int = 0
    doubled_exactly_once: int = 0
    kills: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add(self, result: Result, guarantee: str) -> None:
        self.windows += 1
        self.verdicts[result.verdict] = self.verdicts.get(result.verdict, 0) + 1
        account = result.account
        if account is not None:
            self.records += account.produced
            self.pending += account.pending
            self.lost += account.lost
            self.doubled_within_promise += account.doubled_within_promise
            if guarantee == "ExactlyOnce":
                self.doubled_exactly_once += account.doubled
        if result.verdict != "Verified" and len(self.faults) < 10:
            self.faults.append(f"{guarantee}: {result.verdict}: {result.message}")


def freeze_and_audit(
    spark: SparkSession,
    connection: Connection,
    directory: Path,
    *,
    windows: int,
    per_second: int,
    rng: Random,
    say: Callable[[str], None],
) -> Tally:
    """Runs rounds, with the guarantees in turn, until there are `windows` windows."""
    tally, began = Tally(), time.monotonic()
    with WorkerHarness(connection, directory) as harness:
        guarantees = cycle(GUARANTEES)
        while tally.windows < windows:
            guarantee = next(guarantees)
            count = min(WINDOWS_A_ROUND, -(-windows // len(GUARANTEES)), windows - tally.windows)
            frozen = _round(harness, count, per_second, rng, guarantee)
            tally.kills += 1
            for window in frozen:
                tally.add(audit(window, connection, lambda: spark, lambda _: None).result, guarantee)
            tally.seconds = round(time.monotonic() - began, 1)
            say(json.dumps(asdict(tally)))
    return tally


def _round(harness: WorkerHarness, count: int, per_second: int, rng: Random, guarantee: str) -> list[AuditWindow]:
    orders = harness.declare((0, 1, 2))
    register(orders)
    start = partial(harness.start, orders, guarantee=guarantee)
    worker = start()
    with steady_load(orders, per_second=per_second) as sent:
        wait_until(lambda: len(sent) >= per_second, what="a second of traffic")
        frozen, worker = asyncio.run(_freeze(orders, worker, start, count, rng))
    worker.kill()
    return frozen


async def _freeze(
    orders: DeclaredTopic, worker: WorkerProcess, start: Callable[[], WorkerProcess], count: int, rng: Random
) -> tuple[list[AuditWindow], WorkerProcess]:
    """Freezes `count` windows, while the worker is killed at a random time. Returns the windows, and the worker that replaced it."""
    link = link_to(orders)
    await link.open(brokers=1, registry_id=None)
    killing = asyncio.create_task(_replace(worker, start, after_seconds=rng.uniform(0.5, APART_SECONDS * count)))
    frozen = []
    try:
        for nth in range(count):
            await asyncio.sleep(rng.uniform(0, 2 * APART_SECONDS))
            frozen.append(await _window(link, orders, rng, whole=nth == 0))
        return frozen, await killing
    finally:
        await link.close()


async def _replace(worker: WorkerProcess, start: Callable[[], WorkerProcess], *, after_seconds: float) -> WorkerProcess:
    await asyncio.sleep(after_seconds)
    await asyncio.to_thread(worker.kill)
    return await asyncio.to_thread(start)


async def _window(link: KafkaLink, orders: DeclaredTopic, rng: Random, *, whole: bool) -> AuditWindow:
    """Freezes a window of everything, up to a while ago, or from a while ago. With `whole`, it is always of everything, so that it is not
    empty."""
    now = datetime.now(UTC)
    ago = now - timedelta(seconds=rng.randint(1, 3))
    asked = Window() if whole else rng.choice([Window(), Window(), Window(to=ago), Window(from_=ago)])
    return await frozen(link, orders, asked=asked, now=now)


@click.command()
@click.option("--windows", default=500, show_default=True, help="How many are frozen and audited.")
@click.option("--per-second", default=5_000, show_default=True, help="Records produced meanwhile.")
@click.option("--seed", default=7, show_default=True)
@click.option("--jars", type=click.Path(path_type=Path), required=True, help="What `make spark-jars` prints.")
@click.option("--results", type=click.Path(path_type=Path), help="Write the figures there (JSON).")
def main(windows: int, per_second: int, seed: int, jars: Path, results: Path | None) -> None:
    """Fails unless every window is Verified, and no record is doubled with ExactlyOnce."""
    with Broker(heap_megabytes=1024, java_options=()) as broker, tempfile.TemporaryDirectory() as directory:
        spark = session.start(master=f"local[{os.cpu_count()}]", jars=jars)
        connection = Connection(bootstrap_servers=broker.bootstrap)
        tally = freeze_and_audit(
            spark, connection, Path(directory), windows=windows, per_second=per_second, rng=Random(seed), say=click.echo
        )
        spark.stop()
    if results is not None:
        results.write_text(json.dumps(asdict(tally), indent=2) + "\n")
    if tally.verdicts.get("Verified") != windows or tally.doubled_exactly_once:
        raise click.ClickException("; ".join(tally.faults) or "doubled with ExactlyOnce")


if __name__ == "__main__":
    main()
