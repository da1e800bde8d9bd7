"""Spark's executors as pods of their own: the settings of Spark for them, and the template of their pods. Pure.

Their driver is the pod of the Job. It creates them with the rights of the service account DRIVER_ACCOUNT, and owns them, so that they are
removed with it. Spark adds the image, cores and memory, and environment to the template.
"""

from delayed_topics_crds.schedule import Spark

from delayed_topics_operator.audits.reconcile.local_disk import LocalDisk
from delayed_topics_operator.audits.reconcile.observation import AuditObservation
from delayed_topics_operator.audits.reconcile.storage import Storage
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.pod_spec import CONTAINER_SECURITY, POD_SECURITY, placement

PLAIN_ACCOUNT = "delayed-topics-audit"
"""The service account of all pods but drivers in the namespace in which audits of cluster connections run. It has no rights."""
DRIVER_ACCOUNT = "delayed-topics-audit-driver"
"""The service account of drivers. The chart creates it wherever executors may run. It may create, see and remove pods there, and nothing
else."""
CONTAINER = "executor"
TEMPLATE_KEY = "executor.json"
LOCAL_DISK = "spark-local-dir-1"
"""The name of the volume to which a pod of Spark writes. Without such a volume, Spark adds an emptyDir."""
POD = {"POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
"""Environment variables of the Job's container, and the fields of the pod that they contain."""
RACK = "KAFKA_CLIENT_RACK"
"""Environment variable of every container that reads Kafka."""
ZONE = "metadata.labels['topology.kubernetes.io/zone']"
"""The field of the pod that it contains. Since Kubernetes 1.35, a pod has this label of its node. Without the label, the value is empty."""


def settings(o: AuditObservation, *, folder: str, overhead: str) -> dict[str, str]:
    """Returns the settings of Spark for a Job. `folder`: where TEMPLATE_KEY is in the Job's pod. `overhead`: memory in addition to the
    heap."""
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
    """Returns settings of Spark that keep the driver within its rights, and others away from the driver."""
    kept = {
        # the driver would need further rights for these
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        # otherwise anyone who reaches the driver's ports could make it run anything
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
        # there is no external shuffle service
        "shuffleTracking.enabled": "true",
        "initialExecutors": str(spark.min_executors),
        "minExecutors": str(spark.min_executors),
        "maxExecutors": str(spark.executors),
    }
    return {f"spark.dynamicAllocation.{name}": value for name, value in chosen.items()}


def rack(o: AuditObservation) -> Manifest:
    """Returns an environment variable with the zone of the pod, unless the user names another one."""
    named = o.audit.spec.spark.client_rack
    return {"name": RACK, **({"value": named} if named else {"valueFrom": {"fieldRef": {"fieldPath": ZONE}}})}


def template(o: AuditObservation, metadata: Manifest, kept: Storage | None, disk: LocalDisk) -> Manifest:
    """Returns the template of executor pods. `metadata`: the same as for the driver's pod. `kept`: where executors write parts of the
    account."""
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
            **placement(o.audit.spec.spark, o.job_settings.defaults),
        },
    }
