"""DelayedTopics that share the workers of their connection, on a real API server and broker, with workers as processes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_devcluster.pace import paced
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_kafka.idempotence import IDEMPOTENT
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE
from delayed_topics_operator_testing.scene import Scene
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = [pytest.mark.api, pytest.mark.slow]

SHARED = "default-cluster-shared"


class Pods:
    """Processes for the pods of StatefulSets, with what their ConfigMaps say."""

    def __init__(self, scene: Scene, directory: Path) -> None:
        self._scene = scene
        self._directory = directory
        self._workers: list[WorkerProcess] = []

    def start(self, stateful_set: str, replicas: int) -> None:
        """When the StatefulSet is there. The test is the kubelet."""
        found = self._scene.api.get
        self._scene.wait(
            lambda: found("StatefulSet", stateful_set, SYSTEM_NAMESPACE) is not None, f"StatefulSet {stateful_set}"
        )
        made = found("ConfigMap", f"{stateful_set}-worker", SYSTEM_NAMESPACE)
        assert made is not None
        config = json.loads(made["data"]["worker.json"])
        topics = config.pop("topics", [])
        del config["http_port"]
        for number in range(replicas):
            worker = WorkerProcess(
                self._directory,
                self._scene.connection,
                topics,
                port=free_ports(1)[0],
                member=f"{stateful_set}-{number}",
                **config,
            )
            self._workers.append(worker.ready())

    def end(self) -> None:
        for worker in self._workers:
            worker.kill()


@pytest.fixture
def pods(scene: Scene, tmp_path: Path) -> Iterator[Pods]:
    made = Pods(scene, tmp_path)
    yield made
    made.end()


@contextmanager
def produced(scene: Scene, topic: str) -> Iterator[list[int]]:
    """Records come all the time, for both delays; yields the growing list of their numbers."""
    producer = Producer({"bootstrap.servers": scene.broker.bootstrap, "linger.ms": 5, **IDEMPOTENT})
    sent: list[int] = []

    def produce(number: int) -> None:
        producer.produce(topic, b"%d" % number, headers=[("dt-delay-level", b"%d" % (number % 2 + 1))])
        producer.poll(0)
        sent.append(number)

    with paced(produce, lambda: 200):
        yield sent
    assert producer.flush(60) == 0


def released(scene: Scene, topic: str) -> int:
    """Records that have come out, doubles counted."""
    name = TopicNames.of(topic).ready
    places = [(name, partition) for partition in range(scene.topics(topic)[name])]
    return sum(end for end in scene.kafka.list_offsets(places, "latest").values() if isinstance(end, int))


def layout(scene: Scene, topic: str) -> LayoutRecord:
    return scene.registry().layouts[topic]


def test_topics_share_workers_until_one_gets_its_own_and_each_record_comes_out_once(scene: Scene, pods: Pods) -> None:
    connection = scene.cluster_connection()
    connection["spec"]["sharedWorkers"] = {"replicas": 2}
    scene.api.apply(connection)
    other = f"{scene.topic}-other"
    for name in (scene.topic, other):
        scene.api.apply(scene.delayed_topic(name, delaySeconds=[0, 1], deletionPolicy="Delete"))
    pods.start(SHARED, 2)
    for name in (scene.topic, other):
        scene.wait_until_ready(name)
        assert scene.stateful_set(name) is None
        assert (scene.resource(name) or {})["status"]["workers"]["shared"]

    with produced(scene, scene.topic) as sent, produced(scene, other) as sent_beside:
        scene.wait(lambda: released(scene, scene.topic) > 100, "the shared workers release")
        scene.api.kubectl("scale", "delayedtopic", scene.topic, "--replicas=2", f"--namespace={scene.namespace}")
        scene.wait(lambda: scene.stateful_set() is not None, "it gets workers of its own")
        live = scene.stateful_set()
        assert live is not None
        pods.start(live["metadata"]["name"], 2)
        scene.wait_until_ready()
        scene.wait(lambda: layout(scene, scene.topic).group == f"delayedtopics.{scene.topic}", "they have the topics")
        before = released(scene, scene.topic)
        scene.wait(lambda: released(scene, scene.topic) > before + 200, "they release")

    scene.wait(
        lambda: (released(scene, scene.topic), released(scene, other)) == (len(sent), len(sent_beside)),
        "each record has come out once",
        seen=lambda: (released(scene, scene.topic), len(sent), released(scene, other), len(sent_beside)),
    )
    scene.wait(lambda: scene.registry().topics[scene.topic].handover is None, "the handover is over")
    scene.delete(other)
    assert scene.topics(other) == {}
    assert scene.api.get("StatefulSet", SHARED, SYSTEM_NAMESPACE) is not None
