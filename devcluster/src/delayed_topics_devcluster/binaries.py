"""Kubernetes and Helm, built from their Go modules: once for each content of devcluster/kubernetes."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from delayed_topics_devcluster.commands import LINES_SHOWN
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_devcluster.locks import locked
from delayed_topics_devcluster.paths import KUBERNETES_SOURCE, cache_dir
from delayed_topics_devcluster.preconditions import require_go
from delayed_topics_devcluster.progress import say, step
from delayed_topics_devcluster.waiting import wait_until

__all__ = ["binaries", "require_binaries_or_go"]

BUILD_TIMEOUT_SECONDS = 3600.0
PROGRESS_SECONDS = 15.0
PROGRAMS = (
    "kubectl",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
)


def require_binaries_or_go() -> None:
    """Raises PreconditionError if the programs are not built yet and Go is missing."""
    if not _folder().is_dir():
        require_go()


def binaries() -> Path:
    """Returns the folder with `kubectl`, `helm`, `pause` and every server program, and builds them first if it is missing.

    Takes about 8 minutes on 2 cores the first time. Raises PreconditionError without Go 1.24.
    """
    folder = _folder()
    with locked("binaries"):
        if not folder.is_dir():
            require_go()
            _build_into(folder)
    return folder


def _build_into(folder: Path) -> None:
    older = list(folder.parent.glob("*/"))
    built = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".building-"))
    try:
        _build_all(built)
        built.chmod(0o755)
        built.rename(folder)
    finally:
        shutil.rmtree(built, ignore_errors=True)
    for name in ("kubectl", "helm"):
        _point(folder.parent / name, folder / name)
    for former in older:
        shutil.rmtree(former)


def _folder() -> Path:
    """The folder of the programs, named after a digest of the sources and flags."""
    modules = [KUBERNETES_SOURCE / "go.mod", KUBERNETES_SOURCE / "go.sum"]
    digest = hashlib.sha256(" ".join(_version_flags()).encode())
    for source in (*modules, *sorted(KUBERNETES_SOURCE.rglob("*.go"))):
        digest.update(source.read_bytes())
    return cache_dir("bin") / digest.hexdigest()[:16]


def _build_all(folder: Path) -> None:
    _build("pause", package="./pause", into=folder, flags=[])
    kubernetes, helm = _version("k8s.io/kubernetes"), _version("helm.sh/helm/v3")
    _build(f"Kubernetes {kubernetes}", package=".", into=folder, flags=_version_flags(), name="kubernetes")
    _build(f"Helm {helm}", package="helm.sh/helm/v3/cmd/helm", into=folder, flags=_version_flags(), name="helm")
    for program in PROGRAMS:
        (folder / program).symlink_to("kubernetes")


def _version_flags() -> list[str]:
    """Linker flags for the versions. Without them, the programs report v0.0.0, and Helm takes an unknown cluster for version 1.20."""
    kubernetes, helm = _version("k8s.io/kubernetes"), _version("helm.sh/helm/v3")
    major, minor, _ = kubernetes.removeprefix("v").split(".")
    own = {"gitVersion": kubernetes, "gitMajor": major, "gitMinor": minor}
    assumed = {"k8sVersionMajor": major, "k8sVersionMinor": minor}
    values = {
        "k8s.io/component-base/version": own,
        "k8s.io/client-go/pkg/version": own,
        "helm.sh/helm/v3/internal/version": {"version": helm},
        "helm.sh/helm/v3/pkg/chartutil": assumed,
        "helm.sh/helm/v3/pkg/lint/rules": assumed,
    }
    return [f"-X {package}.{name}={value}" for package, of in values.items() for name, value in of.items()]


def _build(title: str, *, package: str, into: Path, flags: list[str], name: str | None = None) -> None:
    log = into.parent / "build.log"
    # The build uses all processors for minutes, so it runs with the lowest priority.
    command = ["nice", "-n", "19", "go", "build", "-v", "-trimpath", "-ldflags", " ".join(["-s", "-w", *flags])]
    with step(f"building {title} from source (minutes the first time; log in {log})"), log.open("w") as output:
        compiler = subprocess.Popen(
            [*command, "-o", str(into / (name or title)), package],
            cwd=KUBERNETES_SOURCE,
            env={**os.environ, "CGO_ENABLED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        next_progress = time.monotonic() + PROGRESS_SECONDS

        def finished() -> bool:
            nonlocal next_progress
            if time.monotonic() >= next_progress:
                next_progress += PROGRESS_SECONDS
                lines = log.read_text(errors="replace").splitlines()
                say(f"{len(lines)} modules and packages so far, now {lines[-1] if lines else 'reading modules'}")
            return compiler.poll() is not None

        try:
            wait_until(finished, what=f"building {title}", timeout_seconds=BUILD_TIMEOUT_SECONDS, poll_seconds=0.3)
        finally:
            compiler.kill()
            compiler.wait()
        if compiler.returncode:
            end = log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
            raise CommandFailedError("\n  ".join([f"building {title} failed; the end of {log}:", *end]))


def _version(module: str) -> str:
    found = re.search(rf"^\s*{re.escape(module)} (v\S+)", (KUBERNETES_SOURCE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise CommandFailedError(f"{KUBERNETES_SOURCE / 'go.mod'} does not require {module}")
    return found[1]


def _point(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    fresh = link.with_name(f".{link.name}-{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(link)
