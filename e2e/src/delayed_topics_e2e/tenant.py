"""A team that uses delayed topics: its namespace, resources and topics, and their cleanup."""

import json
import random
import signal
import string
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.names import TopicNames
from delayed_topics_devcluster.context import Cluster

from delayed_topics_e2e.checker import Checker, DelayOf, delay_by_list
from delayed_topics_e2e.kube import Kube, Manifest, condition
from delayed_topics_e2e.node import processes_of, send_signal
from delayed_topics_e2e.plain import Kafka
from delayed_topics_e2e.waiting import until

__all__ = [
    "API_VERSION",
    "Declared",
    "Install",
    "Tenant",
    "Tenants",
    "cluster_connection",
    "set_tenant_namespaces",
    "unique",
]

API_VERSION = "delayedtopics.io/v1alpha1"
CHART = Path(__file__).parents[3] / "charts" / "delayed-topics"
READY_TIMEOUT_SECONDS = 180.0
SHOWN = 3  # how many resources of a failed story `evidence` shows; there can be fifty
AUDIT_TIMEOUT_SECONDS = 600.0  # ten times as long as an audit takes when nothing else uses the two cores


def unique(prefix: str) -> str:
    return prefix + "-" + "".join(random.choices(string.ascii_lowercase + string.digits, k=5))


@dataclass(frozen=True, kw_only=True)
class Install:
    """The installation under test. `own_node`: whether the node is this machine, so that processes can be killed by id."""

    cluster: Cluster
    kube: Kube
    kafka: Kafka
    namespace: str
    release: str
    own_node: bool

    def operator_pods(self) -> Sequence[dict[str, Any]]:
        return self.kube.list("pods", namespace=self.namespace, labels={"app.kubernetes.io/component": "operator"})

    def operator_log(self, lines: int = 60) -> str:
        names = [pod["metadata"]["name"] for pod in self.operator_pods()]
        return "\n".join(self.kube.logs(name, namespace=self.namespace, lines=lines) for name in names)


