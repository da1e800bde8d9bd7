"""API server, broker and operator together, with the calls that most tests need."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_kafka.registry import RegistryFollower
from delayed_topics_operator.engine.lease import LEASE
from delayed_topics_operator.values.manifest import Manifest

from delayed_topics_operator_testing.kube_api import KubeApi, unless_gone
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.rights import give_the_rights_of_the_chart

_numbers = itertools.count(1)
DELETE_SECONDS = 180


class OperatorHarness:
    """`namespace`, `topic`: names that no other test uses."""

    def __init__(self, api: KubeApi, broker: Broker, operator: OperatorProcess) -> None:
        self.api = api
        self.broker = broker
        self.operator = operator
        number = next(_numbers)
        self.namespace = f"shop-{number}"
        self.topic = f"orders-{number}"
        self.connection = Connection(bootstrap_servers=broker.bootstrap)
        self.kafka = KafkaAdmin(self.connection, timeout_seconds=60)
        self.rights_are_taken = False
        """Whether calls of the operator may be refused, because the test revokes rights."""

    def open(self, *, allow: list[Manifest] | None = None, let_in: bool = False) -> None:
        """Starts the operator. `let_in`: whether it has rights in the namespace of this test."""
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        if let_in:
            give_the_rights_of_the_chart(self.api.server, tenants=[self.namespace])
        self.api.apply(self.cluster_connection(allow=allow))
        self.operator.start()

    @contextmanager
    def opened(self, *, allow: list[Manifest] | None = None, let_in: bool = False) -> Iterator[Self]:
        """Opens the harness, and closes it in any case."""
        try:
            self.open(allow=allow, let_in=let_in)
            yield self
        finally:
            self.close()

    def replace_operator(self, *arguments: str, tenants: Sequence[str] = ()) -> None:
        """Replaces the operator by one with further arguments. `tenants`: namespaces that admit it."""
        if tenants:
            give_the_rights_of_the_chart(self.api.server, tenants=tenants)
        flags = (f"--tenant-namespace={tenant}" for tenant in tenants)
        self.operator.stop()
        self.operator = OperatorProcess(self.api, "--resync-seconds=3", *flags, *arguments)
        self.operator.start()

    def close(self) -> None:
        """Removes what the test made, without the operator, which may be dead."""
        self.operator.kill()
        for kind in ("DelayedTopicAudit", "DelayedTopic", "KafkaConnection", "ClusterKafkaConnection"):
            for found in self.api.list_all(kind):
                meta = found["metadata"]
                name, namespace = meta["name"], meta.get("namespace", "")
                if meta.get("finalizers"):
                    self.api.merge(kind, name, {"metadata": {"finalizers": None}}, namespace)
                self.api.delete(kind, name, namespace)
        for kind in ("StatefulSet", "Service", "PodDisruptionBudget", "ConfigMap", "Secret"):
            self.api.delete_all(kind, SYSTEM_NAMESPACE, "app.kubernetes.io/name=delayed-topics-worker")
        for lease in self.api.list_all("Lease"):
            if lease["metadata"]["name"] == LEASE:
                self.api.delete("Lease", LEASE, lease["metadata"]["namespace"])
        self.operator.close()

    def cluster_connection(
        self, name: str = "default", *, bootstrap: str = "", allow: list[Manifest] | None = None
    ) -> Manifest:
        return {
            "apiVersion": "delayedtopics.io/v1alpha1",
            "kind": "ClusterKafkaConnection",
            "metadata": {"name": name},
            "spec": {
                "bootstrapServers": [bootstrap or self.broker.bootstrap],
                "allow": [{"namespaceSelector": {}, "topicPrefixes": [""]}] if allow is None else allow,
            },
        }

    def delayed_topic(
        self, name: str = "", *, namespace: str = "", annotations: Manifest | None = None, **spec: Any
    ) -> Manifest:
        return {
            "apiVersion": "delayedtopics.io/v1alpha1",
            "kind": "DelayedTopic",
            "metadata": {
                "name": name or self.topic,
                "namespace": namespace or self.namespace,
                "annotations": annotations or {},
            },
            "spec": {"delaySeconds": [0, 10], **spec},
        }

    def connection_status(self, name: str = "default") -> Manifest:
        return dict((self.api.get("ClusterKafkaConnection", name) or {}).get("status") or {})

    def apply(self, **spec: Any) -> None:
        """Applies the DelayedTopic of this test."""
        self.api.apply(self.delayed_topic(**spec))

    def resource(self, name: str = "", namespace: str = "") -> Manifest | None:
        return self.api.get("DelayedTopic", name or self.topic, namespace or self.namespace)

    def condition(self, kind: str, name: str = "", namespace: str = "") -> Manifest:
        """Returns the condition, empty if there is none (yet)."""
        found = (self.resource(name, namespace) or {}).get("status", {}).get("conditions", [])
        return next((c for c in found if c["type"] == kind), {})

    def wait(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        seen: Callable[[], object] | None = None,
        seconds: float = 180,
    ) -> None:
        """`seen`: called when the wait has timed out, for what there is instead."""
        wait_until(condition, what=what, timeout_seconds=seconds, poll_seconds=0.2, evidence=seen)

    def wait_for(
        self, kind: str, status: str, reason: str = "", *, name: str = "", namespace: str = "", seconds: float = 180
    ) -> None:
        """Waits until the DelayedTopic has this condition."""

        def met() -> bool:
            found = self.condition(kind, name, namespace)
            return found.get("status") == status and (not reason or found["reason"] == reason)

        self.wait(
            met, f"{kind} is {status} {reason}", seen=lambda: self.condition(kind, name, namespace), seconds=seconds
        )

    def wait_until_served(self, name: str = "", namespace: str = "", seconds: float = 180) -> None:
        """Waits until topics, layout and workers exist. Without nodes, workers never become ready."""
        self.wait_for("TopicsReady", "True", name=name, namespace=namespace, seconds=seconds)
        self.wait(lambda: self.stateful_set(name, namespace) is not None, "there are workers", seconds=seconds)

    def made(self, kind: str, name: str = "", namespace: str = "") -> list[Manifest]:
        """Returns the objects of this kind that were made for the DelayedTopic, wherever they are."""
        labels = {
            "delayedtopics.io/name": name or self.topic,
            "delayedtopics.io/namespace": namespace or self.namespace,
        }
        return [o for o in self.api.list_all(kind) if labels.items() <= o["metadata"].get("labels", {}).items()]

    def stateful_set(self, name: str = "", namespace: str = "") -> Manifest | None:
        return next(iter(self.made("StatefulSet", name, namespace)), None)

    def events(self, reason: str, namespace: str = "") -> list[dict[str, Any]]:
        """Returns Events of the namespace, by default this test's own. An Event that someone else wrote may have no reason."""
        found = self.api.list_all("Event", namespace or self.namespace)
        return [event for event in found if event.get("reason") == reason]

    def wait_event(self, reason: str, *words: str, namespace: str = "") -> None:
        """Waits until one of `events` has a message with these words."""

        def messages() -> list[str]:
            return [event["message"] for event in self.events(reason, namespace)]

        self.wait(
            lambda: any(all(word in message for word in words) for message in messages()),
            f"an Event {reason} with {words}",
            seen=messages,
        )

    @contextmanager
    def no_room(self, namespace: str, resource: str) -> Iterator[None]:
        """Lets no more of this be created in the namespace. `resource`: as in a quota, such as pods."""
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-room", "namespace": namespace}}
        self.api.kubectl("apply", "-f", "-", text_in=json.dumps({**quota, "spec": {"hard": {resource: "0"}}}))
        where = ("quota", "no-room", f"--namespace={namespace}")
        try:
            self.api.kubectl("wait", *where, "--for=jsonpath={.status.hard}", "--timeout=180s")
            yield
        finally:
            self.api.kubectl("delete", *where)

    def registry(self) -> RegistryState:
        with RegistryFollower(self.connection) as follower:
            follower.catch_up(120)
            return follower.state

    def topics(self, topic: str = "") -> dict[str, int]:
        """Returns the number of partitions of each topic that exists, by name."""
        found = self.kafka.describe_topics(TopicNames.of(topic or self.topic).possible)
        return {name: getattr(info, "partitions", 0) for name, info in found.items() if info is not None}

    def topic_ids(self) -> dict[str, str]:
        """Returns the ids of the topics that exist, by name."""
        found = self.kafka.describe_topics(TopicNames.of(self.topic).possible)
        return {name: info.id for name, info in found.items() if isinstance(info, TopicInfo)}

    def settings(self, topic: str) -> dict[str, str]:
        found = self.kafka.topic_configs([topic])[topic]
        assert isinstance(found, dict), found
        return found

    def wait_until_ready(self, name: str = "", namespace: str = "") -> None:
        """Waits until Ready is True. The test plays the kubelet, and every worker pod comes up at once."""

        def ready() -> bool:
            self.play_kubelet()
            return self.condition("Ready", name, namespace).get("status") == "True"

        self.wait(ready, f"{name or self.topic} is ready", seen=lambda: self.condition("Ready", name, namespace))

    def play_kubelet(self) -> None:
        """Makes every pending pod run and be ready."""
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for pod in self.api.list_all("Pod", SYSTEM_NAMESPACE):
            if pod["status"]["phase"] == "Pending":
                meta = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
                status = {"phase": "Running", "conditions": [condition]}
                runs = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": status}
                with unless_gone():  # a pod that an earlier test has left may be gone
                    self.api.apply(runs, subresource="status")

    def delete(self, name: str = "", namespace: str = "") -> None:
        """Deletes the DelayedTopic. Returns when it is gone."""
        where = f"--namespace={namespace or self.namespace}"
        self.api.kubectl("delete", "delayedtopic", name or self.topic, where, f"--timeout={DELETE_SECONDS}s")

    def patch(self, kind: str, name: str, patch: Manifest, *, namespace: str = "") -> None:
        self.api.merge(kind, name, patch, namespace)
