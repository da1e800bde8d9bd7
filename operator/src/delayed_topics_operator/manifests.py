"""The objects that a delayed topic needs in Kubernetes, as plain manifests. Pure."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from delayed_topics_core.layout import format_ranges
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_crds import API_VERSION, to_dict
from delayed_topics_crds.delayed_topic import WorkerTemplate
from delayed_topics_crds.schedule import Spark

from delayed_topics_operator.drift import quantity
from delayed_topics_operator.observation import PodSettings, Subject, Wanted

Manifest = dict[str, Any]

APP = "delayed-topics-worker"
MANAGED_BY = "delayed-topics-operator"
NAMESPACE_LABEL = "delayedtopics.io/namespace"
NAME_LABEL = "delayedtopics.io/name"
"""Whose it is; a name that is too long for a label is cut there."""
SERVICE_ACCOUNT = "delayed-topics-worker"
SELECTOR_LABELS = f"app.kubernetes.io/name={APP},app.kubernetes.io/managed-by={MANAGED_BY}"
APPLIED = "delayedtopics.io/applied"
CONFIG_HASH = "delayedtopics.io/config-hash"
CONNECTION_HASH = "delayedtopics.io/connection-hash"

MAX_NAME = 52
"""A StatefulSet's name with the hash of its revision has to fit into a label (63)."""
HASH_DIGITS = 16
"""Fewer could be made to collide with the objects of another tenant."""
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

HTTP_PORT = 8080
COMMIT_INTERVAL_MS = 100
TERMINATION_SECONDS = 30
DEFAULT_RESOURCES = {"requests": {"cpu": "25m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
BASE_MEMORY_BYTES = 192 * 2**20
"""Interpreter, client library and its queues; half of what is left of the memory limit is for windows."""
MIN_WINDOW_BYTES = 16 * 2**20
MAX_WINDOW_BYTES = 2**40
POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Of every pod that the operator makes: what the restricted standard of Kubernetes asks for."""


def object_name(*, namespace: str, name: str, home: str) -> str:
    """Name of the StatefulSet, from which all others are made. Unique in the namespace `home` that they live in."""
    plain = f"{name}-delay"
    if home == namespace and _DNS_LABEL.fullmatch(plain) and len(plain) <= MAX_NAME:
        return plain
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:HASH_DIGITS]
    readable = name.replace(".", "-")
    readable = readable if readable[0].isalpha() else f"dt-{readable}"
    return f"{readable[: MAX_NAME - HASH_DIGITS - 1].rstrip('-')}-{digest}"


def labels(subject: Subject) -> dict[str, str]:
    """Of every object and pod; also what pods are selected by."""
    return {
        "app.kubernetes.io/name": APP,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        NAMESPACE_LABEL: subject.namespace,
        NAME_LABEL: label_value(subject.name),
    }


def selector(subject: Subject) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels(subject).items()))


@dataclass(frozen=True, kw_only=True)
class WorkerSet:
    """A StatefulSet of workers, and what is made around it. `owner_reference`: None where the owner lives in another namespace, whose
    objects can't own these. `labels`: of every object and pod; also what pods are selected by. `service_account`: None: the
    namespace's own."""

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


def worker_set(*, subject: Subject, wanted: Wanted, pods: PodSettings, files: Mapping[str, str]) -> WorkerSet:
    """A delayed topic's own."""
    own = pods.home == subject.namespace
    reference = {
        "apiVersion": API_VERSION,
        "kind": "DelayedTopic",
        "name": subject.name,
        "uid": subject.uid,
        "controller": True,
    }
    return WorkerSet(
        name=object_name(namespace=subject.namespace, name=subject.name, home=pods.home),
        home=pods.home,
        labels=labels(subject),
        owner_reference=reference if own else None,
        service_account=None if own else SERVICE_ACCOUNT,
        replicas=wanted.replicas,
        template=wanted.template,
        config=worker_config(wanted),
        environment={"DELAYED_TOPIC_OWNER": str(subject.owner)},
        files=files,
        pods=pods,
    )


def children(workers: WorkerSet) -> tuple[Manifest, ...]:
    """All of them, in the order in which they are applied."""
    name = workers.name
    selects = dict(workers.labels)
    return (
        _object("v1", "ConfigMap", f"{name}-worker", workers, data={"worker.json": workers.config}),
        _object("v1", "Secret", f"{name}-connection", workers, type="Opaque", data=encoded(workers.files)),
        _object(
            "v1",
            "Service",
            name,
            workers,
            spec={
                "clusterIP": "None",
                "selector": selects,
                "ports": [{"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}],
            },
        ),
        _object(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            workers,
            spec={
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": selects},
            },
        ),
        _object("apps/v1", "StatefulSet", name, workers, spec=_stateful_set(workers)),
    )


def layout_config_map(workers: WorkerSet, record: LayoutRecord) -> Manifest:
    """A copy for people; the truth is the registry."""
    rows = [
        {
            "delaySeconds": kind.delay_seconds,
            "role": record.layout.role(kind),
            "partitions": format_ranges(kind.partitions),
        }
        for kind in record.layout.kinds
    ]
    table = {
        "topic": record.topic,
        "generation": record.layout.generation,
        "state": record.state,
        "delaySeconds": list(record.layout.delay_seconds),
        "retryCap": record.retry_cap,
        "frontPartitions": record.front_partitions,
        "readyPartitions": record.ready_partitions,
        "delaysPartitions": rows,
    }
    return _object(
        "v1", "ConfigMap", f"{workers.name}-layout", workers, data={"layout.json": json.dumps(table, indent=2)}
    )


def worker_config(wanted: Wanted) -> str:
    """worker.json: only what pods are replaced for; the rest is followed in the registry."""
    limit = (_resources(wanted.template).get("limits") or {}).get("memory")
    window_bytes = MIN_WINDOW_BYTES
    if limit is not None:
        for_windows = (int(quantity(limit) or 0) - BASE_MEMORY_BYTES) // 2
        window_bytes = min(max(MIN_WINDOW_BYTES, for_windows), MAX_WINDOW_BYTES)
    body = {
        "topics": [wanted.names.front],
        "http_port": HTTP_PORT,
        "window_bytes": window_bytes,
        "protocol": wanted.protocol.lower(),
        "assignor": wanted.assignor,
        "guarantee": wanted.guarantee,
        "commit_interval_ms": COMMIT_INTERVAL_MS,
    }
    return json.dumps(body, sort_keys=True)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stateful_set(workers: WorkerSet) -> Manifest:
    template, pods = workers.template, workers.pods
    annotations = {
        **(template.annotations or {}),
        **pods.annotations,
        CONFIG_HASH: digest(workers.config),
        CONNECTION_HASH: digest(json.dumps(dict(workers.files), sort_keys=True)),
    }
    return {
        "replicas": workers.replicas,
        "serviceName": workers.name,
        # Not one after the other: with OrderedReady a bad template wedges the set, even after it was reverted.
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": dict(workers.labels)},
        "template": {
            "metadata": {
                "labels": {**(template.labels or {}), **pods.labels, **workers.labels},
                "annotations": annotations,
            },
            "spec": _pod(workers),
        },
    }


def _pod(workers: WorkerSet) -> Manifest:
    template = workers.template
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": TERMINATION_SECONDS,
        "securityContext": POD_SECURITY,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(workers.labels)},
            }
        ],
        "containers": [_container(workers)],
        "volumes": [
            {
                "name": "settings",
                "projected": {
                    "sources": [
                        {
                            "configMap": {
                                "name": f"{workers.name}-worker",
                                "items": [{"key": "worker.json", "path": "worker.json"}],
                            }
                        },
                        {
                            "secret": {
                                "name": f"{workers.name}-connection",
                                "items": [{"key": key, "path": f"connection/{key}"} for key in sorted(workers.files)],
                            }
                        },
                    ]
                },
            }
        ],
    }
    given = {
        **nodes(template),
        "affinity": to_dict(template.affinity) if template.affinity else None,
        "priorityClassName": template.priority_class_name,
        "serviceAccountName": workers.service_account,
    }
    return {**spec, **{key: value for key, value in given.items() if value}}