@dataclass
class Declared:
    """One DelayedTopic: what was declared, and its state on the cluster."""

    install: Install
    namespace: str
    name: str
    topic: str
    workers_in: str
    spec: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> TopicNames:
        return TopicNames.of(self.topic)

    @property
    def kube(self) -> Kube:
        return self.install.kube

    @property
    def kafka(self) -> Kafka:
        return self.install.kafka

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the worker pods and of all other objects that the operator makes for this resource."""
        return {"delayedtopics.io/namespace": self.namespace, "delayedtopics.io/name": self.name}

    def manifest(self, **changes: Any) -> Manifest:
        self.spec.update(changes)
        return {
            "apiVersion": API_VERSION,
            "kind": "DelayedTopic",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {"topic": self.topic, **self.spec},
        }

    def apply(self, **changes: Any) -> "Declared":
        """Runs `kubectl apply` on the present manifest with these changes. Raises CommandFailedError if the API server refuses it."""
        self.kube.apply(self.manifest(**changes))
        return self

    def resource(self) -> dict[str, Any] | None:
        return self.kube.get("delayedtopic", self.name, namespace=self.namespace)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = (self.resource() or {}).get("status", {})
        return found

    def wait_ready(self, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> "Declared":
        self.kube.wait(
            "delayedtopic",
            self.name,
            namespace=self.namespace,
            until_it="condition=Ready",
            timeout_seconds=timeout_seconds,
        )
        return self

    def wait_condition(
        self, type_: str, status: str, *, reason: str | None = None, timeout_seconds: float = 180
    ) -> dict[str, Any]:
        return until(
            lambda: condition(self.resource(), type_),
            what=f"{self.name}: {type_}={status} {reason or ''}",
            enough=lambda c: c.get("status") == status and reason in (None, c.get("reason")),
            timeout_seconds=timeout_seconds,
        )

    def wait_front_settled(self) -> None:
        """Waits until workers have committed all records of the front topic: each came out, or waits in the delays topic."""

        def behind() -> dict[int, int]:
            committed = self.kafka.committed(self.names.group)
            ends = self.kafka.ends(self.topic).items()
            return {p: end for p, end in ends if end and committed[self.topic, p].offset != end}

        until(behind, what=f"{self.topic} is settled", enough=lambda found: not found)

    def pods(self) -> Sequence[dict[str, Any]]:
        return self.kube.list("pods", namespace=self.workers_in, labels=self.labels)

    def kill(self, pod: Manifest) -> None:
        """Sends SIGKILL to a worker's process, so that its container restarts. On another machine's node, deletes the pod without a
        grace period instead."""
        name = pod["metadata"]["name"]
        if self.install.own_node:
            pids = processes_of(pod["metadata"]["uid"])
            assert pids, f"no process of {name} is on this machine"
            send_signal(pids, signal.SIGKILL)
        else:
            self.kube.delete("pod", name, namespace=self.workers_in, now=True)

    def child(self, kind: str, *, suffix: str = "") -> dict[str, Any]:
        """Returns the only object of this kind that the operator made for this resource. `suffix`: of the object's name."""
        found = [
            child
            for child in self.kube.list(kind, namespace=self.workers_in, labels=self.labels)
            if child["metadata"]["name"].endswith(suffix)
        ]
        names = [child["metadata"]["name"] for child in found]
        assert len(found) == 1, f"{self.name}: one {kind} is expected, but there are {names}"
        return found[0]

    def scale(self, replicas: int) -> None:
        self.kube.kubectl("scale", "dtopic", self.name, "-n", self.namespace, f"--replicas={replicas}")

    def events(self) -> Sequence[dict[str, Any]]:
        return self.kube.events(self.namespace, about=self.name)

    def wait_event(self, *, mentions: Sequence[str], timeout_seconds: float = 180) -> dict[str, Any]:
        """Waits for an Event of the resource whose reason and message contain all these words."""

        def look() -> dict[str, Any]:
            return next((e for e in self.events() if all(w in f"{e['reason']} {e['message']}" for w in mentions)), {})

        return until(look, what=f"{self.name}: an Event with {mentions}", timeout_seconds=timeout_seconds)

    def checker(self, delay_of: DelayOf | None = None) -> Checker:
        return Checker(self.kafka, self.topic, delay_of or delay_by_list(self.spec["delaySeconds"]))

    def audit(self, name: str, *, timeout_seconds: float = AUDIT_TIMEOUT_SECONDS, **spec: Any) -> dict[str, Any]:
        """Applies a DelayedTopicAudit of this topic, and waits for its verdict. Returns the status of the audit."""
        self.start_audit(name, **spec)
        return self.audited(name, timeout_seconds=timeout_seconds)

    def start_audit(self, name: str, **spec: Any) -> None:
        self.kube.apply(
            {
                "apiVersion": API_VERSION,
                "kind": "DelayedTopicAudit",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"delayedTopicRef": {"name": self.name}, "maxLatenessMs": 600_000, **spec},
            }
        )

    def audited(self, name: str, *, timeout_seconds: float = AUDIT_TIMEOUT_SECONDS) -> dict[str, Any]:
        """Waits for the verdict of an audit. Returns its status."""
        self.kube.wait(
            "dtaudit",
            name,
            namespace=self.namespace,
            until_it="condition=Complete",
            timeout_seconds=timeout_seconds,
            evidence=lambda: self._described("dtaudit", name, self.audit_pods(name)),
        )
        status: dict[str, Any] = self.audit_resource(name)["status"]
        return status

    def audit_resource(self, name: str) -> dict[str, Any]:
        """The DelayedTopicAudit; empty if there is none."""
        return self.kube.get("dtaudit", name, namespace=self.namespace) or {}

    def window(self, status: Mapping[str, Any]) -> AuditWindow:
        """Returns the window that an audit with this status has frozen."""
        home, _, name = status["windowConfigMap"].partition("/")
        (packed,) = (self.kube.get("configmap", name, namespace=home) or {})["binaryData"].values()
        return AuditWindow.decode(b64decode(packed))

    def audit_pods(self, name: str, **labels: str) -> Sequence[dict[str, Any]]:
        """Returns the pods of an audit's Job; none before the Job exists. `labels`: further labels to select by."""
        home, _, job = str(self.audit_resource(name).get("status", {}).get("jobName", "")).partition("/")
        return self.kube.list("pods", namespace=home, labels={"delayedtopics.io/audit": job, **labels}) if job else ()

    def delete(self, *, wait_seconds: int = 60) -> None:
        self.kube.delete("delayedtopic", self.name, namespace=self.namespace)
        self.kube.wait_gone("delayedtopic", self.name, namespace=self.namespace, timeout_seconds=wait_seconds)

    def evidence(self) -> str:
        return self._described("delayedtopic", self.name, self.pods())

    def _described(self, kind: str, name: str, pods: Sequence[dict[str, Any]]) -> str:
        places = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods]
        return "\n".join(
            [
                self.kube.describe(kind, name, namespace=self.namespace),
                *(self.kube.describe("pod", pod, namespace=home)[-1500:] for home, pod in places),
                *(f"--- log of {pod}\n{self.kube.logs(pod, namespace=home, lines=25)}" for home, pod in places),
                "--- operator log",
                self.install.operator_log(),
            ]
        )


