"""Two operators of one installation, of which one is frozen in the middle of what it does."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.registry import RegistryFollower
from delayed_topics_operator.lease import LEASE
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.scene import Manifest, Scene

pytestmark = pytest.mark.api

FLAGS = ("--resync-seconds=3", "--lease-seconds=15")
GIVEN_UP_SECONDS = 300


@pytest.fixture
def pair(api: KubeApi, broker: Broker) -> Iterator[tuple[Scene, OperatorProcess]]:
    """A scene with its operator, and another one of the same installation, which is not started."""
    made, second = Scene(api, broker, OperatorProcess(api, *FLAGS)), OperatorProcess(api, *FLAGS)
    try:
        made.open()
        yield made, second
    finally:
        second.close()
        made.close()


def holder(scene: Scene) -> str:
    return str((scene.api.get("Lease", LEASE, SYSTEM_NAMESPACE) or {"spec": {}})["spec"].get("holderIdentity", ""))


def delays(scene: Scene) -> int:
    return scene.topics()[f"{scene.topic}.delays"]


def freeze_while_it_grows(scene: Scene, partitions: int) -> int:
    """Freezes the operator when it has planned a layout and Kafka has not the partitions. Returns how many there are to be."""
    with RegistryFollower(scene.connection) as follower:

        def caught() -> bool:
            """An operator that was faster is left to finish, and gets another edit."""
            nonlocal partitions
            partitions += 1
            follower.catch_up(120)
            scene.apply(partitions=partitions)
            wait_until(lambda: bool(follower.poll(0.01)), what="the layout is planned", poll_seconds=0)
            scene.operator.freeze()
            if scene.registry().layouts[scene.topic].state == "planned" and delays(scene) < partitions:
                return True
            scene.operator.go_on()
            scene.wait(lambda: served(scene) == partitions, "the edit is done")
            return False

        scene.wait(caught, "the operator is frozen in the middle of an edit", seconds=600)
    return partitions


def served(scene: Scene) -> int:
    """Partitions of the layout that is served, and that Kafka has."""
    layout = scene.registry().layouts[scene.topic]
    partitions = len(layout.layout.partition_delays)
    return partitions if layout.state == "serving" and delays(scene) == partitions else 0


def everything(scene: Scene) -> dict[str, Any]:
    """What an operator could change: the registry and its end, the topics and their settings, and every object."""
    kinds = ("ClusterKafkaConnection", "DelayedTopic", "StatefulSet", "Service", "ConfigMap", "Secret")
    objects = [o for kind in kinds for o in scene.api.list_all(kind)]
    state = scene.registry()
    return {
        "registry": asdict(state),
        "end": scene.kafka.list_offsets([(REGISTRY_TOPIC, 0)], "latest"),
        "topics": (scene.topics(), scene.topic_ids(), {name: scene.settings(name) for name in scene.topics()}),
        "objects": {o["metadata"]["uid"]: o["metadata"]["resourceVersion"] for o in objects},
    }


@pytest.mark.parametrize(
    "frozen_seconds", [0, pytest.param(120, marks=pytest.mark.slow)], ids=["until-it-is-done", "two-minutes"]
)
def test_an_operator_that_was_frozen_in_the_middle_of_an_edit_changes_nothing_and_ends(
    pair: tuple[Scene, OperatorProcess], frozen_seconds: float
) -> None:
    scene, second = pair
    scene.apply(partitions=4)
    scene.wait_until_served()
    first = holder(scene)
    second.start()

    partitions = freeze_while_it_grows(scene, 4)
    frozen_at = time.monotonic()
    scene.wait(lambda: holder(scene) not in ("", first), "the second has the lease", seconds=GIVEN_UP_SECONDS)
    scene.wait(
        lambda: served(scene) == partitions, "the second finishes what the first began", seconds=GIVEN_UP_SECONDS
    )
    scene.apply(partitions=partitions, retryCap=9)  # what the first doesn't know of
    generation = scene.resource()["metadata"]["generation"]  # type: ignore[index]
    scene.wait(
        lambda: (
            scene.registry().layouts[scene.topic].retry_cap == 9
            and scene.condition("TopicsReady").get("observedGeneration") == generation
        ),
        "the second follows the next edit",
    )
    time.sleep(max(0.0, frozen_at + frozen_seconds - time.monotonic()))  # only time can show what time does
    before: Manifest = {}

    def quiet() -> bool:
        nonlocal before
        earlier, before = before, everything(scene)
        return earlier == before

    scene.wait(quiet, "nothing changes any more")

    scene.operator.go_on()
    scene.wait(scene.operator.ended, "the first ends", seconds=GIVEN_UP_SECONDS)

    assert "could not be renewed" in scene.operator.log.read_text()
    assert everything(scene) == before
    assert not second.ended()
    scene.apply(partitions=partitions + 1, retryCap=9)
    scene.wait(lambda: served(scene) == partitions + 1, "the second goes on")


def test_an_operator_that_is_stopped_leaves_its_lease_to_the_one_that_waits(
    pair: tuple[Scene, OperatorProcess],
) -> None:
    scene, second = pair
    second.start()
    scene.operator.stop()
    assert "could not be released" not in scene.operator.log.read_text()
    scene.apply()
    scene.wait_until_served()
    assert second.counted("delayed_topics_operator_holds_lease") == 1


def test_an_operator_whose_lease_another_one_took_ends(pair: tuple[Scene, OperatorProcess]) -> None:
    scene, _ = pair
    scene.patch("Lease", LEASE, {"spec": {"holderIdentity": "somebody"}}, namespace=SYSTEM_NAMESPACE)
    scene.wait(scene.operator.ended, "it ends")
    assert "could not be renewed: somebody has it" in scene.operator.log.read_text()
