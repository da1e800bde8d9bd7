"""An audit as a SparkApplication, which the Spark Operator of Kubeflow runs: https://github.com/kubeflow/spark-operator. Pure.

Its driver is the same pod as that of a Job, with the same arguments. The settings of executors are fields of the resource.
"""

from typing import Final

from delayed_topics_crds.schedule import Spark

from delayed_topics_operator.audits.reconcile import executors
from delayed_topics_operator.audits.reconcile.observation import AuditObservation
from delayed_topics_operator.values.manifest import Manifest

API_VERSION: Final = "sparkoperator.k8s.io/v1beta2"
KIND: Final = "SparkApplication"
SPARK_VERSION: Final = "4.1.1"
"""The version of Spark in the image."""
PROGRAM: Final = "local:///opt/app/delayed_topics_audit/__main__.py"
"""The program in the image."""
DRIVER: Final = "spark-kubernetes-driver"
"""Spark's name for the driver's container."""
RETRY_SECONDS: Final = 10


def spec(o: AuditObservation, leader: Manifest, executor: Manifest, *, retries: int, overhead_mib: int) -> Manifest:
    """`leader`, `executor`: templates of pods. `overhead_mib`: memory in addition to the heap."""
    spark = o.audit.spec.spark
    container: Manifest = dict(leader["spec"]["containers"][0])
    arguments = container.pop("args")  # Spark would append its own arguments to those of the template
    driver = {**leader, "spec": {**leader["spec"], "containers": [{**container, "name": DRIVER}]}}
    pod = {"memory": spark.memory, "memoryOverhead": f"{overhead_mib}m"}
    return {
        "type": "Python",
        "mode": "cluster",
        "sparkVersion": SPARK_VERSION,
        "image": o.job_settings.image,
        "imagePullPolicy": o.job_settings.image_pull_policy,
        "mainApplicationFile": PROGRAM,
        "arguments": arguments,
        "sparkConf": executors.guards(o),
        # unlike with a Job, a pod whose node was drained counts as a try
        "restartPolicy": {
            "type": "OnFailure",
            "onFailureRetries": retries,
            "onFailureRetryInterval": RETRY_SECONDS,
            "onSubmissionFailureRetries": retries,
            "onSubmissionFailureRetryInterval": RETRY_SECONDS,
        },
        "driver": {
            **pod,
            "cores": 1,
            "coreRequest": container["resources"]["requests"]["cpu"],
            "serviceAccount": executors.DRIVER_ACCOUNT,
            "template": driver,
        },
        "executor": {
            **pod,
            "cores": spark.cores,
            "coreRequest": f"{100 * spark.cores}m",
            "template": executor,
            **({"instances": spark.executors} if spark.min_executors is None else {}),
        },
        **({"dynamicAllocation": _dynamic_allocation(spark)} if spark.min_executors is not None else {}),
    }


def _dynamic_allocation(spark: Spark) -> Manifest:
    return {
        "enabled": True,
        "shuffleTrackingEnabled": True,
        "initialExecutors": spark.min_executors,
        "minExecutors": spark.min_executors,
        "maxExecutors": spark.executors,
    }
