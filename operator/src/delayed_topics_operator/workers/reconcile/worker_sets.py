"""Defines the names, labels and configuration of workers in Kubernetes. `manifests` makes the objects from them. Pure."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from delayed_topics_crds import API_VERSION, to_dict
from delayed_topics_crds.connection import SharedWorkers
from delayed_topics_crds.delayed_topic import WorkerTemplate

from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.labels import CONNECTION_KIND_LABEL, CONNECTION_LABEL, OF_WORKERS, label_value
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.pod_spec import PodDefaults
from delayed_topics_operator.values.quantity import quantity

SERVICE_ACCOUNT = "delayed-topics-worker"

MAX_NAME = 52
"""The name of a StatefulSet, together with the hash of its revision, has to fit into a label (63 characters)."""
HASH_DIGITS = 16
"""With fewer digits, somebody could make a name that collides with the objects of another tenant."""
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

HTTP_PORT = 8080
COMMIT_INTERVAL_MS = 100
DEFAULT_RESOURCES = {"requests": {"cpu": "25m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
BASE_MEMORY_BYTES = 192 * 2**20
"""The memory of the interpreter, the client library and its queues. Half of the rest of the memory limit is for windows."""
MIN_WINDOW_BYTES = 16 * 2**20
MAX_WINDOW_BYTES = 2**40


def object_name(*, namespace: str, name: str, home: str) -> str:
    """Returns the name of the StatefulSet, from which the names of all other objects are made. It is unique in the namespace `home` of the
    objects."""
    plain = f"{name}-delay"
    return plain if home == namespace and _fits(plain) else _hashed(name, f"{namespace}/{name}")


def shared_name(connection: Key) -> str:
    """Like `object_name`, for the workers that the DelayedTopics of a connection share."""
    of_cluster = connection.kind == "ClusterKafkaConnection"
    plain = f"{connection.name}-{'cluster-shared' if of_cluster else 'shared'}"
    return plain if _fits(plain) else _hashed(connection.name, f"{connection.kind}/{connection.name}")


def _fits(name: str) -> bool:
    return _DNS_LABEL.fullmatch(name) is not None and len(name) <= MAX_NAME


def _hashed(name: str, whole: str) -> str:
    digest = hashlib.sha256(whole.encode()).hexdigest()[:HASH_DIGITS]
    readable = name.replace(".", "-")
    readable = readable if readable[0].isalpha() else f"dt-{readable}"
    return f"{readable[: MAX_NAME - HASH_DIGITS - 1].rstrip('-')}-{digest}"


def shared_labels(connection: Key) -> dict[str, str]:
    """Returns the labels of all objects and pods of the workers that the DelayedTopics of a connection share."""
    return {**OF_WORKERS, CONNECTION_KIND_LABEL: connection.kind, CONNECTION_LABEL: label_value(connection.name)}


def selector(of_pods: Mapping[str, str]) -> str:
    """Returns the label selector for pods with these labels, as a string."""
    return ",".join(f"{key}={value}" for key, value in sorted(of_pods.items()))


@dataclass(frozen=True, kw_only=True)
class PodSettings:
    """What the operator itself adds to worker pods. `allowed`: whether it has rights in the namespace that the pods belong to. `labels`,
    `annotations`: those that every pod has in this installation. `defaults`: where pods run."""

    image: str
    image_pull_policy: str
    home: str
    allowed: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    defaults: PodDefaults = field(default_factory=PodDefaults)


@dataclass(frozen=True, kw_only=True)
class WorkerSet:
    """A StatefulSet of workers and the objects around it. `owner_reference`: None if the owner lives in another namespace, because it can't
    own these objects. `labels`: those of all objects and pods, which are also the selector of the pods. `service_account`: None for the
    default one of the namespace."""

    name: str
    home: str
    labels: Mapping[str, str]
    owner_reference: Manifest | None
    service_account: str | None
    replicas: int
    template: WorkerTemplate
    config: str
    environment: Mapping[str, str]
    files: Mapping[str, str] = field(repr=False)
    pods: PodSettings


def owner_reference(kind: str, name: str, uid: str) -> Manifest:
    """Returns the owner reference for an object that is deleted together with this resource."""
    return {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid, "controller": True}


def shared_worker_set(
    *,
    connection: Key,
    uid: str,
    group: str,
    asked: SharedWorkers,
    pods: PodSettings,
    files: Mapping[str, str],
) -> WorkerSet:
    """Returns the description of the workers that a connection shares. `group`: the consumer group. Partitions come and go with the delayed
    topics, so the assignor is `Sticky`, which does not interrupt the partitions that stay."""
    template = asked.template or WorkerTemplate()
    return WorkerSet(
        name=shared_name(connection),
        home=pods.home,
        labels=shared_labels(connection),
        owner_reference=owner_reference(connection.kind, connection.name, uid),
        service_account=None if connection.namespace else SERVICE_ACCOUNT,
        replicas=asked.replicas,
        template=template,
        config=config(template, group=group, protocol="classic", assignor="Sticky", guarantee="AtLeastOnce"),
        environment={},
        files=files,
        pods=pods,
    )


def config(template: WorkerTemplate, **further: Any) -> str:
    """Returns worker.json. `further`: what differs between workers with the same template."""
    limit = (resources_of(template).get("limits") or {}).get("memory")
    window_bytes = MIN_WINDOW_BYTES
    if limit is not None:
        for_windows = (int(quantity(limit) or 0) - BASE_MEMORY_BYTES) // 2
        window_bytes = min(max(MIN_WINDOW_BYTES, for_windows), MAX_WINDOW_BYTES)
    body = {
        "http_port": HTTP_PORT,
        "window_bytes": window_bytes,
        "commit_interval_ms": COMMIT_INTERVAL_MS,
        **further,
    }
    return json.dumps(body, sort_keys=True)


def resources_of(template: WorkerTemplate) -> Manifest:
    given = template.resources
    if given is None:
        return DEFAULT_RESOURCES
    return {key: value for key, value in to_dict(given).items() if value}
