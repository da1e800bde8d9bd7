"""The configuration of all programs of the cluster."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from delayed_topics_devcluster.namespace import KUBELET_FOLDER, NODE_ADDRESS, POD_NETWORK, SERVICE_NETWORK
from delayed_topics_devcluster.packages import CNI_BINARIES
from delayed_topics_devcluster.paths import cache_dir

__all__ = ["API_SERVER", "CLUSTER_DOMAIN", "CONTAINERD_SOCKET", "NODE_NAME", "PAUSE_IMAGE", "ClusterFolders"]

API_SERVER = f"https://{NODE_ADDRESS}:6443"
CLUSTER_DOMAIN = "cluster.local"
# In the cluster's own /run: a path below the user's home could exceed the 107 bytes of a socket's path.
CONTAINERD_SOCKET = "/run/containerd.sock"
MAX_PODS = 250
NODE_NAME = "delayed-topics"
PAUSE_IMAGE = "delayed-topics/pause:dev"


@dataclass(frozen=True, kw_only=True)
class ClusterFolders:
    """The folder of the running cluster, and the folders and files in it."""

    root: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def processes(self) -> Path:
        return self.root / "processes"

    @property
    def kubelet(self) -> Path:
        """The kubelet's files and the volumes of pods; the kubelet sees this folder under a shorter path."""
        return self.root / "kubelet"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator."""
        return self.root / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The requests of all users that are not part of Kubernetes itself, one JSON object a line."""
        return self.logs / "audit.log"

    def make(self) -> None:
        """Makes the folders."""
        for folder in (self.logs, self.pki, self.config, self.processes, self.kubelet):
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, content: dict[str, Any] | str) -> Path:
        """Writes a configuration file; a dict is written as YAML."""
        file = self.config / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        return file


def kubectl() -> Path:
    """The kubectl that is built with the cluster, and so has its version."""
    return cache_dir("bin") / "kubectl"


def audit_policy() -> dict[str, Any]:
    """Logs requests without their contents, for tests that count requests. Kubernetes' own requests are left out."""
    own_users = [
        f"system:node:{NODE_NAME}",
        "system:apiserver",
        "system:kube-controller-manager",
        "system:kube-scheduler",
        "system:kube-proxy",
        "coredns",
    ]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": own_users},
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*"]},
            {"level": "Metadata"},
        ],
    }


def containerd(folders: ClusterFolders) -> str:
    """containerd's configuration (TOML)."""
    return f"""\
version = 2
root = "{folders.root}/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Otherwise every pod fails on a machine without CAP_SYS_RESOURCE (many sandboxes and containers), with
  # "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_BINARIES}"
    conf_dir = "{folders.config}/cni"
"""


def network_plugins() -> dict[str, Any]:
    """A CNI configuration in which the node routes all traffic of pods, even between pods of the node.

    With a bridge, the answer of a service's pod to a client on the same bridge would bypass the NAT rules that translate its
    address back, unless the kernel has br_netfilter.
    """
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_NETWORK}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni",
    }
    plugins = [{"type": "ptp", "ipam": ipam}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return {"cniVersion": "1.0.0", "name": "delayed-topics", "plugins": plugins}


def kubelet(folders: ClusterFolders) -> dict[str, Any]:
    """A KubeletConfiguration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(folders.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(folders.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(folders.pki / "kubelet.key"),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [NODE_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": "",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "podLogsDir": str(folders.root / "pod-logs"),
        "maxPods": MAX_PODS,
        "serializeImagePulls": False,
        # Keep all images: there is no registry from which to pull a removed one.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }


def kubelet_command(folders: ClusterFolders) -> list[str]:
    """The kubelet's command line."""
    return [
        "kubelet",
        f"--config={folders.config}/kubelet.yaml",
        f"--kubeconfig={folders.config}/kubelet.kubeconfig",
        f"--root-dir={KUBELET_FOLDER}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_ADDRESS}",
    ]


def kube_proxy(folders: ClusterFolders) -> dict[str, Any]:
    """A KubeProxyConfiguration."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(folders.config / "kube-proxy.kubeconfig")},
        "hostnameOverride": NODE_NAME,
        "mode": "iptables",
        "clusterCIDR": POD_NETWORK,
        "conntrack": {"maxPerCore": 0},  # does not change the size of the machine's table
        "iptables": {"minSyncPeriod": "100ms"},
    }


def coredns(folders: ClusterFolders) -> str:
    """A Corefile that serves only the names of the cluster."""
    return f"""\
.:53 {{
    errors
    health {NODE_ADDRESS}:8080
    ready {NODE_ADDRESS}:8181
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {folders.config}/coredns.kubeconfig
        ttl 5
    }}
    cache 5
}}
"""


# The objects that CoreDNS may read.
COREDNS_ROLE = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "devcluster:coredns"},
            "rules": [
                {"apiGroups": [""], "resources": ["services", "namespaces"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "devcluster:coredns"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "devcluster:coredns"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "coredns"}],
        },
    ],
}


def api_server(folders: ClusterFolders) -> list[str]:
    """The API server's command line."""
    pki = folders.pki
    return [
        "kube-apiserver",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={NODE_ADDRESS}",
        "--secure-port=6443",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/api-server.crt",
        f"--tls-private-key-file={pki}/api-server.key",
        f"--kubelet-client-certificate={pki}/api-server-to-kubelet.crt",
        f"--kubelet-client-key={pki}/api-server-to-kubelet.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer=https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
        f"--service-account-key-file={pki}/service-accounts.pub",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        f"--audit-policy-file={folders.config}/audit-policy.yaml",
        f"--audit-log-path={folders.audit_log}",
        "--audit-log-maxsize=200",
        "--audit-log-maxbackup=1",
    ]


def controller_manager(folders: ClusterFolders) -> list[str]:
    """The controller manager's command line."""
    return [
        "kube-controller-manager",
        f"--kubeconfig={folders.config}/kube-controller-manager.kubeconfig",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={folders.pki}/service-accounts.key",
        f"--root-ca-file={folders.pki}/ca.crt",
        "--leader-elect=false",
        # So that a new namespace gets its ServiceAccount after 0.1 s. With the default of 20 requests a second, it takes 4 s.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--node-monitor-grace-period=2m",  # so that the node stays Ready on a busy machine
    ]


def scheduler(folders: ClusterFolders) -> list[str]:
    """The scheduler's command line."""
    return ["kube-scheduler", f"--kubeconfig={folders.config}/kube-scheduler.kubeconfig", "--leader-elect=false"]


def etcd(folders: ClusterFolders) -> list[str]:
    """etcd's command line: reachable in the cluster's own network namespace only."""
    return [
        "etcd",
        f"--data-dir={folders.root}/etcd",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",  # after a power cut, `up` makes a new cluster anyway
        "--log-level=warn",
    ]
