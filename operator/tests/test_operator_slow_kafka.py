"""A slow Kafka holds up no one else: there are two connections, and on one of them answers come after 20 s."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka_testing.slow_wire import SlowWire, slow_broker
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess

pytestmark = pytest.mark.api

SLOW_SECONDS = 20.0
"""The operator waits 15 s for an answer."""
HEALED_SECONDS = 300
EDITS_AT_ONCE = 4
MIB = 2**20
SLOW = "slow"
"""The name of the connection, which is also in the names of its resources."""


@pytest.fixture
def wire() -> Iterator[SlowWire]:
    with slow_broker() as made:
        yield made


@pytest.fixture
def patient(api: KubeApi, broker: Broker) -> Iterator[OperatorHarness]:
    """Yields a harness whose operator compares everything every 30 s, which is the default."""
    with OperatorHarness(api, broker, OperatorProcess(api)).opened() as made:
        yield made


def serve(harness: OperatorHarness, wire: SlowWire, *, slow: int, others: int) -> tuple[list[str], list[str]]:
    """Creates this many DelayedTopics on each connection, and returns their names when all are served."""
    harness.api.apply(harness.cluster_connection(SLOW, bootstrap=wire.bootstrap))
    by_slow = {"kind": "ClusterKafkaConnection", "name": SLOW}
    # the names are unique, because the broker keeps the claims of other tests
    names = [f"{harness.topic}-slow-{n}" for n in range(slow)], [f"{harness.topic}-other-{n}" for n in range(others)]
    harness.api.apply(*(harness.delayed_topic(name, partitions=2, connectionRef=by_slow) for name in names[0]))
    harness.api.apply(*(harness.delayed_topic(name, partitions=2) for name in names[1]))
    harness.wait(
        lambda: (
            conditions(harness, "TopicsReady") >= {(name, "True", "AsDeclared") for name in (*names[0], *names[1])}
            and with_workers(harness) >= {*names[0], *names[1]}
        ),
        "all are served",
        seconds=HEALED_SECONDS,
    )
    return names


def conditions(harness: OperatorHarness, kind: str) -> set[tuple[str, str, str]]:
    """Returns the name of each DelayedTopic that has this condition, with the status and the reason of the condition.

    One request lists them all. Hundreds of single requests would keep the API server busier than the operator does.
    """
    return {
        (topic["metadata"]["name"], found["status"], found["reason"])
        for topic in harness.api.list_all("DelayedTopic", harness.namespace)
        for found in topic.get("status", {}).get("conditions", [])
        if found["type"] == kind
    }


def with_workers(harness: OperatorHarness) -> set[str]:
    """Returns the names of the DelayedTopics that have a StatefulSet."""
    sets = harness.api.list_all("StatefulSet", SYSTEM_NAMESPACE)
    return {found["metadata"]["labels"].get("delayedtopics.io/name", "") for found in sets}


def wait_until_all_ready(harness: OperatorHarness, names: list[str]) -> None:
    def ready() -> bool:
        harness.play_kubelet()
        return {name for name, status, _ in conditions(harness, "Ready") if status == "True"} >= set(names)

    harness.wait(ready, "all are ready", seconds=HEALED_SECONDS)


def statuses(harness: OperatorHarness) -> dict[str, Any]:
    """Returns the statuses of all resources of the test, as they were written last."""
    found = [*harness.api.list_all("DelayedTopic"), *harness.api.list_all("ClusterKafkaConnection")]
    return {o["metadata"]["name"]: o["status"] for o in found}


def passes(harness: OperatorHarness, outcome: str) -> float:
    return harness.operator.counted("delayedtopics_operator_reconciles_total", kind="DelayedTopic", outcome=outcome)


def status_writes(harness: OperatorHarness) -> float:
    return harness.operator.counted("delayedtopics_operator_kube_calls_total", verb="APPLY", kind="DelayedTopic")


@pytest.mark.slow
def test_a_call_that_was_not_answered_once_changes_no_status(harness: OperatorHarness, wire: SlowWire) -> None:
    names, _ = serve(harness, wire, slow=3, others=0)
    wait_until_all_ready(harness, names)
    before, failed = statuses(harness), passes(harness, "failed")
    wire.hold_back(SLOW_SECONDS)
    harness.wait(lambda: passes(harness, "failed") > failed, "a call is given up")
    wire.hold_back(0)
    looks = harness.operator.counted("delayedtopics_operator_kafka_calls_total", call="describe_cluster")
    done = passes(harness, "done")

    def looked() -> bool:
        """Returns whether the operator has looked at the connections and at all resources since then."""
        calls = harness.operator.counted("delayedtopics_operator_kafka_calls_total", call="describe_cluster")
        return calls >= looks + 3 and passes(harness, "done") >= done + 2 * len(names)

    harness.wait(looked, "everything was looked at again", seconds=HEALED_SECONDS)
    assert statuses(harness) == before


def edits_are_followed(harness: OperatorHarness, others: list[str]) -> None:
    """Edits are followed while the passes in all slots wait for the slow Kafka, and further passes wait for a slot."""
    overdue = "delayedtopics_operator_overdue_seconds"
    harness.wait(lambda: harness.operator.counted(overdue, kind="DelayedTopic") > 1, "passes wait for a slot")
    given_up = passes(harness, "failed")
    harness.api.apply(*(harness.delayed_topic(name, partitions=2, retryCap=9) for name in others))
    harness.wait(
        lambda: all(harness.registry().layouts[name].retry_cap == 9 for name in others),
        "all edits are followed",
        seen=lambda: passes(harness, "failed") - given_up,
    )
    assert passes(harness, "failed") == given_up, "the edits waited until a call to the slow Kafka was given up"


@pytest.mark.slow
def test_resources_of_another_connection_are_looked_at_while_all_passes_of_a_slow_one_wait(
    harness: OperatorHarness, wire: SlowWire
) -> None:
    _, others = serve(harness, wire, slow=36, others=1)
    wire.hold_back(SLOW_SECONDS)
    edits_are_followed(harness, others)


@pytest.mark.slow
def test_each_connection_has_one_small_helper_that_ends_with_the_operator(
    harness: OperatorHarness, wire: SlowWire, record_property: Callable[[str, object], None]
) -> None:
    serve(harness, wire, slow=1, others=1)
    harness.wait(
        lambda: harness.operator.counted("delayedtopics_operator_helper_processes") == 2,
        "each connection has one helper",
    )
    found = harness.operator.processes_below()
    record_property("mebibytes", [size / MIB for size in found.values()])
    assert len(found) == 4, "two helpers, the process that they are forked from, and Python's resource tracker"
    assert max(found.values()) < 12 * MIB
    harness.operator.kill()
    harness.wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found), "all helpers have ended")


def answer_seconds(harness: OperatorHarness, name: str, **spec: Any) -> float:
    """Returns the seconds from an edit until the status shows its generation, which is what the owner sees of a pass."""
    begun = time.monotonic()
    harness.api.apply(harness.delayed_topic(name, partitions=2, **spec))

    def is_seen_to() -> bool:
        found = harness.resource(name) or {}
        return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])

    wait_until(is_seen_to, what=f"the edit of {name} is followed", poll_seconds=0.02)
    return time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(1800)  # more than the sum of all waits
def test_of_300_resources_on_two_connections_those_of_a_slow_one_say_so_once_and_the_others_have_their_passes(
    patient: OperatorHarness, wire: SlowWire, record_property: Callable[[str, object], None]
) -> None:
    harness, process = patient, patient.operator.pid
    slow, others = serve(harness, wire, slow=150, others=150)
    wait_until_all_ready(harness, [*slow, *others])
    wire.hold_back(SLOW_SECONDS)
    edits_are_followed(harness, others[:5])
    with ThreadPoolExecutor(EDITS_AT_ONCE) as pool:
        seconds = sorted(pool.map(lambda name: answer_seconds(harness, name, retryCap=8), others))
    record_property("answer_seconds_p50", seconds[len(seconds) // 2])
    record_property("answer_seconds_p99", seconds[len(seconds) * 99 // 100])
    assert seconds[len(seconds) * 99 // 100] < 2

    harness.wait(
        lambda: conditions(harness, "Ready") >= {(name, "False", "KafkaUnreachable") for name in slow},
        "the resources of the slow connection report it",
        seconds=HEALED_SECONDS,
    )
    before, writes, done = statuses(harness), status_writes(harness), passes(harness, "done")
    harness.wait(
        lambda: passes(harness, "done") >= done + 2 * 300, "all resources were looked at again", seconds=HEALED_SECONDS
    )
    assert status_writes(harness) == writes
    assert statuses(harness) == before
    assert harness.operator.alive() == process, "the operator was restarted"
