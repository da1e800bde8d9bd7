"""The tables of two audits of a chain, as `delayed-topics why --table` reads them."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from delayed_topics.cli import main
from delayed_topics_audit.output import Output
from delayed_topics_audit_testing.rows import BOUNDS, Window, dead_letter, hop, level, release, retry
from delayed_topics_audit_testing.topics import whole_window
from delayed_topics_core.audit_table import DEAD_LETTER, DELAYS, READY
from delayed_topics_core.names import TopicNames
from pyspark.sql import SparkSession

NAMES = TopicNames.of("orders")


def write(window: Window, folder: Path, *, frozen_at_ms: int) -> None:
    frozen = whole_window(
        NAMES,
        topic_ids={name: f"id-of-{name}" for name in NAMES.topics},
        delay_seconds=(0, 10, 60),
        retry_cap=5,
        max_lateness_ms=1000,
        committed_offsets={},
        end_offsets=dict.fromkeys(NAMES.topics, (0,)),
    )
    Output(folder=str(folder), parquet=True).write_places(window.places, replace(frozen, frozen_at_ms=frozen_at_ms))


def told(folder: Path, place: str) -> list[str]:
    shown = CliRunner().invoke(main, ["why", "orders", place, "--table", str(folder)])
    assert shown.exit_code == 0, shown.output
    return shown.stdout.splitlines()


@pytest.mark.spark
def test_the_way_of_a_record_is_told_from_the_tables_of_a_chain(spark: SparkSession, tmp_path: Path) -> None:
    """In the first link, a record waits. In the second link, it comes out, and a chain of failures ends."""
    front, delays = [(0, 0, 0, level(2))], [(1, 0, 3, hop(("f", 0, 0), 10_000))]
    first = Window(spark=spark, front=front, delays=delays).committed(1, 0)
    bounds = replace(BOUNDS, front_from=(1, 0), new_from={DELAYS: (0, 1, 0), READY: (0, 0), DEAD_LETTER: (0, 0)})
    second = Window(
        spark=spark,
        front=[*front, (0, 1, 0, retry(1, "a")), (0, 2, 11_000, retry(6, "a"))],
        delays=delays,
        ready=[
            (0, 0, 10_002, release(("d", 1, 0), 10_000, root=("f", 0, 0), hops=1)),
            (0, 1, 12_500, release(("f", 0, 1), 10_000, attempt=1)),
        ],
        dead=[(0, 0, 11_001, dead_letter(("f", 0, 2), attempt=6))],
        bounds=bounds,
    )
    write(first, tmp_path / "orders-1", frozen_at_ms=1_700_000_005_000)
    write(second, tmp_path / "orders-2", frozen_at_ms=1_700_000_060_000)

    assert told(tmp_path, "orders.ready-0@0") == [
        "orders-0@0, attempt 0: released",
        "  2023-11-14T22:13:20.000Z  came in       orders-0@0  due 2023-11-14T22:13:30.000Z",
        "  2023-11-14T22:13:20.003Z  hopped        orders.delays-1@0  due 2023-11-14T22:13:30.000Z",
        "  2023-11-14T22:13:30.002Z  released      orders.ready-0@0  2 ms after its due time",
        "  audit orders-1 of 2023-11-14T22:13:25.000Z: orders-0@0 hopped; orders.delays-1@0 pending",
        "  audit orders-2 of 2023-11-14T22:14:20.000Z: orders.delays-1@0 released",
    ]
    pending = "orders-0@0, attempt 0: pending at 2023-11-14T22:13:25.000Z, due 2023-11-14T22:13:30.000Z"
    assert told(tmp_path / "orders-1", "0@0")[0] == pending
    late = "    orders-0@1 late: The record was released more than maxLatenessMs after it was due."
    retried = told(tmp_path, "0@1")
    assert (late in retried, retried[-1]) == (True, "  other attempts: orders-0@2 (attempt 6)")
    dead = told(tmp_path, "orders.dead-0@0")
    assert dead[0] == "orders-0@2, attempt 6: a dead letter"
    assert dead[2] == "  2023-11-14T22:13:31.001Z  dead-lettered orders.dead-0@0  RetryCapExceeded"
