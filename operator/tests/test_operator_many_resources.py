"""Fifty resources at once: all get ready, with the calls for each recorded; then nothing is written while nothing changes."""

import time
from collections.abc import Callable

import pytest
from delayed_topics_operator_testing.operator_harness import OperatorHarness

pytestmark = pytest.mark.api

RESOURCES = 50
IDLE_SECONDS = 12.0
"""Four times the interval at which everything is compared again."""
READS = ("GET", "LIST", "WATCH")


@pytest.mark.slow
def test_fifty_resources_get_ready_and_then_nothing_is_written(
    harness: OperatorHarness, record_property: Callable[[str, object], None]
) -> None:
    def kube_calls(**labels: str) -> float:
        """Counts the calls to the API server, except those that renew the lease, which depend on the time that passes."""
        calls = "delayedtopics_operator_kube_calls_total"
        return harness.operator.counted(calls, **labels) - harness.operator.counted(
            calls, **{**labels, "kind": "Lease"}
        )

    def kafka_calls() -> float:
        return harness.operator.counted("delayedtopics_operator_kafka_calls_total")

    def writes() -> float:
        return kube_calls() - sum(kube_calls(verb=verb) for verb in READS)

    names = [f"{harness.topic}-{n}" for n in range(RESOURCES)]
    before, began = (kube_calls(), kafka_calls()), time.monotonic()
    harness.api.apply(*(harness.delayed_topic(name, partitions=2, deletionPolicy="Delete") for name in names))
    for name in names:
        harness.wait_until_ready(name)
    record_property("ready_seconds", time.monotonic() - began)
    record_property("kube_calls_per_resource", (kube_calls() - before[0]) / RESOURCES)
    record_property("kafka_calls_per_resource", (kafka_calls() - before[1]) / RESOURCES)

    def quiet() -> bool:
        earlier = writes()
        time.sleep(IDLE_SECONDS)  # only time can show that nothing is written
        return writes() == earlier

    harness.wait(quiet, f"no API write in {IDLE_SECONDS:g} seconds while nothing changes")
