"""The objects of an audit as plain manifests: the ConfigMap, the Secret, and the Job or SparkApplication. Pure."""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_crds import API_VERSION
from delayed_topics_crds.schedule import mebibytes

from delayed_topics_operator.audits.reconcile import executors, spark_application
from delayed_topics_operator.audits.reconcile.local_disk import LocalDisk, local_disk
from delayed_topics_operator.audits.reconcile.observation import AuditObservation
from delayed_topics_operator.audits.reconcile.storage import storage
from delayed_topics_operator.values.labels import MANAGED_BY, NAME_LABEL, NAMESPACE_LABEL, label_value
from delayed_topics_operator.values.manifest import Manifest, encoded
from delayed_topics_operator.values.pod_spec import CONTAINER_SECURITY, POD_SECURITY, placement

APP = "delayed-topics-audit"
SELECTOR_LABELS = f"app.kubernetes.io/name={APP},app.kubernetes.io/managed-by={MANAGED_BY}"
AUDIT_LABEL = "delayedtopics.io/audit"
"""The label of all objects of an audit, and of the pods of its executors. Its value is the name of the Job."""
CONTAINER = "audit"
WINDOW_KEY = "window.json.gz"
TOPIC_UID = "delayedtopics.io/delayed-topic-uid"
"""Annotation of the window: the UID of the DelayedTopic whose offsets were frozen, since another one may get its name."""
KEPT_SECONDS = "delayedtopics.io/kept-seconds"
"""Annotation of the Job or SparkApplication: how long the connection's grant lets it be kept. At its end, the grant may be unknown."""
MAX_NAME = 54
"""The longest name of a Job. The name of its pod has six characters more, and is also a host name, which has at most 63."""
MAX_CONFIG_MAP_BYTES = 2**20
"""The limit of Kubernetes for one ConfigMap."""

OVERHEAD_MIB = 512
"""Memory in addition to the heap: Python, the buffers of Spark and Kafka outside the heap, and code."""
RETRIES = 2
NO_TRY = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
"""A pod that had to make room, or whose node went, does not count as a try, because that says nothing about the audit. A pod that uses more
memory or disk than it was given has no such condition, and counts as a try."""
TERMINATION_LOG = "/dev/termination-log"
FROZEN = "/etc/delayed-topics/audit"


def job_name(name: str, uid: str) -> str:
    """Returns a name that is unique in the namespace of the Job, even if an audit of the same name is created again."""
    digest = hashlib.sha256(uid.encode()).hexdigest()[:8]
    readable = name.replace(".", "-")
    readable = readable if readable[0].isalpha() else f"a-{readable}"
    return f"{readable[: MAX_NAME - 15].rstrip('-')}-audit-{digest}"


def child_names(job: str) -> tuple[tuple[str, str], ...]:
    """Returns kind and name of the objects of an audit, in the order in which they are removed. A SparkApplication is removed with its
    window."""
    return ("Job", job), ("Secret", secret_name(job)), ("ConfigMap", window_name(job))


def window_name(job: str) -> str:
    return f"{job}-window"


def config_map(o: AuditObservation, window: AuditWindow) -> Manifest:
    name = window_name(o.job_name)
    data = {}
    if o.audit.spec.spark.executors and o.audit.spec.spark.mode == "Job":
        data[executors.TEMPLATE_KEY] = json.dumps({"apiVersion": "v1", "kind": "Pod", **_executor(o, window)})
    made = _object("v1", "ConfigMap", name, o)
    made["metadata"]["annotations"] = {TOPIC_UID: o.topic.metadata.uid if o.topic else None}
    return {**made, "immutable": True, "data": data, "binaryData": {WINDOW_KEY: b64encode(window.encode()).decode()}}


def window_of(config_map: Manifest | None) -> AuditWindow | None:
    """Returns the window as it was frozen. None: there is none, or someone else wrote it."""
    try:
        return AuditWindow.decode(b64decode(((config_map or {}).get("binaryData") or {}).get(WINDOW_KEY, "")))
    except (UnreadableRecord, ValueError):
        return None


