"""The cluster works like any Kubernetes: restricted pods run, names resolve, services answer, exec and logs work."""

import json
import os
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from delayed_topics_devcluster.cluster import cluster_folders
from delayed_topics_devcluster.context import Cluster
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_devcluster.processes import Process
from delayed_topics_devcluster.waiting import wait_until

pytestmark = pytest.mark.cluster

local_only = pytest.mark.skipif(bool(os.environ.get("CONTEXT")), reason="about the cluster on this machine")
ANSWERS = """
import http.server
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"served")
http.server.HTTPServer(("", 8000), Answers).serve_forever()
"""
ASK_SERVICE = "import urllib.request as u; print(u.urlopen('http://web:8000', timeout=10).read().decode())"
ASK_API = """
import ssl, urllib.request as u
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
trust = ssl.create_default_context(cafile=folder + "ca.crt")
ask = u.Request("https://kubernetes.default.svc/version", headers={"Authorization": "Bearer " + open(folder + "token").read()})
print(u.urlopen(ask, context=trust, timeout=10).status)
"""


class Namespace:
    """kubectl in one namespace."""

    def __init__(self, cluster: Cluster, name: str, image: str) -> None:
        self._cluster = cluster
        self.name, self.image = name, image

    def kubectl(self, *arguments: str, text_in: str | None = None) -> str:
        return self._cluster.kubectl("--namespace", self.name, *arguments, text_in=text_in)

    def apply(self, *manifests: dict[str, Any]) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "--filename=-", text_in=json.dumps(items))

    def python(self, pod: str, script: str) -> str:
        return self.kubectl("exec", pod, "--", "python3", "-c", script).strip()


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """A namespace that admits restricted pods only, with a pod that serves HTTP as `web:8000`."""
    image = cluster.load("worker")
    name = f"devcluster-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    try:
        cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        made = Namespace(cluster, name, image)
        service = {"selector": {"app": "web"}, "ports": [{"port": 8000}]}
        made.apply(
            pod("web", image, ANSWERS),
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": service},
        )
        made.kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=60s")
        yield made
    finally:
        cluster.kubectl("delete", "namespace", name, "--wait=false")


def pod(name: str, image: str, script: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-u", "-c", script],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "fsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def test_a_restricted_pod_runs_confined(namespace: Namespace) -> None:
    status = namespace.kubectl("exec", "web", "--", "cat", "/proc/1/status")
    fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split()[0] == "10001"
    assert fields["Seccomp"] == "2", "RuntimeDefault does not run the pod with a seccomp filter"
    assert fields["CapEff"] == "0000000000000000"
    with pytest.raises(CommandFailedError, match="Read-only file system"):
        namespace.kubectl("exec", "web", "--", "touch", "/file")
    namespace.kubectl("exec", "web", "--", "touch", "/tmp/file")


def test_a_pod_that_is_not_restricted_is_refused(namespace: Namespace) -> None:
    privileged = pod("privileged", namespace.image, "")
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(CommandFailedError, match='violates PodSecurity "restricted:latest"'):
        namespace.apply(privileged)


def test_a_pod_reaches_a_service_by_name_also_its_own(namespace: Namespace) -> None:
    namespace.apply(pod("asks", namespace.image, f"import time\n{ASK_SERVICE}\ntime.sleep(600)"))
    namespace.kubectl("wait", "pod/asks", "--for=condition=Ready", "--timeout=60s")
    wait_until(lambda: "served" in namespace.kubectl("logs", "asks"), what="the service answers")
    assert namespace.python("web", ASK_SERVICE) == "served", "a pod does not reach itself through its own service"


def test_a_pod_reaches_the_api_with_its_own_token(namespace: Namespace) -> None:
    assert namespace.python("web", ASK_API) == "200"


def test_names_outside_of_the_cluster_fail_at_once(namespace: Namespace) -> None:
    script = "import socket, time\nstart = time.time()\ntry: socket.getaddrinfo('example.com', 80)\n"
    script += "except socket.gaierror: print(time.time() - start < 2)"
    assert namespace.python("web", script) == "True"


def test_resources_may_be_refused_by_expressions(cluster: Cluster, namespace: Namespace) -> None:
    only_here = {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": namespace.name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only_here},
            "validations": [{"expression": "has(object.data)", "message": "data must be given"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": namespace.name},
        "spec": {"policyName": namespace.name, "validationActions": ["Deny"]},
    }
    try:
        namespace.apply(policy, binding)
        wait_until(lambda: refuses(namespace), what="the policy is in force")
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            cluster.kubectl("delete", kind, namespace.name, "--ignore-not-found")


def refuses(namespace: Namespace) -> bool:
    try:
        namespace.kubectl("create", "configmap", "empty", "--dry-run=server")
    except CommandFailedError as error:
        return "data must be given" in error.message
    return False


@local_only
def test_the_host_reaches_pods_and_services(namespace: Namespace) -> None:
    addresses = [
        namespace.kubectl("get", "pod", "web", "--output=jsonpath={.status.podIP}"),
        namespace.kubectl("get", "service", "web", "--output=jsonpath={.spec.clusterIP}"),
    ]
    for address in addresses:
        with urllib.request.urlopen(f"http://{address}:8000", timeout=10) as answer:
            assert answer.read() == b"served"


@local_only
def test_up_leaves_a_running_cluster_alone(cluster: Cluster) -> None:
    record = cluster_folders().processes / "kubelet.json"
    before = Process.read(record)
    cluster.up()
    assert before is not None
    assert Process.read(record) == before


@local_only
def test_the_audit_log_shows_who_asked_for_what(namespace: Namespace) -> None:
    namespace.kubectl("create", "configmap", "looked-for", "--from-literal=a=b")
    with cluster_folders().audit_log.open() as log:
        events = [json.loads(line) for line in log if namespace.name in line and "looked-for" in line]
    creation = next(event for event in events if event["verb"] == "create")
    assert creation["user"]["username"] == "admin"
    assert creation["objectRef"]["resource"] == "configmaps"
