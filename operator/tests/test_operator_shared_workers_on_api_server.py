"""DelayedTopics that share the workers of their connection, on a real API server and broker, with workers as processes."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from delayed_topics_core.events import Event
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_devcluster.pace import paced
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_kafka.events import EventWriter
from delayed_topics_kafka.idempotence import IDEMPOTENT
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE
from delayed_topics_operator_testing.workers import worker_config
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = [pytest.mark.api, pytest.mark.slow]

SHARED = "default-cluster-shared"


class Pods:
    """Worker processes in place of the pods of StatefulSets, configured by their ConfigMaps."""

    def __init__(self, harness: OperatorHarness, directory: Path) -> None:
        self._harness = harness
        self._directory = directory
        self._workers: list[WorkerProcess] = []

    def start(self, stateful_set: str, replicas: int) -> None:
        """Plays the kubelet: starts the workers when the StatefulSet exists."""
        found = self._harness.api.get
        self._harness.wait(
            lambda: found("StatefulSet", stateful_set, SYSTEM_NAMESPACE) is not None,
            f"StatefulSet {stateful_set} exists",
        )
        config = worker_config(found("StatefulSet", stateful_set, SYSTEM_NAMESPACE) or {})
        topics = config.pop("topics", [])
        del config["http_port"]
        for number in range(replicas):
            worker = WorkerProcess(
                self._directory,
                self._harness.connection,
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
def pods(harness: OperatorHarness, tmp_path: Path) -> Iterator[Pods]:
    made = Pods(harness, tmp_path)
    yield made
    made.end()


@contextmanager
def produced(harness: OperatorHarness, topic: str) -> Iterator[list[int]]:
    """Produces records all the time, for both delays, and yields the growing list of their numbers."""
    producer = Producer({"bootstrap.servers": harness.broker.bootstrap, "linger.ms": 5, **IDEMPOTENT})
    sent: list[int] = []

    def produce(number: int) -> None:
        producer.produce(topic, b"%d" % number, headers=[("dt-delay-level", b"%d" % (number % 2 + 1))])
        producer.poll(0)
        sent.append(number)

    with paced(produce, lambda: 200):
        yield sent
    assert producer.flush(60) == 0


def released(harness: OperatorHarness, topic: str) -> int:
    """Returns the number of records that have come out, including repeated ones."""
    name = TopicNames.of(topic).ready
    places = [(name, partition) for partition in range(harness.topics(topic)[name])]
    return sum(end for end in harness.kafka.list_offsets(places, "latest").values() if isinstance(end, int))


def layout(harness: OperatorHarness, topic: str) -> LayoutRecord:
    return harness.registry().layouts[topic]


def test_topics_share_workers_until_one_gets_its_own_and_each_record_comes_out_once(
    harness: OperatorHarness, pods: Pods
) -> None:
    connection = harness.cluster_connection()
    connection["spec"]["sharedWorkers"] = {"replicas": 2}
    harness.api.apply(connection)
    other = f"{harness.topic}-other"
    for name in (harness.topic, other):
        harness.api.apply(harness.delayed_topic(name, delaySeconds=[0, 1], deletionPolicy="Delete"))
    pods.start(SHARED, 2)
    for name in (harness.topic, other):
        harness.wait_until_ready(name)
        assert harness.stateful_set(name) is None
        assert (harness.resource(name) or {})["status"]["workers"]["shared"]

    with produced(harness, harness.topic) as sent, produced(harness, other) as sent_beside:
        harness.wait(lambda: released(harness, harness.topic) > 100, "the shared workers release")
        harness.api.kubectl("scale", "delayedtopic", harness.topic, "--replicas=2", f"--namespace={harness.namespace}")
        harness.wait(lambda: harness.stateful_set() is not None, "the topic gets workers of its own")
        live = harness.stateful_set()
        assert live is not None
        pods.start(live["metadata"]["name"], 2)
        harness.wait_until_ready()
        harness.wait(
            lambda: layout(harness, harness.topic).group == f"delayedtopics.{harness.topic}",
            "its own workers have the topic",
        )
        before = released(harness, harness.topic)
        harness.wait(lambda: released(harness, harness.topic) > before + 200, "its own workers release")

    harness.wait(
        lambda: (released(harness, harness.topic), released(harness, other)) == (len(sent), len(sent_beside)),
        "each record has come out once",
        seen=lambda: (released(harness, harness.topic), len(sent), released(harness, other), len(sent_beside)),
    )
    harness.wait(lambda: harness.registry().topics[harness.topic].handover is None, "the handover is over")
    harness.delete(other)
    assert harness.topics(other) == {}
    assert harness.api.get("StatefulSet", SHARED, SYSTEM_NAMESPACE) is not None


def test_workers_that_were_turned_off_are_looked_after_until_no_topic_needs_them(harness: OperatorHarness) -> None:
    """At first, the quota allows the topic no workers of its own."""

    def allowed(workers: int) -> list[Manifest]:
        return [{"namespaceSelector": {}, "topicPrefixes": [""], "quota": {"workers": workers}}]

    connection = harness.cluster_connection(allow=allowed(0))
    limits = {"memory": "1Gi"}
    connection["spec"]["sharedWorkers"] = {"replicas": 3, "template": {"resources": {"limits": limits}}}
    harness.api.apply(connection)
    harness.apply()
    harness.wait_until_ready()

    host = harness.broker.bootstrap.replace("127.0.0.1", "localhost")
    harness.api.apply(harness.cluster_connection(bootstrap=host, allow=allowed(0)))
    harness.wait_for("WorkersReady", "False", "GrantExceeded")

    def read() -> str:
        secret = harness.api.get("Secret", f"{SHARED}-connection", SYSTEM_NAMESPACE)
        return base64.b64decode(secret["data"]["bootstrap-servers"]).decode() if secret is not None else ""

    harness.wait(lambda: read() == host, "the shared workers have the new connection", seen=read)
    workers = harness.api.get("StatefulSet", SHARED, SYSTEM_NAMESPACE)
    assert workers is not None
    assert workers["spec"]["replicas"] == 3
    assert workers["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == limits
    assert workers["metadata"]["generation"] > 1, "the pods are replaced"
    messages = {c["type"]: c["message"] for c in harness.connection_status()["conditions"]}
    assert f"These have none yet: {harness.topic}." in messages["WorkersReady"]

    writer = EventWriter(harness.connection, client_id="w-0")
    raised = {"reason": "NotReleasing", "message": "nothing comes", "raised": True}
    writer.write(Event(kind="alarm", topic=harness.topic, member=f"{SHARED}-2", at_ms=1, detail=raised))
    writer.close(60)
    harness.wait_for("Alarm", "True", "NotReleasing")
    harness.api.delete("StatefulSet", SHARED, SYSTEM_NAMESPACE)

    def made_again() -> bool:
        found = harness.api.get("StatefulSet", SHARED, SYSTEM_NAMESPACE)
        return found is not None and found["metadata"]["uid"] != workers["metadata"]["uid"]

    harness.wait(made_again, "there are shared workers again")
    harness.api.apply(harness.cluster_connection(bootstrap=host, allow=allowed(1)))
    harness.wait_until_ready()
    harness.wait(
        lambda: harness.api.get("StatefulSet", SHARED, SYSTEM_NAMESPACE) is None, "the shared workers are gone"
    )
    assert layout(harness, harness.topic).group == f"delayedtopics.{harness.topic}"


def test_what_was_forced_away_is_served_no_more_and_keeps_no_shared_workers(harness: OperatorHarness) -> None:
    """Another topic is served on."""
    connection = harness.cluster_connection()
    harness.api.apply({**connection, "spec": {**connection["spec"], "sharedWorkers": {"replicas": 1}}})
    stays = f"{harness.topic}-stays"
    harness.apply()
    harness.api.apply(harness.delayed_topic(stays))
    for name in (harness.topic, stays):
        harness.wait_until_ready(name)
    harness.operator.stop()
    harness.api.kubectl("delete", "delayedtopic", harness.topic, f"--namespace={harness.namespace}", "--wait=false")
    harness.patch("DelayedTopic", harness.topic, {"metadata": {"finalizers": None}}, namespace=harness.namespace)

    harness.replace_operator()

    def states() -> list[str]:
        layouts = harness.registry().layouts
        return [layouts[name].state for name in (harness.topic, stays)]

    harness.wait(
        lambda: states() == ["retired", "serving"], "the layout of the removed resource is retired", seen=states
    )
    assert len(harness.topics()) == 4, "the topics stay in Kafka"

    harness.delete(stays)
    harness.api.apply(connection)
    harness.wait(
        lambda: harness.api.get("StatefulSet", SHARED, SYSTEM_NAMESPACE) is None, "the shared workers are gone"
    )