def too_large(config_map: Manifest) -> str | None:
    """Returns why Kubernetes would refuse the ConfigMap. None: it would not."""
    texts, packed = config_map["data"].values(), config_map["binaryData"].values()
    size = sum(len(text.encode()) for text in texts) + sum(len(b64decode(value)) for value in packed)
    if size <= MAX_CONFIG_MAP_BYTES:
        return None
    return (
        f"the offsets of all partitions take {size:,} bytes, and a ConfigMap holds at most {MAX_CONFIG_MAP_BYTES:,}. No audit can cover a "
        "DelayedTopic with so many partitions"
    )


def audited_uid(config_map: Manifest | None) -> str | None:
    """Returns the UID of the DelayedTopic of this window. None: there is no window, or someone else made it."""
    annotations = ((config_map or {}).get("metadata") or {}).get("annotations") or {}
    return annotations.get(TOPIC_UID)


def _executor(o: AuditObservation, window: AuditWindow | None) -> Manifest:
    kept = storage(o) if _executors_write(o, window) else None
    return executors.template(o, _pod_metadata(o), kept, local_disk(o, window))


def _executors_write(o: AuditObservation, window: AuditWindow | None) -> bool:
    """Whether executors write to the output. They do so only if necessary, because only one node may be able to mount a claim."""
    output = o.audit.spec.output
    return output is not None and (output.parquet or (window is not None and window.carries))


def secret_name(job: str) -> str:
    return f"{job}-connection"


def secret(o: AuditObservation, files: Mapping[str, str]) -> Manifest:
    """Returns the Secret with the connection, which the operator removes after the Job. If the operator is gone by then, the Secret is
    removed with the window."""
    made = {**_object("v1", "Secret", secret_name(o.job_name), o), "type": "Opaque", "data": encoded(files)}
    return _goes_with_the_window(made, o)


def runner(o: AuditObservation, window: AuditWindow | None) -> Manifest:
    """Returns the Job or SparkApplication. It has no time to live; a Job gets one when its verdict was read. `window`: None if it can't be
    read."""
    # with executors, this pod is only the driver
    disk = LocalDisk(volume={"emptyDir": {}}) if o.audit.spec.spark.executors else local_disk(o, window)
    # the pods that process the records write the index
    indexed = not o.audit.spec.spark.executors or _executors_write(o, window)
    leader = {"metadata": _pod_metadata(o), "spec": _pod(o, disk, indexed=indexed)}
    deadline = {"activeDeadlineSeconds": o.audit.spec.active_deadline_seconds}
    if o.audit.spec.spark.mode == spark_application.KIND:
        leader["spec"] |= deadline
        spec = spark_application.spec(o, leader, _executor(o, window), retries=RETRIES, overhead_mib=OVERHEAD_MIB)
        made = {**_runner_object(spark_application.API_VERSION, spark_application.KIND, o), "spec": spec}
        return _goes_with_the_window(made, o)
    spec = {**deadline, "backoffLimit": RETRIES, "podFailurePolicy": NO_TRY, "template": leader}
    return {**_runner_object("batch/v1", "Job", o), "spec": spec}


def kept_seconds(o: AuditObservation) -> int:
    """Returns how long the Job or SparkApplication is kept after its end: as long as the audit asks for, and no longer than granted."""
    asked = o.audit.spec.ttl_seconds_after_finished
    granted = (((o.job or {}).get("metadata") or {}).get("annotations") or {}).get(KEPT_SECONDS, "")
    return min(asked, int(granted)) if granted.isdecimal() else asked


def _runner_object(api_version: str, kind: str, o: AuditObservation) -> Manifest:
    made = _object(api_version, kind, o.job_name, o)
    if o.job_settings.most_ttl_seconds is not None:
        made["metadata"]["annotations"] = {KEPT_SECONDS: str(o.job_settings.most_ttl_seconds)}
    return made


