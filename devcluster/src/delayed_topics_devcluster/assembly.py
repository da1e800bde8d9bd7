"""Starts a new cluster: certificates, namespaces, control plane, node."""

import json
from collections.abc import Callable
from pathlib import Path

from delayed_topics_devcluster import settings
from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_devcluster.namespace import NODE_ADDRESS, SERVICE_NETWORK, Namespace
from delayed_topics_devcluster.paths import REPOSITORY
from delayed_topics_devcluster.pause_image import write_pause_image
from delayed_topics_devcluster.pki import CertificateAuthority, write_key_pair
from delayed_topics_devcluster.processes import Process, died
from delayed_topics_devcluster.progress import step
from delayed_topics_devcluster.settings import API_SERVER, CONTAINERD_SOCKET, NODE_NAME, ClusterFolders
from delayed_topics_devcluster.waiting import wait_until

__all__ = ["assemble", "import_archive", "node_is_ready"]

START_TIMEOUT_SECONDS = 120.0
# The clients of the API server: the user name of each, and the groups that give it its rights (none: RBAC binds the user).
API_CLIENTS = {
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kube-proxy": ("system:kube-proxy", ()),
    "kubelet": (f"system:node:{NODE_NAME}", ("system:nodes",)),
    "coredns": ("coredns", ()),
}


def assemble(folders: ClusterFolders, programs: Path) -> None:
    """Starts everything and returns when pods can be created: about 15 s."""
    cluster = _Assembly(folders=folders, programs=programs)
    with step("certificates, namespaces, network"):
        folders.make()
        _write_certificates(folders)
        _write_configuration(folders)
        cluster.namespace = Namespace.create(
            pause=programs / "pause", owner=REPOSITORY, kubelet=folders.kubelet, log=folders.logs / "namespace.log"
        )
    with step("etcd and API server"):
        cluster.start(*settings.etcd(folders))
        cluster.start(*settings.api_server(folders))
        cluster.wait(lambda: _answers(folders, "get", "--raw", "/readyz"), what="the API server is ready")
        role = json.dumps(settings.COREDNS_ROLE)
        cluster.wait(lambda: _answers(folders, "apply", "-f", "-", text_in=role), what="CoreDNS has its role")
    with step("controller manager, scheduler, containerd, kubelet, kube-proxy, CoreDNS"):
        cluster.start(*settings.controller_manager(folders))
        cluster.start(*settings.scheduler(folders))
        cluster.start("coredns", "-conf", str(folders.config / "Corefile"))
        cluster.start("kube-proxy", f"--config={folders.config}/kube-proxy.yaml")
        cluster.start("containerd", f"--config={folders.config}/containerd.toml")
        cluster.wait(cluster.containerd_serves, what="containerd serves")
        import_archive(
            cluster.namespace,
            write_pause_image(folders.root / "pause.tar", program=programs / "pause", name=settings.PAUSE_IMAGE),
        )
        cluster.start(*settings.kubelet_command(folders))
        cluster.wait(lambda: node_is_ready(folders), what="the node is ready")
        account = ("get", "serviceaccount", "default", "--namespace=default")
        cluster.wait(lambda: _answers(folders, *account), what="pods may be created")


def import_archive(namespace: Namespace, archive: Path) -> None:
    """Puts an image (a docker-archive or OCI archive) onto the node."""
    _ctr_image(namespace, "import", archive)


def remove_image(namespace: Namespace, reference: str) -> None:
    """Removes an image from the node."""
    _ctr_image(namespace, "remove", "--sync", reference)


def _ctr_image(namespace: Namespace, *arguments: str | Path) -> None:
    namespace.run("ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io", "image", *arguments)


def node_is_ready(folders: ClusterFolders) -> bool:
    """Whether the API server answers and reports the node as Ready."""
    condition = 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}'
    try:
        return _kubectl(folders, "get", "nodes", "--output", condition) == "True"
    except CommandFailedError:
        return False


class _Assembly:
    def __init__(self, *, folders: ClusterFolders, programs: Path) -> None:
        self._folders = folders
        self._programs = programs
        self._started: dict[str, Process] = {}
        self.namespace: Namespace

    def start(self, name: str, *arguments: str) -> None:
        built = self._programs / name
        program = built if built.exists() else name
        process = self.namespace.start([program, *arguments], log=self._folders.logs / f"{name}.log")
        process.write(self._folders.processes / f"{name}.json")
        self._started[name] = process

    def wait(self, condition: Callable[[], bool], *, what: str) -> None:
        """Waits for a condition. Raises CommandFailedError at once if a started program has ended."""

        def met() -> bool:
            for name, process in self._started.items():
                if not process.alive():
                    raise died(name, self._folders.logs / f"{name}.log")
            return condition()

        wait_until(met, what=f"{what} (logs in {self._folders.logs})", timeout_seconds=START_TIMEOUT_SECONDS)

    def containerd_serves(self) -> bool:
        try:
            self.namespace.run("ctr", f"--address={CONTAINERD_SOCKET}", "version")
        except CommandFailedError:
            return False
        return True


def _kubectl(folders: ClusterFolders, *arguments: str, text_in: str | None = None) -> str:
    kubectl = settings.kubectl()
    return run(kubectl, f"--kubeconfig={folders.kubeconfig}", "--request-timeout=5s", *arguments, text_in=text_in)


def _answers(folders: ClusterFolders, *arguments: str, text_in: str | None = None) -> bool:
    try:
        _kubectl(folders, *arguments, text_in=text_in)
    except CommandFailedError:
        return False
    return True


def _write_certificates(folders: ClusterFolders) -> None:
    authority = CertificateAuthority(folders.pki)
    service_names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    first_service_address = SERVICE_NETWORK.replace(".0.0/16", ".0.1")
    authority.issue(
        "api-server",
        common_name="kube-apiserver",
        names=[
            *service_names,
            f"kubernetes.default.svc.{settings.CLUSTER_DOMAIN}",
            "localhost",
            "127.0.0.1",
            first_service_address,
            NODE_ADDRESS,
        ],
    )
    authority.issue("api-server-to-kubelet", common_name="kube-apiserver", organizations=["system:masters"])
    authority.issue("kubelet", common_name=NODE_NAME, names=[NODE_NAME, NODE_ADDRESS])
    write_key_pair(folders.pki, "service-accounts")
    for name, (user, groups) in API_CLIENTS.items():
        authority.kubeconfig(
            folders.config / f"{name}.kubeconfig", server=API_SERVER, common_name=user, organizations=groups
        )
    authority.kubeconfig(folders.kubeconfig, server=API_SERVER, common_name="admin", organizations=["system:masters"])


def _write_configuration(folders: ClusterFolders) -> None:
    folders.write("audit-policy.yaml", settings.audit_policy())
    folders.write("containerd.toml", settings.containerd(folders))
    folders.write("cni/10-delayed-topics.conflist", json.dumps(settings.network_plugins()))
    folders.write("kubelet.yaml", settings.kubelet(folders))
    folders.write("kube-proxy.yaml", settings.kube_proxy(folders))
    folders.write("Corefile", settings.coredns(folders))