@dataclass
class Tenant:
    """A namespace of a test's own, with topic names of its own."""

    install: Install
    namespace: str
    declared: list[Declared] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, install: Install, story: str, *, labels: Mapping[str, str] | None = None) -> "Tenant":
        namespace = unique(f"e2e-{story}")
        install.kube.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": dict(labels or {})}}
        )
        return cls(install=install, namespace=namespace)

    def declare(self, name: str, *, topic: str | None = None, workers_in: str | None = None, **spec: Any) -> Declared:
        """Returns a DelayedTopic on a topic named after this tenant, by default with short delays. `apply` creates it."""
        declared = Declared(
            install=self.install,
            namespace=self.namespace,
            name=name,
            topic=topic or f"{self.namespace}.{name}",
            workers_in=workers_in or self.install.namespace,
            spec={"delaySeconds": [0, 1, 2], "deletionPolicy": "Delete", **spec},
        )
        self.declared.append(declared)
        return declared

    def request_deletion(self) -> None:
        """Requests the deletion of the resources with their topics, without waiting for it; `finish_deletion` waits."""
        kube = self.install.kube
        for resource in kube.list("delayedtopics", namespace=self.namespace):
            name = resource["metadata"]["name"]
            kube.patch("delayedtopic", name, {"spec": {"deletionPolicy": "Delete"}}, namespace=self.namespace)
        kube.delete("delayedtopics", "--all", namespace=self.namespace)

    def finish_deletion(self) -> None:
        """Waits until the resources are deleted; then deletes the namespace, and all topics that were made by hand."""
        # no topic is deleted while Kafka is down, and another story may have stopped it for two minutes
        self.install.kube.delete("delayedtopics", "--all", namespace=self.namespace, wait_seconds=600)
        self.install.kube.delete("namespace", self.namespace)
        mine = [topic for topic in self.install.kafka.topics() if topic.startswith(self.namespace)]
        self.install.kafka.delete(*mine)


@contextmanager
def cluster_connection(install: Install, name: str, **grant: Any) -> Iterator[str]:
    """Makes a ClusterKafkaConnection to the same Kafka, with one entry in `allow`, and deletes it when no DelayedTopic uses it."""
    kube = install.kube
    default = kube.get("clusterkafkaconnection", "default")
    assert default is not None, "the chart was installed without its default connection"
    spec = {"bootstrapServers": default["spec"]["bootstrapServers"], "allow": [grant]}
    kube.apply({"apiVersion": API_VERSION, "kind": "ClusterKafkaConnection", "metadata": {"name": name}, "spec": spec})
    yield name
    until(
        lambda: [d["metadata"]["name"] for d in kube.list("dtopic") if d["spec"]["connectionRef"]["name"] == name],
        what=f"no DelayedTopic uses the connection {name}",
        enough=lambda users: not users,
        poll_seconds=1,
    )
    kube.delete("clusterkafkaconnection", name)


def set_tenant_namespaces(install: Install, namespaces: Sequence[str]) -> None:
    """Runs `helm upgrade` with these tenantNamespaces, and leaves all other values as they are."""
    install.cluster.helm(
        *("upgrade", install.release, CHART, "--namespace", install.namespace, "--reset-then-reuse-values"),
        *("--set-json", f"tenantNamespaces={json.dumps(namespaces)}", "--wait", "--timeout", "3m"),
    )


@dataclass
class Tenants:
    """Makes tenants for a story, each with its own namespace; keyword arguments are labels of the namespace."""

    install: Install
    story: str
    made: list[Tenant] = field(default_factory=list)

    def __call__(self, **labels: str) -> Tenant:
        self.made.append(Tenant.start(self.install, self.story, labels=labels))
        return self.made[-1]

    def evidence(self) -> str:
        """The state of the first resources, for the message of a failed story."""
        declared = [one for tenant in self.made for one in tenant.declared]
        shown = [one.evidence() for one in declared[:SHOWN]]
        return "\n".join([*shown, f"{len(declared)} resources were declared, of which {len(shown)} are shown"])
