"""The cluster's own namespaces: what ends with them can't be left behind.

One `pause` process is the first of a process namespace, and the network and mount namespaces live as long as
something runs in it. Ending that one process makes the kernel end every process of the cluster (shims and containers
too), then drop their mounts and their iptables rules. What is left on the host is the veth pair with its two routes,
which the next `devcluster up` or `down` removes: no teardown can be interrupted, and a SIGKILL of anything is as clean.
"""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_devcluster.processes import Process, start_detached
from delayed_topics_devcluster.waiting import wait_until

__all__ = ["HOST_ADDRESS", "MADE_FOLDERS", "NODE_ADDRESS", "POD_NETWORK", "SERVICE_NETWORK", "Namespace"]

HOST_ADDRESS = "10.213.0.1"
NODE_ADDRESS = "10.213.0.2"
LINK_PREFIX_BITS = 30
POD_NETWORK = "10.214.0.0/16"
SERVICE_NETWORK = "10.215.0.0/16"
HOST_DEVICE = "delayed-topics"
NODE_DEVICE = "eth0"
# Where kubelet, containerd and the network plugins write whatever they are told: a tmpfs of the cluster's own.
MADE_FOLDERS = ("/var/lib/cni", "/var/lib/kubelet")  # missing on most machines: the mounts need them
PRIVATE_FOLDERS = ("/run", "/var/log", *MADE_FOLDERS)


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """The namespaces around one `pause` process."""

    init: Process

    @classmethod
    def create(cls, *, pause: Path, log: Path) -> "Namespace":
        """Make the namespaces, mounts and network. Raises CommandFailedError if the networks are taken already."""
        _refuse_taken_networks()
        for folder in MADE_FOLDERS:
            Path(folder).mkdir(parents=True, exist_ok=True)
        unshare = start_detached(
            ["unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "--", pause],
            log=log,
        )
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
        wait_until(lambda: _runs(children, pause), what=f"namespaces (see {log})", timeout_seconds=10)
        made = cls(init=Process.of(int(children.read_text())))
        made._prepare_mounts()
        made._prepare_network()
        return made

    @classmethod
    def running(cls) -> "list[tuple[Path, Namespace]]":
        """All that run on this machine, each with its `pause` program: known by that, so that no file can be lost."""
        found = []
        for link in Path("/proc").glob("[0-9]*/exe"):
            program = _program(link)
            if program.name == "pause" and "delayed-topics" in program.parts:
                with suppress(ProcessLookupError):
                    found.append((program, cls(init=Process.of(int(link.parent.name)))))
        return found

    def prefix(self) -> Sequence[str]:
        """What to put before a command so that it runs inside."""
        # Not `ip netns exec`: it mounts a fresh /sys, and the kubelet then finds no cgroups.
        return ("nsenter", f"--target={self.init.pid}", "--net", "--mount", "--pid", "--ipc", "--")

    def start(self, command: Sequence[str | Path], *, log: Path) -> Process:
        """Start a detached process inside."""
        return start_detached([*self.prefix(), *command], log=log)

    def run(self, *command: str | Path, text_in: str | None = None) -> str:
        """Run a command inside to its end and return its output."""
        return run(*command, prefix=self.prefix(), text_in=text_in)

    def destroy(self) -> None:
        """End everything inside. Returns when nothing of it is left."""
        self.init.kill()
        self.remove_link()

    @staticmethod
    def remove_link() -> None:
        """Remove the veth pair of namespaces whose processes have ended, and with it the routes on the host.

        The kernel would do so by itself, but a socket that still had something to send when its process was killed
        keeps the network for as long as TCP tries again: 343 s, measured.
        """
        with suppress(CommandFailedError):  # it may go by itself at this very moment
            run("ip", "link", "delete", HOST_DEVICE)
        wait_until(lambda: not _device_exists(), what=f"device {HOST_DEVICE} goes", timeout_seconds=60)

    def _prepare_mounts(self) -> None:
        mounts = [f"mount -t tmpfs -o mode=755 delayed-topics {folder}" for folder in PRIVATE_FOLDERS]
        # unshare made every mount private to these namespaces; pods want to share among each other.
        self.run("sh", "-ec", "\n".join(["mount --make-rshared /", *mounts, "mkdir /run/lock"]))

    def _prepare_network(self) -> None:
        peer = ("peer", "name", NODE_DEVICE, "netns", str(self.init.pid))
        run("ip", "link", "add", HOST_DEVICE, "type", "veth", *peer)
        run("ip", "address", "add", f"{HOST_ADDRESS}/{LINK_PREFIX_BITS}", "dev", HOST_DEVICE)
        run("ip", "link", "set", HOST_DEVICE, "up")
        # There is no default route inside: a pod that asks for the internet is told at once that there is none.
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
    """Whether unshare has forked, set everything up, and become the program."""
    try:
        pid = children.read_text().strip()
        return bool(pid) and Path(f"/proc/{pid}/exe").resolve() == program.resolve()
    except OSError as error:
        raise CommandFailedError(f"the namespaces could not be made ({error}): this needs all rights of root") from None


def _program(link: Path) -> Path:
    try:
        return Path(str(link.readlink()).removesuffix(" (deleted)"))
    except OSError:  # it ended meanwhile, or has no program (a thread of the kernel)
        return Path()


def _device_exists() -> bool:
    return Path(f"/sys/class/net/{HOST_DEVICE}").exists()


def _refuse_taken_networks() -> None:
    for network in (f"{NODE_ADDRESS}/{LINK_PREFIX_BITS}", POD_NETWORK, SERVICE_NETWORK):
        routes = subprocess.run(
            ["ip", "-o", "route", "show", "root", network], capture_output=True, text=True, check=False
        ).stdout
        if routes.strip():
            raise CommandFailedError(
                f"the network {network} is in use on this machine ({routes.splitlines()[0].strip()}):"
                " remove that route, or set CONTEXT=name to use a cluster of your kubeconfig"
            )
