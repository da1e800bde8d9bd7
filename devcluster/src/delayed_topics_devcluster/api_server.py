"""A real API server with its controllers and without nodes: pods stay pending, everything else is as in a cluster.

It takes some seconds to start and belongs to the tests that use it, who may stop and break it.
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
from delayed_topics_devcluster.orphans import folder_of_mine, remove_orphans
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
"""What service accounts ask for, but not those of the controllers."""


class ApiServer(WithTools):
    """etcd, API server and controller manager, with our CRDs. `kubectl` and `helm` are the real ones. `folder` goes with it."""

    def __init__(self, *, controllers: bool = True) -> None:
        """`controllers`: whether the controller manager runs too; without it whoever uses the server plays its part."""
        remove_orphans()
        self._controllers = controllers
        self.folder = folder_of_mine("api")
        self._programs = binaries()
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self._running: dict[str, Process] = {}
        self.unready: list[range] = []
        """Bytes of the audit log that were written before the server was ready again."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def certificate(self) -> Path:
        """That its answers are signed by."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def pids(self) -> dict[str, int]:
        """By program."""
        return {name: process.pid for name, process in self._running.items()}

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """What service accounts asked for and how it was answered, for `audit_log.used` and `missed`."""
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
        """Only the API server; etcd keeps what there is."""
        self._running.pop("kube-apiserver").kill()

    def start_server_again(self) -> None:
        begin = self.audit_log.stat().st_size
        self._start_server()
        self._wait(self._ready, "the API server is ready")
        self.unready.append(range(begin, self.audit_log.stat().st_size))

    def pause_server(self) -> None:
        """Connections stay open and nothing answers."""
        self._running["kube-apiserver"].signal(signal.SIGSTOP)

    def resume_server(self) -> None:
        self._running["kube-apiserver"].signal(signal.SIGCONT)

    def forget_the_past(self) -> None:
        """Only what there is now can still be read: watches and lists that go on from an earlier state are answered 410. An API server
        has etcd do that every five minutes, of what was before the last five."""
        key = base64.b64encode(b"a state that nothing was read of yet").decode()
        newest = self._etcd("kv/put", {"key": key})["header"]["revision"]
        self._etcd("kv/compaction", {"revision": newest, "physical": True})

    def evidence(self) -> str:
        """The ends of the logs, for a test that failed."""
        logs = {name: self._log(name).read_text(errors="replace") for name in self._running}
        return "\n".join(f"--- {name}\n{log[-LOG_CHARACTERS:]}" for name, log in logs.items())

    def kubeconfig_of(self, namespace: str, service_account: str) -> Path:
        """For a process that has the rights of this account and no others."""
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
        """A request that may be made twice, and its answer: a hundred times faster than kubectl, and as patient with a server that
        can't serve at the moment. `content_type`: of a PATCH it says which kind it is. Raises HTTPError.
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
        """The object that applying `document` would make, with defaults. Raises CommandFailedError, with what kubectl printed, if the
        API server refuses it."""
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
            # As on OpenShift: whoever changes the owners of an object, or blocks an owner's deletion, needs rights for that.
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
