"""A real API server with its controllers and without nodes: pods stay pending, everything else works as in a cluster.

The server takes some seconds to start. It belongs to the tests that use it, which may stop it or break it.
"""

import base64
import json
import shutil
import signal
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tenacity

from delayed_topics_devcluster.binaries import binaries
from delayed_topics_devcluster.context import WithTools
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_devcluster.orphans import owned_folder, remove_orphans
from delayed_topics_devcluster.paths import CRDS
from delayed_topics_devcluster.pki import write_key_pair
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.processes import Process, died, start_detached
from delayed_topics_devcluster.waiting import wait_until

__all__ = ["TOKEN", "ApiServer"]

TOKEN = "an-administrator-of-this-server-only"
START_SECONDS = 180.0
ANSWER_SECONDS = 60.0
LOG_CHARACTERS = 1500
UNAVAILABLE = (429, 500, 503, 504)

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: test
contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]
clusters: [{{name: test, cluster: {{server: "{url}", certificate-authority: {certificate}}}}}]
users: [{{name: admin, user: {{token: {token}}}}}]
"""
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, userGroups: ["system:serviceaccounts:kube-system"]}
  - {level: Metadata, userGroups: ["system:serviceaccounts"]}
"""
"""Logs the requests of service accounts, without those of the controllers."""


