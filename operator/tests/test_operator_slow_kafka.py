"""One slow Kafka is nobody else's problem: two connections, and on one of them the answers come after 20 s."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka_testing.slow_wire import SlowWire, slow_broker
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_process import OperatorProcess
from delayed_topics_operator_testing.scene import Scene

pytestmark = pytest.mark.api

SLOW_SECONDS = 20.0
"""The operator waits 15 s for an answer."""
HEALED_SECONDS = 300
MIB = 2**20
SLOW = "slow"
"""Name of the connection, and of resources by it."""


@pytest.fixture
def wire() -> Iterator[SlowWire]:
    with slow_broker() as made:
        yield made


@pytest.fixture
def patient(api: KubeApi, broker: Broker) -> Iterator[Scene]:
    """A scene whose operator compares everything every 30 s, as it does by default."""
    made = Scene(api, broker, OperatorProcess(api))
    try:
        made.open()
        yield made
    finally:
        made.close()


def serve(scene: Scene, wire: SlowWire, *, slow: int, others: int) -> tuple[list[str], list[str]]:
    """So many DelayedTopics by each connection. Returns their names when all are served."""
    scene.api.apply(scene.cluster_connection(SLOW, bootstrap=wire.bootstrap))
    by_slow = {"kind": "ClusterKafkaConnection", "name": SLOW}
    # the broker keeps what other tests have claimed
    names = [f"{scene.topic}-slow-{n}" for n in range(slow)], [f"{scene.topic}-other-{n}" for n in range(others)]
    scene.api.apply(*(scene.delayed_topic(name, partitions=2, connectionRef=by_slow) for name in names[0]))
    scene.api.apply(*(scene.delayed_topic(name, partitions=2) for name in names[1]))
    for name in (*names[0], *names[1]):
        scene.wait_until_served(name, seconds=HEALED_SECONDS)
    return names


def statuses(scene: Scene) -> dict[str, Any]:
    """Of all resources of the test, as they were written last."""
    found = [*scene.api.list_all("DelayedTopic"), *scene.api.list_all("ClusterKafkaConnection")]
    return {o["metadata"]["name"]: o["status"] for o in found}


def passes(scene: Scene, outcome: str) -> float:
    return scene.operator.counted("delayed_topics_operator_reconciles_total", kind="DelayedTopic", outcome=outcome)


def status_writes(scene: Scene) -> float:
    return scene.operator.counted("delayed_topics_operator_kube_calls_total", verb="APPLY", kind="DelayedTopic")


@pytest.mark.slow
def test_a_call_that_was_not_answered_once_changes_no_status(scene: Scene, wire: SlowWire) -> None:
    names, _ = serve(scene, wire, slow=3, others=0)
    for name in names:
        scene.wait_until_ready(name)
    before, failed = statuses(scene), passes(scene, "failed")
    wire.hold_back(SLOW_SECONDS)
    scene.wait(lambda: passes(scene, "failed") > failed, "a call is given up")
    wire.hold_back(0)
    looks = scene.operator.counted("delayed_topics_operator_kafka_calls_total", call="describe_cluster")
    done = passes(scene, "done")

    def looked() -> bool:
        """At the connections and at the resources, since then."""
        calls = scene.operator.counted("delayed_topics_operator_kafka_calls_total", call="describe_cluster")
        return calls >= looks + 3 and passes(scene, "done") >= done + 2 * len(names)

    scene.wait(looked, "all was looked at again", seconds=HEALED_SECONDS)
    assert statuses(scene) == before


def edits_are_followed(scene: Scene, others: list[str]) -> None:
    """While as many passes as there may be wait for the slow Kafka, and others for a slot there."""
    overdue = "delayed_topics_operator_overdue_seconds"
    scene.wait(lambda: scene.operator.counted(overdue, kind="DelayedTopic") > 1, "passes wait for a slot")
    given_up = passes(scene, "failed")
    scene.api.apply(*(scene.delayed_topic(name, partitions=2, retryCap=9) for name in others))
    scene.wait(
        lambda: all(scene.registry().layouts[name].retry_cap == 9 for name in others),
        "all edits are followed",
        seen=lambda: passes(scene, "failed") - given_up,
    )
    assert passes(scene, "failed") == given_up, "they waited until a call to the slow Kafka was given up"


@pytest.mark.slow
def test_resources_of_another_connection_are_looked_at_while_all_passes_of_a_slow_one_wait(
    scene: Scene, wire: SlowWire
) -> None:
    _, others = serve(scene, wire, slow=36, others=1)
    wire.hold_back(SLOW_SECONDS)
    edits_are_followed(scene, others)


@pytest.mark.slow
def test_each_connection_has_one_small_helper_that_ends_with_the_operator(
    scene: Scene, wire: SlowWire, record_property: Callable[[str, object], None]
) -> None:
    serve(scene, wire, slow=1, others=1)
    scene.wait(
        lambda: scene.operator.counted("delayed_topics_operator_helper_processes") == 2, "each connection has one"
    )
    found = scene.operator.processes_below()
    record_property("mebibytes", [size / MIB for size in found.values()])
    assert len(found) == 4, "two helpers, the process that they are forked from, and Python's tracker of resources"
    assert max(found.values()) < 12 * MIB
    scene.operator.kill()
    scene.wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found), "all of them have ended")


@pytest.mark.slow
def test_of_300_resources_on_two_connections_those_of_a_slow_one_say_so_once_and_the_others_have_their_passes(
    patient: Scene, wire: SlowWire, record_property: Callable[[str, object], None]
) -> None:
    scene = patient
    slow, others = serve(scene, wire, slow=150, others=150)
    for name in (*slow, *others):
        scene.wait_until_ready(name)
    begun = done_within(scene, "2.0"), done_within(scene, "+Inf")
    wire.hold_back(SLOW_SECONDS)
    edits_are_followed(scene, others[:5])
    for name in slow:
        scene.wait_for("Ready", "False", "KafkaUnreachable", name=name, seconds=HEALED_SECONDS)
    before, writes, done = statuses(scene), status_writes(scene), passes(scene, "done")
    scene.wait(lambda: passes(scene, "done") >= done + 2 * 300, "all were looked at again", seconds=HEALED_SECONDS)
    within, every = done_within(scene, "2.0") - begun[0], done_within(scene, "+Inf") - begun[1]
    record_property("passes_within_2_s", within / every)
    assert within / every >= 0.99
    assert status_writes(scene) == writes
    assert statuses(scene) == before


def done_within(scene: Scene, seconds: str) -> float:
    """Passes that were not given up, which took no longer than that."""
    buckets = "delayed_topics_operator_reconcile_seconds_bucket"
    return scene.operator.counted(buckets, kind="DelayedTopic", outcome="done", le=seconds)
