"""Installs the Debian packages that the cluster, the builds and a benchmark need, and never removes a package."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.errors import CommandFailedError, PreconditionError
from delayed_topics_devcluster.locks import locked, made_once
from delayed_topics_devcluster.paths import cache_dir
from delayed_topics_devcluster.processes import program_runs
from delayed_topics_devcluster.progress import step

__all__ = [
    "install_for_cluster",
    "install_for_images",
    "install_redis",
    "install_rust",
    "program_of",
    "refuse_to_harm_docker",
]

CNI_BINARIES = Path("/usr/lib/cni")
APT = ("apt-get", "-y", "-qq")
OTHER_CLUSTER = "set CONTEXT=name to use a cluster of your kubeconfig instead (kind, for example)"


def install_for_cluster() -> None:
    """Installs the programs that run pods: containerd, runc, network plugins, iptables."""
    _install(
        {
            "containerd": "containerd",
            "runc": "runc",
            str(CNI_BINARIES / "ptp"): "containernetworking-plugins",
            "iptables": "iptables",
            "conntrack": "conntrack",
            "ip": "iproute2",
            "nsenter": "util-linux",
        }
    )


def install_for_images() -> None:
    """Installs the programs that build images without a registry."""
    _install({"buildah": "buildah", "mmdebstrap": "mmdebstrap"})


def install_redis() -> None:
    """Installs Redis for a benchmark: its program is also in redis-tools, while the package of the server would start a server."""
    _install({"redis-check-rdb": "redis-tools"}, otherwise="do without it")


RUST = (
    (
        "rustc-web",
        "cargo-web",
        "rustfmt-web",
        "rust-web-clippy",
    ),  # for Debian 12, whose rustc is of 2022; these newer packages build browsers
    ("rustc", "cargo", "rustfmt", "rust-clippy"),
)
"""The sets of packages to choose from; the compiler is the first of each."""


def install_rust(at_least: tuple[int, int]) -> None:
    """Installs the toolchain that builds and checks the engine. Does nothing if Debian has no packages of that version."""
    if shutil.which("apt-get") is None:
        return
    if not _has_lists():
        run(*APT, "update")
    fitting = (packages for packages in RUST if _candidate(packages[0]) >= at_least)
    if packages := next(fitting, None):
        _install_all(sorted(packages))


def program_of(package: str, program: str) -> Path:
    """Extracts a program from a Debian package into the user's cache. Installing the package would start a server."""

    def fetch(folder: Path) -> None:
        with step(f"fetching {program} of the Debian package {package}"):
            _with_fresh_lists(lambda: run(*APT, "-o", "APT::Sandbox::User=root", "download", package, cwd=folder))
            run("dpkg-deb", "--extract", next(folder.glob("*.deb")), folder)

    return made_once(cache_dir("debian") / package, fetch) / "usr" / "bin" / program


def refuse_to_harm_docker() -> None:
    """Raises PreconditionError if installing containerd would remove or restart Docker: its package containerd.io conflicts with
    Debian's containerd."""
    if _installed("containerd.io"):
        raise PreconditionError(f"Docker's containerd.io package excludes Debian's containerd: {OTHER_CLUSTER}.")
    if program_runs("dockerd"):
        raise PreconditionError(
            f"A Docker engine runs here, and installing containerd could restart it: {OTHER_CLUSTER}, or stop dockerd."
        )


def _install(package_of: dict[str, str], *, otherwise: str = OTHER_CLUSTER) -> None:
    missing = sorted({package for program, package in package_of.items() if shutil.which(program) is None})
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise PreconditionError(
            f"This machine does not run Debian. Either install {', '.join(missing)} by hand, or {otherwise}."
        )
    _install_all(missing)


def _install_all(packages: list[str]) -> None:
    with locked("packages"), step(f"installing Debian packages: {', '.join(packages)}"):
        environment = {"DEBIAN_FRONTEND": "noninteractive"}
        command = (*APT, "install", "--no-remove", "--no-install-recommends", *packages)
        _with_fresh_lists(lambda: run(*command, environment=environment))


def _candidate(package: str) -> tuple[int, int]:
    """The version that apt would install, or 0.0 if there is none."""
    found = re.search(r"Candidate: (?:\d+:)?(\d+)\.(\d+)", run("apt-cache", "policy", package))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _has_lists() -> bool:
    return any(Path("/var/lib/apt/lists").glob("*_Packages*"))


def _with_fresh_lists(command: Callable[[], str]) -> None:
    if not _has_lists():
        run(*APT, "update")
    try:
        command()
    except CommandFailedError:  # the mirror may have replaced files since the lists were fetched
        run(*APT, "update")
        command()


def _installed(package: str) -> bool:
    query = ("dpkg-query", "--show", "--showformat=${db:Status-Status}", package)
    try:
        return subprocess.run(query, capture_output=True, text=True, check=False).stdout == "installed"
    except FileNotFoundError:
        return False