class ApiServer(WithTools):
    """etcd, API server and controller manager, with our CRDs. `kubectl` and `helm` are the real ones. `close` removes `folder`."""

    def __init__(self, *, controllers: bool = True) -> None:
        """`controllers`: whether the controller manager runs too; without it, the test does what the controllers would do."""
        remove_orphans()
        self._controllers = controllers
        self.folder = owned_folder("api")
        self._programs = binaries()
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self._running: dict[str, Process] = {}
        self.unready: list[range] = []
        """The byte ranges of the audit log that a restarted server wrote before it was ready."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def certificate(self) -> Path:
        """The server's own certificate, which clients must trust."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def pids(self) -> dict[str, int]:
        """The process ids, by the name of the program."""
        return {name: process.pid for name, process in self._running.items()}

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The requests of service accounts and the answers to them, for `audit_log.used` and `missed`."""
        return self.folder / "audit.log"

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
        folder = self.folder
        (folder / "tokens").write_text(f'{TOKEN},admin,1,"system:masters"\n')
        (folder / "audit-policy.yaml").write_text(AUDIT_POLICY)
        self.audit_log.touch()
        write_key_pair(folder, "accounts")
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._run(
            "etcd", f"--data-dir={folder}/etcd", "--unsafe-no-fsync", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}", "--log-level=warn",
        )  # fmt: skip
        self._start_server()
        self._wait(self.certificate.exists, "the API server has a certificate")
        self.kubeconfig.write_text(KUBECONFIG.format(url=self.url, certificate=self.certificate, token=TOKEN))
        self._wait(self._ready, "the API server is ready")
        if self._controllers:
            self._run(
                "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false",
                f"--service-account-private-key-file={folder}/accounts.key", "--use-service-account-credentials",
                "--bind-address=127.0.0.1", f"--secure-port={free_ports(1)[0]}",
            )  # fmt: skip
        self.kubectl("apply", "--server-side", "--filename", CRDS)
        self.kubectl("wait", "--for=condition=Established", "--filename", CRDS, f"--timeout={ANSWER_SECONDS:g}s")

    def stop_server(self) -> None:
        """Kills the API server only; etcd keeps all objects."""
        self._running.pop("kube-apiserver").kill()

    def start_server_again(self) -> None:
        begin = self.audit_log.stat().st_size
        self._start_server()
        self._wait(self._ready, "the API server is ready")
        self.unready.append(range(begin, self.audit_log.stat().st_size))

    def pause_server(self) -> None:
        """Sends SIGSTOP: connections stay open and nothing answers."""
        self._running["kube-apiserver"].signal(signal.SIGSTOP)

    def resume_server(self) -> None:
        self._running["kube-apiserver"].signal(signal.SIGCONT)

    def forget_the_past(self) -> None:
        """Compacts etcd up to now, so that the server answers 410 to watches and lists that continue from an earlier revision.
        An API server itself compacts etcd every five minutes, up to five minutes ago."""
        key = base64.b64encode(b"a state that nothing was read of yet").decode()
        newest = self._etcd("kv/put", {"key": key})["header"]["revision"]
        self._etcd("kv/compaction", {"revision": newest, "physical": True})

    def evidence(self) -> str:
        """The ends of the logs of all programs, for the message of a failed test."""
        logs = {name: self._log(name).read_text(errors="replace") for name in self._running}
        return "\n".join(f"--- {name}\n{log[-LOG_CHARACTERS:]}" for name, log in logs.items())

    def kubeconfig_of(self, namespace: str, service_account: str) -> Path:
        """Writes a kubeconfig that has only the rights of this service account."""
        token = self.kubectl("create", "token", service_account, f"--namespace={namespace}", "--duration=2h").strip()
        file = self.folder / f"kubeconfig-{namespace}-{service_account}"
        file.write_text(KUBECONFIG.format(url=self.url, certificate=self.certificate, token=token))
        return file

    def close(self) -> None:
        for process in reversed(self._running.values()):
            process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @tenacity.retry(
        retry=tenacity.retry_if_exception(lambda error: getattr(error, "code", None) in UNAVAILABLE),
        wait=tenacity.wait_fixed(1),
        stop=tenacity.stop_after_delay(ANSWER_SECONDS),
        reraise=True,
    )
    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """Sends a request, which may be sent more than once, and returns the answer. Takes a hundredth of the time of kubectl, and
        like kubectl retries while the server is unavailable. `content_type`: selects the kind of a PATCH. Raises HTTPError.
        """
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": content_type},
        )
        context = ssl.create_default_context(cafile=str(self.certificate))
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=context) as answer:
            return dict(json.loads(answer.read()))

    def dry_run(self, document: dict[str, Any]) -> dict[str, Any]:
        """Returns the object that applying `document` would create, with defaults. Raises CommandFailedError, with the output of
        kubectl, if the API server refuses it."""
        flags = ("--server-side", "--dry-run=server", "--output=json", "--filename=-")
        return dict(json.loads(self.kubectl("apply", *flags, text_in=json.dumps(document))))

    def _etcd(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._etcd_port}/v3/{call}"
        with urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=ANSWER_SECONDS) as answer:
            return dict(json.loads(answer.read()))

    def _start_server(self) -> None:
        folder = self.folder
        self._run(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", f"--secure-port={self._port}",
            "--bind-address=127.0.0.1", f"--cert-dir={folder}/certificates", "--authorization-mode=RBAC",
            f"--token-auth-file={folder}/tokens", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/accounts.pub", f"--service-account-signing-key-file={folder}/accounts.key",
            "--service-cluster-ip-range=10.97.0.0/24", "--profiling=false",
            f"--audit-policy-file={folder}/audit-policy.yaml", f"--audit-log-path={self.audit_log}",
            # As on OpenShift: to change the owner references of an object, or to block the deletion of an owner, needs rights.
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        )  # fmt: skip

    def _run(self, name: str, *arguments: str) -> None:
        process = start_detached([self._programs / name, *arguments], log=self._log(name))
        process.write(self.folder / f"{name}.json")
        self._running[name] = process

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(
            condition,
            what=what,
            timeout_seconds=START_SECONDS,
            poll_seconds=0.3,
            evidence=lambda: f"\n{self.evidence()}",
        )

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _ready(self) -> bool:
        for name, process in self._running.items():
            if not process.alive():
                raise died(name, self._log(name))
        try:
            self.kubectl("get", "--raw", "/readyz", "--request-timeout=3s")
        except CommandFailedError:
            return False
        return True
