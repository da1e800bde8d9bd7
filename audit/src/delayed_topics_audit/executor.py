"""The command of a Spark executor's container. The driver creates the executor's pod."""

from collections.abc import Mapping
from pathlib import Path

import pyspark

_JARS = Path(pyspark.__file__).with_name("jars")
_OPTION = "SPARK_JAVA_OPT_"


def command(environment: Mapping[str, str]) -> list[str]:
    """Returns the command as in the entrypoint of Spark's own image. This image needs nothing else of that entrypoint:
    https://github.com/apache/spark/blob/v4.0.0/resource-managers/kubernetes/docker/src/main/dockerfiles/spark/entrypoint.sh
    """
    options = sorted(
        (name for name in environment if name.startswith(_OPTION)), key=lambda n: int(n.removeprefix(_OPTION))
    )
    arguments = {
        "--driver-url": "SPARK_DRIVER_URL",
        "--executor-id": "SPARK_EXECUTOR_ID",
        "--cores": "SPARK_EXECUTOR_CORES",
        "--app-id": "SPARK_APPLICATION_ID",
        "--hostname": "SPARK_EXECUTOR_POD_IP",
        "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "--podName": "SPARK_EXECUTOR_POD_NAME",
    }
    return [
        "java",
        *(environment[name] for name in options),
        f"-Xmx{environment['SPARK_EXECUTOR_MEMORY']}",
        "-cp",
        f"{environment['SPARK_CLASSPATH']}:{_JARS}/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *(part for option, name in arguments.items() for part in (option, environment[name])),
    ]
