"""Rebalances in a resource's status, as people and alerts read it. The test plays the workers."""

import time
from collections.abc import Mapping
from typing import Any

import pytest
from delayed_topics_core.events import Event, EventKind
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.events import EventWriter
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.operator_harness import OperatorHarness

pytestmark = pytest.mark.api


def write_rebalance(
    harness: OperatorHarness,
    generation: int,
    partitions: Mapping[str, str],
    *,
    ended: str = "",
    gave_up: str = "",
    started: str = "",
    templates: Mapping[str, str] | None = None,
) -> None:
    """Writes the events of workers that are assigned these partitions of the front topic, and serve them.

    Before that, the worker `ended` stops and gives up the partitions `gave_up`, with records in flight, and the worker `started`
    starts. `templates` has the template of each worker's pod.
    """
    writer = EventWriter(Connection(bootstrap_servers=harness.broker.bootstrap), client_id="w-0")

    def write(kind: EventKind, member: str, **detail: Any) -> None:
        at_ms = int(time.time() * 1000)
        writer.write(Event(kind=kind, topic=harness.topic, member=member, at_ms=at_ms, detail=detail))

    def template(member: str) -> dict[str, str]:
        return {"template": templates[member]} if templates else {}

    if ended:
        write("rebalance", ended, change="revoked", places=[f"{harness.topic}[{gave_up}]"], in_flight=3)
        write("worker-stopped", ended)
    if started:
        write("worker-started", started, **template(started))
    for member, ranges in partitions.items():
        assigned = {"generation": generation, "places": [f"{harness.topic}[{ranges}]"]}
        write("assignment", member, group="g", session_timeout_ms=10_000, **assigned, **template(member))
        write("rebalance", member, change="assigned", **assigned)
    writer.close(30)


def recorded(harness: OperatorHarness) -> Manifest:
    found: Manifest = (harness.resource() or {}).get("status", {}).get("rebalance", {})
    return found


def wait_recorded(harness: OperatorHarness, *expected: tuple[int, int]) -> None:
    """Waits until the status has exactly these rebalances: the generation and moved partitions of each, the latest first."""

    def as_expected() -> bool:
        found = recorded(harness)
        recent = [(record["generation"], record["movedPartitions"]) for record in found.get("recent", ())]
        return (found.get("count", 0), recent) == (len(expected), list(expected))

    harness.wait(as_expected, f"the status has {expected}", seen=lambda: recorded(harness))


def test_each_rebalance_is_in_the_status_once_also_those_of_while_the_operator_was_away(
    harness: OperatorHarness,
) -> None:
    harness.apply(partitions=9)
    harness.wait_until_served()
    write_rebalance(harness, 1, {"w-0": "0-8"}, started="w-0")
    write_rebalance(harness, 2, {"w-0": "0-4", "w-1": "5-8"}, started="w-1")
    wait_recorded(harness, (2, 4), (1, 9))

    harness.operator.stop()
    write_rebalance(harness, 3, {"w-0": "0-4", "w-1": "5-8"})
    write_rebalance(harness, 4, {"w-0": "0-2", "w-1": "3-5", "w-2": "6-8"})
    write_rebalance(harness, 5, {"w-0": "0-8"})
    harness.operator.start()

    wait_recorded(harness, (5, 6), (4, 5), (2, 4), (1, 9))
    latest = recorded(harness)["recent"][0]
    assert (latest["reason"], latest["affectedWorkers"], latest["unaffectedWorkers"]) == ("WorkerLost", 3, 0)
    assert 10_000 <= latest["durationMs"] < 70_000
    harness.replace_operator()
    write_rebalance(harness, 6, {"w-0": "0-7", "w-3": "8"})
    wait_recorded(harness, (6, 1), (5, 6), (4, 5), (2, 4), (1, 9))


def test_rebalances_since_workers_were_replaced_for_an_edited_spec_say_so_once_these_are_back(
    harness: OperatorHarness,
) -> None:
    harness.apply(partitions=9)
    harness.wait_until_served()
    before = {"w-0": "one", "w-1": "one"}
    write_rebalance(harness, 1, {"w-0": "0-4"}, started="w-0", templates=before)
    write_rebalance(harness, 1, {"w-1": "5-8"}, started="w-1", templates=before)
    write_rebalance(harness, 2, {"w-0": "5-8"}, ended="w-1", gave_up="5-8", templates=before)
    wait_recorded(harness, (2, 4), (1, 9))
    assert [record["reason"] for record in recorded(harness)["recent"]] == ["WorkerLeft", "WorkerJoined"]

    edited = {"w-0": "two", "w-1": "two"}
    write_rebalance(harness, 3, {"w-1": "0-8"}, ended="w-0", gave_up="0-8", started="w-1", templates=edited)
    write_rebalance(harness, 3, {}, started="w-0", templates=edited)

    wait_recorded(harness, (3, 9), (2, 4), (1, 9))
    expected = [("SpecChanged", 3), ("SpecChanged", 3), ("WorkerJoined", 0)]
    harness.wait(
        lambda: [(r["reason"], r["inFlightRecords"]) for r in recorded(harness)["recent"]] == expected,
        f"the status has {expected}",
        seen=lambda: recorded(harness),
    )
