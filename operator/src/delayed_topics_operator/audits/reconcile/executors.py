"""Spark's executors as pods of their own: what the Job is told of them, and the template that they are made from. Pure.

Their driver is the Job's pod, which makes them with the rights of the service account DRIVER_ACCOUNT and owns them, so that
they go with it. Spark adds to the template its image, its cores and memory, and its environment.
"""

from delayed_topics_crds.schedule import Spark

from delayed_topics_operator.audits.reconcile.local_disk import LocalDisk
from delayed_topics_operator.audits.reconcile.observation import AuditObservation
from delayed_topics_operator.audits.reconcile.storage import Storage
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.pod_spec import CONTAINER_SECURITY, POD_SECURITY, nodes

PLAIN_ACCOUNT = "delayed-topics-audit"
"""Of all pods in the namespace that audits of cluster connections run in. It has no rights."""
DRIVER_ACCOUNT = "delayed-topics-audit-driver"
"""The chart makes it wherever executors may run; it may make, see and remove pods there, and nothing else."""
CONTAINER = "executor"
TEMPLATE_KEY = "executor.json"
LOCAL_DISK = "spark-local-dir-1"
"""A volume of this name is where a pod that Spark makes writes; without one Spark adds an emptyDir."""
POD = {"POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
"""Environment of the Job's container, and where Kubernetes has it from."""
RACK = "KAFKA_CLIENT_RACK"
"""Environment of every container that reads Kafka."""
ZONE = "metadata.labels['topology.kubernetes.io/zone']"
"""Where Kubernetes has it from. Since 1.35 a pod has this label of its node; a pod without it gets an empty value."""


def settings(o: AuditObservation, *, folder: str, overhead: str) -> dict[str, str]:
    """Of Spark, for a Job. `folder`: where TEMPLATE_KEY is in the Job's pod. `overhead`: memory beside the heap."""
    spark = o.audit.spec.spark
    return {
        **_how_many(spark),
        "spark.executor.cores": str(spark.cores),
        "spark.executor.memory": spark.memory,
        "spark.executor.memoryOverhead": overhead,
        "spark.kubernetes.executor.request.cores": f"{100 * spark.cores}m",
        "spark.kubernetes.namespace": o.job_settings.home,
        "spark.kubernetes.container.image": o.job_settings.image,
        "spark.kubernetes.container.image.pullPolicy": o.job_settings.image_pull_policy,
        "spark.kubernetes.executor.podTemplateFile": f"{folder}/{TEMPLATE_KEY}",
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.driver.host": "$(POD_IP)",
        **guards(o),
    }


def guards(o: AuditObservation) -> dict[str, str]:
    """Settings of Spark that keep the driver to its rights, and others from the driver."""
    kept = {
        # what it would need further rights for
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        # whoever reaches the driver's ports could have it run anything otherwise
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
    }
    if o.job_settings.home != o.namespace:
        kept["spark.kubernetes.authenticate.executor.serviceAccountName"] = PLAIN_ACCOUNT
    return kept


def _how_many(spark: Spark) -> dict[str, str]:
    if spark.min_executors is None:
        return {"spark.executor.instances": str(spark.executors)}
    chosen = {
        "enabled": "true",
        # nobody else keeps what an executor has shuffled
        "shuffleTracking.enabled": "true",
        "initialExecutors": str(spark.min_executors),
        "minExecutors": str(spark.min_executors),
        "maxExecutors": str(spark.executors),
    }
    return {f"spark.dynamicAllocation.{name}": value for name, value in chosen.items()}


def rack(o: AuditObservation) -> Manifest:
    """An environment variable: the zone of the pod that has it, unless the user names another."""
    named = o.audit.spec.spark.client_rack
    return {"name": RACK, **({"value": named} if named else {"valueFrom": {"fieldRef": {"fieldPath": ZONE}}})}


def template(o: AuditObservation, metadata: Manifest, kept: Storage | None, disk: LocalDisk) -> Manifest:
    """A pod. `metadata`: as that of the driver's. `kept`: where the executors write parts of the account."""
    container: Manifest = {
        "name": CONTAINER,
        "securityContext": CONTAINER_SECURITY,
        "env": [rack(o), *(kept.environment if kept is not None else ())],
        "resources": {"requests": disk.requests, "limits": disk.limits},
        "volumeMounts": [{"name": LOCAL_DISK, "mountPath": "/tmp"}, *([kept.mount] if kept is not None else ())],
    }
    return {
        "metadata": metadata,
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": POD_SECURITY | disk.security | (kept.security if kept is not None else {}),
            "containers": [container],
            "volumes": [{"name": LOCAL_DISK, **disk.volume}, *([kept.volume] if kept is not None else ())],
            **nodes(o.audit.spec.spark),
        },
    }