def _pod(o: AuditObservation, disk: LocalDisk, *, indexed: bool) -> Manifest:
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": o.audit.spec.spark.executors > 0,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY | disk.security,
        "containers": [_container(o, disk, indexed=indexed)],
        "volumes": [
            {"name": "window", "configMap": {"name": window_name(o.job_name)}},
            {"name": "connection", "secret": {"secretName": secret_name(o.job_name)}},
            {"name": executors.LOCAL_DISK, **disk.volume},
        ],
        **placement(o.audit.spec.spark, o.job_settings.defaults),
    }
    if kept := storage(o):
        spec["volumes"].append(kept.volume)
        spec["securityContext"] |= kept.security
    if o.audit.spec.spark.executors:
        spec["serviceAccountName"] = executors.DRIVER_ACCOUNT
    elif o.job_settings.home != o.namespace:
        spec["serviceAccountName"] = (
            executors.PLAIN_ACCOUNT
        )  # the chart creates it there, but not in a tenant's namespace
    return spec


def _container(o: AuditObservation, disk: LocalDisk, *, indexed: bool) -> Manifest:
    spark, output = o.audit.spec.spark, o.audit.spec.output
    kept = storage(o)
    memory = f"{mebibytes(spark.memory) + OVERHEAD_MIB}Mi"
    settings, place = dict(spark.conf or {}) | (kept.settings if kept else {}), []
    if spark.executors and spark.mode == "Job":
        settings |= executors.settings(o, folder=FROZEN, overhead=f"{OVERHEAD_MIB}m")
        place = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in executors.POD.items()]
    return {
        "name": CONTAINER,
        "image": o.job_settings.image,
        "imagePullPolicy": o.job_settings.image_pull_policy,
        "args": [
            "run",
            f"--window={FROZEN}/{WINDOW_KEY}",
            "--connection=/etc/delayed-topics/connection",
            f"--result={TERMINATION_LOG}",
            f"--master={'k8s://https://kubernetes.default.svc' if spark.executors else f'local[{spark.cores}]'}",
            f"--memory={spark.memory}",
            *(f"--conf={name}={value}" for name, value in settings.items()),
            *([f"--output={kept.folder}", *(["--index"] if indexed else ())] if kept else ()),
            *(["--parquet"] if output and output.parquet else ()),
        ],
        "env": [
            {"name": "SPARK_LOCAL_DIRS", "value": "/tmp"},
            {"name": "HOME", "value": "/tmp"},
            executors.rack(o),
            *place,
            *(kept.environment if kept else ()),
        ],
        # A batch job may use all idle cores. At the start, Java compiles on all that it can get, and a limit would double the
        # time of a small audit. Memory is requested in full.
        "resources": {
            "requests": {"cpu": f"{100 * (1 if spark.executors else spark.cores)}m", "memory": memory, **disk.requests},
            "limits": {"memory": memory, **disk.limits},
        },
        "volumeMounts": [
            {"name": "window", "mountPath": FROZEN, "readOnly": True},
            {"name": "connection", "mountPath": "/etc/delayed-topics/connection", "readOnly": True},
            {"name": executors.LOCAL_DISK, "mountPath": "/tmp"},
            *([kept.mount] if kept else ()),
        ],
        "terminationMessagePath": TERMINATION_LOG,
        "securityContext": CONTAINER_SECURITY,
    }


def _goes_with_the_window(made: Manifest, o: AuditObservation) -> Manifest:
    """Makes the ConfigMap the owner, so that Kubernetes removes the object with it."""
    assert o.config_map is not None, "the window comes first"
    window = o.config_map["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": window["name"], "uid": window["uid"]}
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [owner]}}


def _pod_metadata(o: AuditObservation) -> Manifest:
    annotations = {"annotations": dict(o.job_settings.annotations)} if o.job_settings.annotations else {}
    return {"labels": {**o.job_settings.labels, **_labels(o)}, **annotations}


def _labels(o: AuditObservation) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": APP,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        NAMESPACE_LABEL: o.namespace,
        NAME_LABEL: label_value(o.name),
        AUDIT_LABEL: o.job_name,
    }


def _object(api_version: str, kind: str, name: str, o: AuditObservation) -> Manifest:
    metadata: Manifest = {"name": name, "namespace": o.job_settings.home, "labels": _labels(o)}
    if o.job_settings.home == o.namespace:
        owner = {"apiVersion": API_VERSION, "kind": "DelayedTopicAudit", "name": o.name, "uid": o.audit.metadata.uid}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