def nodes(asked: WorkerTemplate | Spark) -> Manifest:
    """Of the spec of a pod: to which nodes it may go."""
    given = {
        "nodeSelector": dict(asked.node_selector or {}),
        "tolerations": [to_dict(toleration) for toleration in asked.tolerations or ()],
    }
    return {key: value for key, value in given.items() if value}


def _container(workers: WorkerSet) -> Manifest:
    return {
        "name": "worker",
        "image": workers.pods.image,
        "imagePullPolicy": workers.pods.image_pull_policy,
        "args": ["--config", "/etc/delayed-topics/worker.json"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            *({"name": name, "value": value} for name, value in workers.environment.items()),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",  # its last line says why
        "ports": [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "volumeMounts": [{"name": "settings", "mountPath": "/etc/delayed-topics", "readOnly": True}],
        "resources": _resources(workers.template),
        "securityContext": CONTAINER_SECURITY,
        # Alive means that its thread turns; it does not depend on Kafka, so that an outage restarts nothing.
        "startupProbe": {"httpGet": {"path": "/livez", "port": "http"}, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": "http"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "http"},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
    }


def _resources(template: WorkerTemplate) -> Manifest:
    given = template.resources
    if given is None:
        return DEFAULT_RESOURCES
    return {key: value for key, value in to_dict(given).items() if value}


def _object(api_version: str, kind: str, name: str, workers: WorkerSet, **body: Any) -> Manifest:
    metadata: Manifest = {"name": name, "namespace": workers.home, "labels": dict(workers.labels)}
    if workers.owner_reference is not None:
        metadata["ownerReferences"] = [workers.owner_reference]
    # A field that is no longer wanted is not missed in the live object; that something else is wanted shows here.
    metadata["annotations"] = {APPLIED: digest(json.dumps([metadata, body], sort_keys=True))}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def encoded(files: Mapping[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(value.encode()).decode() for key, value in files.items()}


def label_value(name: str) -> str:
    """A label's value has at most 63 characters; a resource's name may have more."""
    return name if len(name) <= 63 else f"{name[:54].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
