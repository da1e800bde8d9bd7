"""The objects that workers need in Kubernetes, as plain manifests. Pure."""

import copy
import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from delayed_topics_core.layout import format_ranges
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_crds import to_dict
from delayed_topics_crds.delayed_topic import WorkerTemplate

from delayed_topics_operator.values.manifest import Manifest, encoded
from delayed_topics_operator.values.pod_spec import (
    CONTAINER_SECURITY,
    POD_SECURITY,
    placement,
    replaces_defaults,
    without_defaults,
)
from delayed_topics_operator.values.stateful_sets import IN_PART, INSTALLATION, rolls
from delayed_topics_operator.workers.reconcile.worker_sets import (
    HTTP_PORT,
    PodSettings,
    WorkerSet,
    config,
    resources_of,
)

APPLIED = "delayedtopics.io/applied"
TEMPLATE = "delayedtopics.io/template"
"""An annotation of a StatefulSet: the digest of its pod template, which shows that the operator no longer sets a field of it."""
WORKER_CONFIG = "delayedtopics.io/worker.json"
"""An annotation of each pod: the content of the file worker.json. A pod that restarts while another template is rolled out mounts the file
of its own template."""
CONFIG_FIELD = f"metadata.annotations['{WORKER_CONFIG}']"
CONNECTION_HASH = "delayedtopics.io/connection-hash"

TEMPLATE_HASH = "metadata.labels['controller-revision-hash']"
"""The StatefulSet controller gives each pod this label."""

TERMINATION_SECONDS = 30

Live = Mapping[tuple[str, str], Manifest]
"""The live objects, by kind and name."""


def children(workers: WorkerSet, live: Live) -> tuple[Manifest, ...]:
    """Returns all objects of the workers, in the order in which they are applied. `live`: the present ones."""
    name = workers.name
    selects = dict(workers.labels)
    return (
        connection_secret(workers, live),
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
        _with_template(_stateful_set(workers), workers),
    )


def connection_secret(workers: WorkerSet, live: Live) -> Manifest:
    """Returns the Secret. While pods of a former template exist, it also has the files that only they mount, because a pod that restarts
    can't mount a missing one."""
    name, stateful_set = f"{workers.name}-connection", live.get(("StatefulSet", workers.name))
    former: Mapping[str, str] = {}
    if stateful_set is not None and (rolls(stateful_set) or _mounts_others(stateful_set, workers)):
        former = (live.get(("Secret", name)) or {}).get("data") or {}
    return _object("v1", "Secret", name, workers, type="Opaque", data={**former, **encoded(workers.files)})


def _mounts_others(stateful_set: Manifest, workers: WorkerSet) -> bool:
    annotations = stateful_set["spec"]["template"]["metadata"].get("annotations") or {}
    return bool(annotations.get(CONNECTION_HASH) != _connection_hash(workers))


def reconnected(live: Manifest, workers: WorkerSet) -> Manifest | None:
    """Returns the live StatefulSet with the replicas and the connection files of `workers`, and everything else unchanged. None if it has
    them already."""
    spec = copy.deepcopy(live["spec"])
    spec["replicas"] = workers.replicas
    pod = spec["template"]
    pod["metadata"].setdefault("annotations", {})[CONNECTION_HASH] = _connection_hash(workers)
    for volume in pod["spec"].get("volumes", ()):
        for source in volume.get("projected", {}).get("sources", ()):
            if volume["name"] == "settings" and "secret" in source:
                source["secret"] = _connection_files(workers)
    if spec == live["spec"]:
        return None
    annotations = live["metadata"].get("annotations") or {}
    kept = {key: annotations[key] for key in (TEMPLATE, INSTALLATION) if key in annotations}
    return _object("apps/v1", "StatefulSet", workers.name, workers, annotations=kept, spec=spec)


def template_of(live: Manifest, *, labels: Mapping[str, str], pods: PodSettings) -> WorkerTemplate:
    """Returns the template of the resource from which the live StatefulSet was made. `labels`, `pods`: what the StatefulSet has in
    addition."""
    pod = live["spec"]["template"]
    beside = {
        "labels": {*pods.labels, *labels},
        "annotations": {*pods.annotations, WORKER_CONFIG, CONNECTION_HASH},
    }
    container: Manifest = next((c for c in pod["spec"]["containers"] if c["name"] == "worker"), {})
    return WorkerTemplate.model_validate(
        {
            **{
                field: {key: value for key, value in (pod["metadata"].get(field) or {}).items() if key not in known}
                for field, known in beside.items()
            },
            "resources": container.get("resources"),
            "affinity": pod["spec"].get("affinity"),
            **without_defaults(pod["spec"], pods.defaults),
        },
        by_alias=True,
        by_name=False,
    )


