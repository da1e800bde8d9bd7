"""Two operators of one installation: one of them is frozen in the middle of an edit, is stopped, or loses its lease."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.registry import RegistryFollower
from delayed_topics_operator.engine.lease import LEASE
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess

pytestmark = pytest.mark.api

FLAGS = ("--resync-seconds=3", "--lease-seconds=15")
GIVEN_UP_SECONDS = 300


@pytest.fixture
def pair(api: KubeApi, broker: Broker) -> Iterator[tuple[OperatorHarness, OperatorProcess]]:
    """Yields a harness with its running operator, and another operator of the same installation that is not started."""
    made, second = OperatorHarness(api, broker, OperatorProcess(api, *FLAGS)), OperatorProcess(api, *FLAGS)
    try:
        made.open()
        yield made, second
    finally:
        second.close()
        made.close()


def holder(harness: OperatorHarness) -> str:
    return str((harness.api.get("Lease", LEASE, SYSTEM_NAMESPACE) or {"spec": {}})["spec"].get("holderIdentity", ""))


def delays(harness: OperatorHarness) -> int:
    return harness.topics()[f"{harness.topic}.delays"]


def freeze_while_it_grows(harness: OperatorHarness, partitions: int) -> int:
    """Freezes the operator when it has planned a layout, and Kafka does not have its partitions yet. Returns their planned number."""
    with RegistryFollower(harness.connection) as follower:

        def caught() -> bool:
            """Edits and freezes. An operator that was faster is left to finish, and the next call makes another edit."""
            nonlocal partitions
            partitions += 1
            follower.catch_up(120)
            harness.apply(partitions=partitions)
            wait_until(lambda: bool(follower.poll(0.01)), what="the layout is planned", poll_seconds=0)
            harness.operator.freeze()
            if harness.registry().layouts[harness.topic].state == "planned" and delays(harness) < partitions:
                return True
            harness.operator.go_on()
            harness.wait(lambda: served(harness) == partitions, "the edit is done")
            return False

        harness.wait(caught, "the operator is frozen in the middle of an edit", seconds=600)
    return partitions


def served(harness: OperatorHarness) -> int:
    """Returns the number of partitions of the served layout, or 0 if none is served or Kafka has another number."""
    layout = harness.registry().layouts[harness.topic]
    partitions = len(layout.layout.partition_delays)
    return partitions if layout.state == "serving" and delays(harness) == partitions else 0


def everything(harness: OperatorHarness) -> dict[str, Any]:
    """Returns all that an operator could change: the registry and its end offset, the topics and their settings, and every object."""
    kinds = ("ClusterKafkaConnection", "DelayedTopic", "StatefulSet", "Service", "ConfigMap", "Secret")
    objects = [o for kind in kinds for o in harness.api.list_all(kind)]
    state = harness.registry()
    return {
        "registry": asdict(state),
        "end": harness.kafka.list_offsets([(REGISTRY_TOPIC, 0)], "latest"),
        "topics": (harness.topics(), harness.topic_ids(), {name: harness.settings(name) for name in harness.topics()}),
        "objects": {o["metadata"]["uid"]: o["metadata"]["resourceVersion"] for o in objects},
    }


@pytest.mark.parametrize(
    "frozen_seconds", [0, pytest.param(120, marks=pytest.mark.slow)], ids=["until-it-is-done", "two-minutes"]
)
def test_an_operator_that_was_frozen_in_the_middle_of_an_edit_changes_nothing_and_ends(
    pair: tuple[OperatorHarness, OperatorProcess], frozen_seconds: float
) -> None:
    harness, second = pair
    harness.apply(partitions=4)
    harness.wait_until_served()
    first = holder(harness)
    second.start()

    partitions = freeze_while_it_grows(harness, 4)
    frozen_at = time.monotonic()
    harness.wait(
        lambda: holder(harness) not in ("", first), "the second operator has the lease", seconds=GIVEN_UP_SECONDS
    )
    harness.wait(
        lambda: served(harness) == partitions, "the second finishes what the first began", seconds=GIVEN_UP_SECONDS
    )
    harness.apply(partitions=partitions, retryCap=9)  # the first does not know of this edit
    generation = harness.resource()["metadata"]["generation"]  # type: ignore[index]
    harness.wait(
        lambda: (
            harness.registry().layouts[harness.topic].retry_cap == 9
            and harness.condition("TopicsReady").get("observedGeneration") == generation
        ),
        "the second follows the next edit",
    )
    time.sleep(max(0.0, frozen_at + frozen_seconds - time.monotonic()))  # the first stays frozen this long
    before: Manifest = {}

    def quiet() -> bool:
        nonlocal before
        earlier, before = before, everything(harness)
        return earlier == before

    harness.wait(quiet, "nothing changes any more")

    harness.operator.go_on()
    harness.wait(harness.operator.ended, "the first operator ends", seconds=GIVEN_UP_SECONDS)

    assert "could not be renewed" in harness.operator.log.read_text()
    assert everything(harness) == before
    assert not second.ended()
    harness.apply(partitions=partitions + 1, retryCap=9)
    harness.wait(lambda: served(harness) == partitions + 1, "the second operator goes on")


def test_an_operator_that_is_stopped_leaves_its_lease_to_the_one_that_waits(
    pair: tuple[OperatorHarness, OperatorProcess],
) -> None:
    harness, second = pair
    second.start()
    harness.operator.stop()
    assert "could not be released" not in harness.operator.log.read_text()
    harness.apply()
    harness.wait_until_served()
    assert second.counted("delayedtopics_operator_holds_lease") == 1


def test_an_operator_whose_lease_another_one_took_ends(pair: tuple[OperatorHarness, OperatorProcess]) -> None:
    harness, _ = pair
    harness.patch("Lease", LEASE, {"spec": {"holderIdentity": "somebody"}}, namespace=SYSTEM_NAMESPACE)
    harness.wait(harness.operator.ended, "the operator ends")
    assert "could not be renewed because somebody holds it" in harness.operator.log.read_text()
