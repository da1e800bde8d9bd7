"""Starting a cluster from nothing: certificates, namespaces, control plane, node."""

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
from delayed_topics_devcluster.settings import API_SERVER, CONTAINERD_SOCKET, NODE_NAME, Layout
from delayed_topics_devcluster.waiting import wait_until

__all__ = ["assemble", "import_archive", "node_is_ready"]

START_TIMEOUT_SECONDS = 120.0
# Who talks to the API server, and the group that its rights come with (none: RBAC knows the name).
API_CLIENTS = {
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kube-proxy": ("system:kube-proxy", ()),
    "kubelet": (f"system:node:{NODE_NAME}", ("system:nodes",)),
    "coredns": ("coredns", ()),
}


def assemble(layout: Layout, programs: Path) -> None:
    """Start everything and return when the node takes pods: about 15 s."""
    cluster = _Assembly(layout=layout, programs=programs)
    with step("certificates, namespaces, network"):
        layout.make()
        _write_certificates(layout)
        _write_configuration(layout)
        cluster.namespace = Namespace.create(
            pause=programs / "pause", owner=REPOSITORY, kubelet=layout.kubelet, log=layout.logs / "namespace.log"
        )
    with step("etcd and API server"):
        cluster.start(*settings.etcd(layout))
        cluster.start(*settings.api_server(layout))
        cluster.wait(lambda: _answers(layout, "get", "--raw", "/readyz"), what="the API server is ready")
        role = json.dumps(settings.COREDNS_ROLE)
        cluster.wait(lambda: _answers(layout, "apply", "-f", "-", text_in=role), what="CoreDNS has its role")
    with step("controller manager, scheduler, containerd, kubelet, kube-proxy, CoreDNS"):
        cluster.start(*settings.controller_manager(layout))
        cluster.start(*settings.scheduler(layout))
        cluster.start("coredns", "-conf", str(layout.config / "Corefile"))
        cluster.start("kube-proxy", f"--config={layout.config}/kube-proxy.yaml")
        cluster.start("containerd", f"--config={layout.config}/containerd.toml")
        cluster.wait(cluster.containerd_serves, what="containerd serves")
        import_archive(
            cluster.namespace,
            write_pause_image(layout.root / "pause.tar", program=programs / "pause", name=settings.PAUSE_IMAGE),
        )
        cluster.start(*settings.kubelet_command(layout))
        cluster.wait(lambda: node_is_ready(layout), what="the node is ready")
        account = ("get", "serviceaccount", "default", "--namespace=default")
        cluster.wait(lambda: _answers(layout, *account), what="pods may be created")


def import_archive(namespace: Namespace, archive: Path) -> None:
    """Put an image (a docker-archive or OCI archive) onto the node."""
    _ctr_image(namespace, "import", archive)


def remove_image(namespace: Namespace, reference: str) -> None:
    """Take an image from the node."""
    _ctr_image(namespace, "remove", "--sync", reference)


def _ctr_image(namespace: Namespace, *arguments: str | Path) -> None:
    namespace.run("ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io", "image", *arguments)


def node_is_ready(layout: Layout) -> bool:
    """Whether the API server answers, and says so."""
    condition = 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}'
    try:
        return _kubectl(layout, "get", "nodes", "--output", condition) == "True"
    except CommandFailedError:
        return False


class _Assembly:
    def __init__(self, *, layout: Layout, programs: Path) -> None:
        self._layout = layout
        self._programs = programs
        self._started: dict[str, Process] = {}
        self.namespace: Namespace

    def start(self, name: str, *arguments: str) -> None:
        built = self._programs / name
        program = built if built.exists() else name
        process = self.namespace.start([program, *arguments], log=self._layout.logs / f"{name}.log")
        process.write(self._layout.processes / f"{name}.json")
        self._started[name] = process

    def wait(self, condition: Callable[[], bool], *, what: str) -> None:
        """Wait for a condition; an error at once if something that was started has ended meanwhile."""

        def met() -> bool:
            for name, process in self._started.items():
                if not process.alive():
                    raise died(name, self._layout.logs / f"{name}.log")
            return condition()

        wait_until(met, what=f"{what} (logs in {self._layout.logs})", timeout_seconds=START_TIMEOUT_SECONDS)

    def containerd_serves(self) -> bool:
        try:
            self.namespace.run("ctr", f"--address={CONTAINERD_SOCKET}", "version")
        except CommandFailedError:
            return False
        return True


def _kubectl(layout: Layout, *arguments: str, text_in: str | None = None) -> str:
    kubectl = settings.kubectl()
    return run(kubectl, f"--kubeconfig={layout.kubeconfig}", "--request-timeout=5s", *arguments, text_in=text_in)


def _answers(layout: Layout, *arguments: str, text_in: str | None = None) -> bool:
    try:
        _kubectl(layout, *arguments, text_in=text_in)
    except CommandFailedError:
        return False
    return True


def _write_certificates(layout: Layout) -> None:
    authority = CertificateAuthority(layout.pki)
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
    write_key_pair(layout.pki, "service-accounts")
    for name, (user, groups) in API_CLIENTS.items():
        authority.kubeconfig(
            layout.config / f"{name}.kubeconfig", server=API_SERVER, common_name=user, organizations=groups
        )
    authority.kubeconfig(layout.kubeconfig, server=API_SERVER, common_name="admin", organizations=["system:masters"])


def _write_configuration(layout: Layout) -> None:
    layout.write("audit-policy.yaml", settings.audit_policy())
    layout.write("containerd.toml", settings.containerd(layout))
    layout.write("cni/10-delayed-topics.conflist", json.dumps(settings.network_plugins()))
    layout.write("kubelet.yaml", settings.kubelet(layout))
    layout.write("kube-proxy.yaml", settings.kube_proxy(layout))
    layout.write("Corefile", settings.coredns(layout))