def layout_config_map(workers: WorkerSet, record: LayoutRecord) -> Manifest:
    """Returns a copy of the layout for people. Only the registry is authoritative."""
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


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def installation(pods: PodSettings) -> str:
    """Returns the digest of the pod template of workers for which no resource asks for anything."""
    template = WorkerTemplate()
    nobodys = WorkerSet(
        name="",
        home="",
        labels={},
        owner_reference=None,
        service_account=None,
        replicas=1,
        template=template,
        config=config(template),
        environment={},
        files={},
        pods=pods,
    )
    return digest(json.dumps(_stateful_set(nobodys)["template"], sort_keys=True))


def _with_template(spec: Manifest, workers: WorkerSet) -> Manifest:
    in_part = IN_PART if replaces_defaults(workers.template, workers.pods.defaults) else ""
    annotations = {
        TEMPLATE: digest(json.dumps(spec["template"], sort_keys=True)),
        INSTALLATION: installation(workers.pods) + in_part,
    }
    return _object("apps/v1", "StatefulSet", workers.name, workers, annotations=annotations, spec=spec)


def _stateful_set(workers: WorkerSet) -> Manifest:
    template, pods = workers.template, workers.pods
    annotations = {
        **(template.annotations or {}),
        **pods.annotations,
        WORKER_CONFIG: workers.config,
        CONNECTION_HASH: _connection_hash(workers),
    }
    return {
        "replicas": workers.replicas,
        "serviceName": workers.name,
        # With OrderedReady, a bad template blocks the StatefulSet even after it was reverted.
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


def _connection_hash(workers: WorkerSet) -> str:
    return digest(json.dumps(dict(workers.files), sort_keys=True))


def _connection_files(workers: WorkerSet) -> Manifest:
    """Returns the files of the connection as a source of a projected volume."""
    items = [{"key": key, "path": f"connection/{key}"} for key in sorted(workers.files)]
    return {"name": f"{workers.name}-connection", "items": items}


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
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(workers.labels)},
            }
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        "containers": [_container(workers)],
        "volumes": [
            {
                "name": "settings",
                "projected": {
                    "sources": [
                        {"downwardAPI": {"items": [{"path": "worker.json", "fieldRef": {"fieldPath": CONFIG_FIELD}}]}},
                        {"secret": _connection_files(workers)},
                    ]
                },
            }
        ],
    }
    given = {
        **placement(template, workers.pods.defaults),
        "affinity": to_dict(template.affinity) if template.affinity else None,
        "serviceAccountName": workers.service_account,
    }
    return {**spec, **{key: value for key, value in given.items() if value}}


def _container(workers: WorkerSet) -> Manifest:
    return {
        "name": "worker",
        "image": workers.pods.image,
        "imagePullPolicy": workers.pods.image_pull_policy,
        "args": ["--config", "/etc/delayed-topics/worker.json"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_TEMPLATE", "valueFrom": {"fieldRef": {"fieldPath": TEMPLATE_HASH}}},
            *({"name": name, "value": value} for name, value in workers.environment.items()),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the last line of the log says why it ended
        "ports": [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "volumeMounts": [{"name": "settings", "mountPath": "/etc/delayed-topics", "readOnly": True}],
        "resources": resources_of(workers.template),
        "securityContext": CONTAINER_SECURITY,
        # Liveness means that the main loop runs. It does not depend on Kafka, so that an outage of Kafka restarts no pods.
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


def _object(
    api_version: str,
    kind: str,
    name: str,
    workers: WorkerSet,
    *,
    annotations: Mapping[str, str] = MappingProxyType({}),
    **body: Any,
) -> Manifest:
    metadata: Manifest = {"name": name, "namespace": workers.home, "labels": dict(workers.labels)}
    if workers.owner_reference is not None:
        metadata["ownerReferences"] = [workers.owner_reference]
    # A field that is no longer wanted is no drift of the live object. This digest shows that the manifest has changed.
    metadata["annotations"] = {**annotations, APPLIED: digest(json.dumps([metadata, body], sort_keys=True))}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}
