"""The cluster's own namespaces: what ends with them can't be left behind.

One `pause` process is the first of a process namespace, and the network and mount namespaces live as long as
something runs in it. Ending that one process makes the kernel end every process of the cluster (shims and containers
too), then drop their mounts and their iptables rules. What is left on the host is the veth pair with its two routes,
which the next `devcluster up` or `down` removes: no teardown can be interrupted, and a SIGKILL of anything is as clean.
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
    "MADE_FOLDERS",
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
# Where containerd and the network plugins write whatever they are told: a tmpfs of the cluster's own. The kubelet's has pods'
# volumes, and is on a disk.
KUBELET_FOLDER = "/var/lib/kubelet"
MADE_FOLDERS = ("/var/lib/cni", KUBELET_FOLDER)  # missing on most machines: the mounts need them
PRIVATE_FOLDERS = ("/run", "/var/log", *MADE_FOLDERS)
UNSHARE = ("unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "--")


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """The namespaces around one `pause` process. Who it belongs to is on its command line: no file to be lost or out of date."""

    init: Process
    program: Path
    owner: Path
    """The work tree that it was started from."""

    @classmethod
    def create(cls, *, pause: Path, owner: Path, kubelet: Path, log: Path) -> "Namespace":
        """Make the namespaces, mounts and network. `kubelet`: the folder for its files and pods' volumes.

        Raises CommandFailedError if the networks are taken already.
        """
        _refuse_taken_networks()
        for folder in MADE_FOLDERS:
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
        """All that run on this machine, whoever started them."""
        return [namespace for starter, namespace in cls._found() if starter == str(namespace.program)]

    @classmethod
    def inits(cls) -> list[Process]:
        """The processes that all of them end with, also where somebody who was killed had only begun to make one."""
        return [namespace.init for _, namespace in cls._found()]

    @classmethod
    def end_all(cls) -> None:
        """End all of them with everything inside. Returns when nothing of them is left."""
        while inits := cls.inits():
            for init in inits:
                init.kill()
        cls.remove_link()

    @classmethod
    def _found(cls) -> "list[tuple[str, Namespace]]":
        """Each with the program of its process: `unshare` before it is `pause`, and as the parent that waits for it."""
        found = []
        for pid, words in command_lines():
            if len(words) > 1 and is_built_program(words[-2]) and words[-2].endswith("/pause"):
                with suppress(ProcessLookupError):
                    init = Process.of(pid)
                    found.append((words[0], cls(init=init, program=Path(words[-2]), owner=Path(words[-1]))))
        return found

    def processes(self) -> list[Process]:
        """What runs inside; what runs in its containers dies with the first of them."""
        found = []
        for link in Path("/proc").glob("[0-9]*/ns/pid"):
            with suppress(OSError):  # it ended meanwhile
                if link.samefile(f"/proc/{self.init.pid}/ns/pid"):
                    found.append(Process.of(int(link.parts[2])))
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

    @staticmethod
    def remove_link() -> None:
        """Remove the veth pair of namespaces whose processes have ended, and with it the routes on the host.

        The kernel would do so by itself, but a socket that still had something to send when its process was killed
        keeps the network for as long as TCP tries again: 343 s, measured.
        """
        with suppress(CommandFailedError):  # it may go by itself at this very moment
            run("ip", "link", "delete", HOST_DEVICE)
        wait_until(lambda: not _device_exists(), what=f"device {HOST_DEVICE} goes")

    def _prepare_mounts(self, kubelet: Path) -> None:
        mounts = [f"mount -t tmpfs -o mode=755 delayed-topics {folder}" for folder in PRIVATE_FOLDERS]
        # A short path for what is in a long one: the kubelet has sockets there, whose names end at 107 bytes.
        mounts.append(f"mount --bind {shlex.quote(str(kubelet))} {KUBELET_FOLDER}")
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
