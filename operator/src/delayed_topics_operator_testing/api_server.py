"""A real API server with its controllers and without nodes: pods stay pending, everything else is as in a cluster.

It takes some seconds to start and belongs to the tests that use it, who may stop and break it.
"""

import json
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from delayed_topics_devcluster.binaries import binaries
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.processes import Process, start_detached
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_operator.gateways.kube import APIS

TOKEN = "an-administrator-of-this-server-only"
START_SECONDS = 60.0
CRDS = Path(__file__).parents[3] / "crds" / "manifests"

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: test
contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]
clusters: [{{name: test, cluster: {{server: "https://127.0.0.1:{port}", certificate-authority: {certificate}}}}}]
users: [{{name: admin, user: {{token: {token}}}}}]
"""


class ApiServer:
    """etcd, API server and controller manager. `kubectl` is the real one."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="delayed-topics-api-"))
        self._programs = binaries()
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self._running: dict[str, Process] = {}

    @property
    def kubeconfig(self) -> Path:
        return self._folder / "kubeconfig"

    def __enter__(self) -> "ApiServer":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        folder = self._folder
        (folder / "tokens").write_text(f'{TOKEN},admin,1,"system:masters"\n')
        subprocess.run(
            ["openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048"], check=True, capture_output=True
        )
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._run(
            "etcd", f"--data-dir={folder}/etcd", "--unsafe-no-fsync", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}", "--log-level=warn",
        )  # fmt: skip
        self._start_server()
        certificate = folder / "certificates" / "apiserver.crt"
        wait_until(certificate.exists, what="the API server has a certificate", timeout_seconds=START_SECONDS)
        self.kubeconfig.write_text(KUBECONFIG.format(port=self._port, certificate=certificate, token=TOKEN))
        wait_until(self._ready, what="the API server is ready", timeout_seconds=START_SECONDS, poll_seconds=0.3)
        self._run(
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false",
            f"--service-account-private-key-file={folder}/accounts.key", "--use-service-account-credentials",
            "--bind-address=127.0.0.1", f"--secure-port={free_ports(1)[0]}",
        )  # fmt: skip
        self.kubectl("apply", "--server-side", "-f", str(CRDS))
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")

    def stop_server(self) -> None:
        """Only the API server; etcd keeps what there is."""
        self._running.pop("kube-apiserver").kill()

    def start_server_again(self) -> None:
        self._start_server()
        wait_until(self._ready, what="the API server is ready", timeout_seconds=START_SECONDS, poll_seconds=0.3)

    def pause_server(self) -> None:
        """Connections stay open and nothing answers."""
        self._running["kube-apiserver"].signal(signal.SIGSTOP)

    def resume_server(self) -> None:
        self._running["kube-apiserver"].signal(signal.SIGCONT)

    def close(self) -> None:
        for process in reversed(self._running.values()):
            process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kubectl(self, *arguments: str, text_in: str | None = None) -> str:
        done = subprocess.run(
            [str(self._programs / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=text_in, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def apply(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            meta = manifest["metadata"]
            path = APIS[manifest["kind"]].path(meta.get("namespace"), meta["name"])
            self._call("PATCH", f"{path}?fieldManager=test&force=true&fieldValidation=Strict", manifest)

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        try:
            return self._call("GET", APIS[kind].path(namespace, name))
        except urllib.error.HTTPError as e:
            if e.code == 404:
                return None
            raise

    def list_all(self, kind: str, namespace: str = "") -> list[dict[str, Any]]:
        return list(self._call("GET", APIS[kind].path(namespace))["items"])

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A hundred times faster than kubectl."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._port}{path}",
            method=method,
            data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/apply-patch+yaml"},
        )
        context = ssl.create_default_context(cafile=str(self._folder / "certificates" / "apiserver.crt"))
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return dict(json.loads(answer.read()))

    def _start_server(self) -> None:
        folder = self._folder
        self._run(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", f"--secure-port={self._port}",
            "--bind-address=127.0.0.1", f"--cert-dir={folder}/certificates", "--authorization-mode=RBAC",
            f"--token-auth-file={folder}/tokens", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/accounts.key", f"--service-account-signing-key-file={folder}/accounts.key",
            "--service-cluster-ip-range=10.97.0.0/24", "--profiling=false",
        )  # fmt: skip

    def _run(self, name: str, *arguments: str) -> None:
        self._running[name] = start_detached([self._programs / name, *arguments], log=self._folder / f"{name}.log")

    def _ready(self) -> bool:
        try:
            self.kubectl("get", "--raw", "/readyz", "--request-timeout=3s")
        except AssertionError:
            return False
        return True
