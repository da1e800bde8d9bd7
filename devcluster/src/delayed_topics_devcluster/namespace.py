"""The Linux namespaces of the cluster, which make the kernel clean up after it.

A `pause` process is the first process of a PID namespace. The network and mount namespaces live as long as a process
runs in it. When the `pause` process ends, the kernel ends every process of the cluster (shims and containers too) and
then drops their mounts and iptables rules. Only the veth pair with its two routes stays on the host, until the next
`devcluster up` or `down` removes it. So an interrupted teardown, or a SIGKILL of any process, leaves nothing else behind.
"""

import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_devcluster.paths import is_built_program
from delayed_topics_devcluster.processes import Process, command_lines, start_detached
from delayed_topics_devcluster.waiting import wait_until

__all__ = [
    "HOST_ADDRESS",
    "KUBELET_FOLDER",
    "MOUNT_POINTS",
    "NODE_ADDRESS",
    "POD_NETWORK",
    "SERVICE_NETWORK",
    "Namespace",
]

HOST_ADDRESS = "10.213.0.1"
NODE_ADDRESS = "10.213.0.2"
LINK_PREFIX_BITS = 30
POD_NETWORK = "10.214.0.0/16"
SERVICE_NETWORK = "10.215.0.0/16"
HOST_DEVICE = "delayed-topics"
NODE_DEVICE = "eth0"
KUBELET_FOLDER = "/var/lib/kubelet"
MOUNT_POINTS = ("/var/lib/cni", KUBELET_FOLDER)  # missing on most machines
# containerd and the network plugins write to these folders whatever their configuration says, so each is a tmpfs of the
# cluster's own. Over the kubelet's a folder on disk is mounted, because it holds the volumes of pods.
PRIVATE_FOLDERS = ("/run", "/var/log", *MOUNT_POINTS)
UNSHARE = ("unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "--")


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """The namespaces around one `pause` process. Its command line names its owner, so that no file can be lost or out of date."""

    init: Process
    program: Path
    owner: Path
    """The work tree from which the cluster was started."""

    @classmethod
    def create(cls, *, pause: Path, owner: Path, kubelet: Path, log: Path) -> "Namespace":
        """Makes the namespaces, mounts and network. `kubelet`: the folder for the kubelet's files and the volumes of pods.

        Raises CommandFailedError if the machine has a route to one of the networks already.
        """
        _refuse_taken_networks()
        for folder in MOUNT_POINTS:
            Path(folder).mkdir(parents=True, exist_ok=True)
        unshare = start_detached([*UNSHARE, pause, owner], log=log)
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
        wait_until(lambda: _runs(children, pause), what=f"namespaces (see {log})")
        made = cls(init=Process.of(int(children.read_text())), program=pause, owner=owner)
        made._prepare_mounts(kubelet)
        made._prepare_network()
        return made

    @classmethod
    def running(cls) -> "list[Namespace]":
        """The namespaces of all clusters on this machine, whoever started them."""
        return [namespace for starter, namespace in cls._found() if starter == str(namespace.program)]

    @classmethod
    def inits(cls) -> list[Process]:
        """The processes whose end ends all of these clusters, including a cluster whose creation was interrupted by a kill."""
        return [namespace.init for _, namespace in cls._found()]

    @classmethod
    def end_all(cls) -> None:
        """Ends all clusters on this machine with every process inside. Returns when none is left."""
        while inits := cls.inits():
            for init in inits:
                init.kill()
        cls.remove_link()

    @classmethod
    def _found(cls) -> "list[tuple[str, Namespace]]":
        """Each namespace with the program of its process: `pause`, or `unshare`, which forks it and then waits for it."""
        found = []
        for pid, words in command_lines():
            if len(words) > 1 and is_built_program(words[-2]) and words[-2].endswith("/pause"):
                with suppress(ProcessLookupError):
                    init = Process.of(pid)
                    found.append((words[0], cls(init=init, program=Path(words[-2]), owner=Path(words[-1]))))
        return found

    def processes(self) -> list[Process]:
        """The processes of this PID namespace, without those in the PID namespaces of containers."""
        found = []
        for link in Path("/proc").glob("[0-9]*/ns/pid"):
            with suppress(OSError):  # the process has ended
                if link.samefile(f"/proc/{self.init.pid}/ns/pid"):
                    found.append(Process.of(int(link.parts[2])))
        return found

    def prefix(self) -> Sequence[str]:
        """The words to put before a command so that it runs inside."""
        # Not `ip netns exec`, which mounts a fresh /sys, where the kubelet finds no cgroups.
        return ("nsenter", f"--target={self.init.pid}", "--net", "--mount", "--pid", "--ipc", "--")

    def start(self, command: Sequence[str | Path], *, log: Path) -> Process:
        """Starts a detached process inside."""
        return start_detached([*self.prefix(), *command], log=log)

    def run(self, *command: str | Path, text_in: str | None = None) -> str:
        """Runs a command inside to its end and returns its output."""
        return run(*command, prefix=self.prefix(), text_in=text_in)

    @staticmethod
    def remove_link() -> None:
        """Removes the veth pair of namespaces whose processes have ended, and with it the routes on the host.

        The kernel would do so by itself, but a socket that had unsent data when its process was killed keeps the network
        namespace for as long as TCP retries: 343 s, measured.
        """
        with suppress(CommandFailedError):  # the kernel may remove it at this very moment
            run("ip", "link", "delete", HOST_DEVICE)
        wait_until(lambda: not _device_exists(), what=f"device {HOST_DEVICE} is gone")

    def _prepare_mounts(self, kubelet: Path) -> None:
        mounts = [f"mount -t tmpfs -o mode=755 delayed-topics {folder}" for folder in PRIVATE_FOLDERS]
        # The kubelet's sockets need a short path: the path of a socket has at most 107 bytes.
        mounts.append(f"mount --bind {shlex.quote(str(kubelet))} {KUBELET_FOLDER}")
        # unshare has made every mount private to these namespaces; pods need mount propagation among each other.
        self.run("sh", "-ec", "\n".join(["mount --make-rshared /", *mounts, "mkdir /run/lock"]))

    def _prepare_network(self) -> None:
        peer = ("peer", "name", NODE_DEVICE, "netns", str(self.init.pid))
        run("ip", "link", "add", HOST_DEVICE, "type", "veth", *peer)
        run("ip", "address", "add", f"{HOST_ADDRESS}/{LINK_PREFIX_BITS}", "dev", HOST_DEVICE)
        run("ip", "link", "set", HOST_DEVICE, "up")
        # There is no default route inside, so that connections from pods to the internet fail at once.
        self.run(
            "sh",
            "-ec",
            f"""ip link set lo up
            ip address add {NODE_ADDRESS}/{LINK_PREFIX_BITS} dev {NODE_DEVICE}
            ip link set {NODE_DEVICE} up
            ip route add {SERVICE_NETWORK} dev {NODE_DEVICE}
            echo 1 > /proc/sys/net/ipv4/ip_forward""",
        )
        for network in (POD_NETWORK, SERVICE_NETWORK):
            run("ip", "route", "add", network, "via", NODE_ADDRESS)


def _runs(children: Path, program: Path) -> bool:
    """Whether the child of unshare runs the program already, and so all namespaces are set up."""
    try:
        pid = children.read_text().strip()
        return bool(pid) and Path(f"/proc/{pid}/exe").resolve() == program.resolve()
    except OSError as error:
        raise CommandFailedError(f"could not create the namespaces, which needs all rights of root ({error})") from None


def _device_exists() -> bool:
    return Path(f"/sys/class/net/{HOST_DEVICE}").exists()


def _refuse_taken_networks() -> None:
    for network in (f"{NODE_ADDRESS}/{LINK_PREFIX_BITS}", POD_NETWORK, SERVICE_NETWORK):
        routes = subprocess.run(
            ["ip", "-o", "route", "show", "root", network], capture_output=True, text=True, check=False
        ).stdout
        if routes.strip():
            raise CommandFailedError(
                f"the network {network} is in use on this machine ({routes.splitlines()[0].strip()})."
                " Either remove that route, or set CONTEXT=name to use a cluster of your kubeconfig"
            )
