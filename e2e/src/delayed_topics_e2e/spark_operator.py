"""Plays Kubeflow's Spark Operator for a SparkApplication, as far as an audit needs it: calls spark-submit, and writes the state of the
driver into the status.

The Spark Operator's arguments: https://github.com/kubeflow/spark-operator/blob/v2.5.2/internal/controller/sparkapplication/submission.go
"""

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.paths import REPOSITORY

from delayed_topics_e2e.kube import Kube
from delayed_topics_e2e.tenant import unique

__all__ = ["DEFINITION", "account", "submit", "update_status"]

DEFINITION = REPOSITORY / "operator" / "tests" / "spark_operator" / "sparkapplications.yaml"
SPARK_HOME = Path(pyspark.__file__).parent
VERBS = ["create", "get", "list", "watch", "patch", "update"]
RULES = [{"apiGroups": [""], "resources": ["pods", "services", "configmaps"], "verbs": VERBS}]
"""The rights that spark-submit needs."""
STATES = {"Running": "RUNNING", "Succeeded": "COMPLETED", "Failed": "FAILED"}
"""The states of an application, by the phase of its driver's pod."""


@contextmanager
def account(kube: Kube, namespace: str) -> Iterator[str]:
    """Yields the name of a ServiceAccount that may run applications in the namespace, and has no other rights."""
    meta = {"name": unique("spark-operator"), "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "Role", "name": meta["name"]}
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount"},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "rules": RULES},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
    ]
    try:
        kube.apply(*({**manifest, "metadata": meta} for manifest in made))
        yield meta["name"]
    finally:
        for manifest in made:
            kube.delete(manifest["kind"], meta["name"], namespace=namespace)


def submit(kube: Kube, application: dict[str, Any], account: str, folder: Path) -> None:
    """Runs spark-submit with the rights of `account`. `folder`: for files that spark-submit reads."""
    spec, meta = application["spec"], application["metadata"]
    view = json.loads(kube.kubectl("config", "view", "--minify", "--flatten", "--raw", "-o", "json"))
    cluster = view["clusters"][0]["cluster"]
    (certificate := folder / "ca.crt").write_bytes(b64decode(cluster["certificate-authority-data"]))
    (token := folder / "token").write_text(kube.kubectl("create", "token", account, "-n", meta["namespace"]).strip())
    settings = {
        "spark.kubernetes.authenticate.submission.caCertFile": certificate,
        "spark.kubernetes.authenticate.submission.oauthTokenFile": token,
        **dict(_settings(application)),
        **dict(_templates(application, folder)),
    }
    (no_kubeconfig := folder / "kubeconfig").write_text("")
    run(
        *(SPARK_HOME / "bin" / "spark-submit", "--deploy-mode", spec["mode"], "--name", meta["name"]),
        *("--master", f"k8s://{cluster['server']}"),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        *(spec["mainApplicationFile"], *spec["arguments"]),
        environment={"SPARK_HOME": str(SPARK_HOME), "KUBECONFIG": str(no_kubeconfig)},
    )


def update_status(kube: Kube, application: dict[str, Any]) -> str:
    """Writes the state of an application into its status, and returns the state."""
    meta = application["metadata"]
    pod = kube.get("pod", _driver(application), namespace=meta["namespace"]) or {}
    state = STATES.get(pod.get("status", {}).get("phase", ""), "SUBMITTED")
    body = {"status": {"driverInfo": {"podName": _driver(application)}, "applicationState": {"state": state}}}
    where = ("-n", meta["namespace"], "--subresource=status", "--type=merge")
    kube.kubectl("patch", "sparkapplication", meta["name"], *where, "-p", json.dumps(body))
    return state


def _driver(application: dict[str, Any]) -> str:
    return f"{application['metadata']['name']}-driver"


def _settings(application: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    spec = application["spec"]
    driver, executor = spec["driver"], spec["executor"]
    yield "spark.kubernetes.namespace", application["metadata"]["namespace"]
    yield "spark.kubernetes.container.image", spec["image"]
    yield "spark.kubernetes.container.image.pullPolicy", spec["imagePullPolicy"]
    yield "spark.kubernetes.submission.waitAppCompletion", "false"
    yield from spec["sparkConf"].items()
    yield "spark.kubernetes.driver.pod.name", _driver(application)
    yield "spark.driver.cores", driver["cores"]
    yield "spark.kubernetes.driver.request.cores", driver["coreRequest"]
    yield "spark.driver.memory", driver["memory"]
    yield "spark.driver.memoryOverhead", driver["memoryOverhead"]
    yield "spark.kubernetes.authenticate.driver.serviceAccountName", driver["serviceAccount"]
    yield "spark.executor.instances", executor["instances"]
    yield "spark.executor.cores", executor["cores"]
    yield "spark.kubernetes.executor.request.cores", executor["coreRequest"]
    yield "spark.executor.memory", executor["memory"]
    yield "spark.executor.memoryOverhead", executor["memoryOverhead"]


def _templates(application: dict[str, Any], folder: Path) -> Iterator[tuple[str, Any]]:
    owner = {key: application[key] for key in ("apiVersion", "kind")}
    owner |= {key: application["metadata"][key] for key in ("name", "uid")}
    for part, container in (("driver", "spark-kubernetes-driver"), ("executor", "executor")):
        template = application["spec"][part]["template"]
        pod = {**template, "metadata": {**template["metadata"], "ownerReferences": [owner]}}
        (file := folder / f"{part}.json").write_text(json.dumps(pod))
        yield f"spark.kubernetes.{part}.podTemplateFile", file
        yield f"spark.kubernetes.{part}.podTemplateContainerName", container
