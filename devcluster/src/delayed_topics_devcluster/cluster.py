"""The local cluster: starting it, ending it, and its status.

Nothing in a cluster is worth keeping. If anything is wrong with it (a reboot, a killed process), `up` replaces it by a new one.
"""

import os
import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from delayed_topics_devcluster.assembly import assemble, import_archive, node_is_ready, remove_image
from delayed_topics_devcluster.binaries import binaries, require_binaries_or_go
from delayed_topics_devcluster.errors import DevclusterError, NotInTimeError, PreconditionError
from delayed_topics_devcluster.images import IMAGES, BuiltImage, build_archive, image_name
from delayed_topics_devcluster.locks import locked
from delayed_topics_devcluster.namespace import MOUNT_POINTS, Namespace
from delayed_topics_devcluster.orphans import remove_orphans
from delayed_topics_devcluster.packages import install_for_cluster, refuse_to_harm_docker
from delayed_topics_devcluster.paths import REPOSITORY, cache_dir, cluster_of
from delayed_topics_devcluster.preconditions import require_root
from delayed_topics_devcluster.processes import Process, resident_bytes
from delayed_topics_devcluster.progress import say, step
from delayed_topics_devcluster.settings import ClusterFolders
from delayed_topics_devcluster.waiting import wait_until

__all__ = ["Status", "cluster_folders", "down", "import_image", "load", "prepare", "status", "unload", "up"]

BYTES_PER_MEGABYTE = 1_000_000
READY_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Status:
    """The started programs, by name."""

    resident_megabytes: dict[str, int]  # of the running programs
    ended: tuple[str, ...]

    @property
    def running(self) -> bool:
        """Whether a cluster was started and all its programs still run."""
        return "pods" in self.resident_megabytes and not self.ended


def cluster_folders() -> ClusterFolders:
    """The folders of the cluster's files, whether it runs or not."""
    return ClusterFolders(root=cache_dir() / "cluster")


def status() -> Status:
    """Which programs of this user's cluster run now."""
    running: dict[str, int] = {}
    ended: list[str] = []
    for namespace in _own_namespaces():
        running["pods"] = _resident_bytes_of_tree(namespace.init.pid) // BYTES_PER_MEGABYTE
    for file in sorted(cluster_folders().processes.glob("*.json")):
        process = Process.read(file)
        if process is not None and process.alive():
            running[file.stem] = _resident_bytes_of_tree(process.pid) // BYTES_PER_MEGABYTE
        else:
            ended.append(file.stem)
    return Status(resident_megabytes=running, ended=tuple(ended))


def up() -> None:
    """Makes sure that a cluster runs and its node is ready: takes less than a second if it does, about 15 s if not.

    Raises PreconditionError if a cluster of another work tree or user runs: a machine can run only one.
    """
    require_root()
    with _machine_locked():
        if _is_up():
            return
    _get_programs()  # without the lock: this can take minutes, and `down` should not have to wait
    folders = cluster_folders()
    with _machine_locked():
        if _is_up():
            return
        _remove()
        try:
            assemble(folders, binaries())
        except BaseException:
            kept = _keep_logs(folders)
            _remove()
            say(f"the logs are in {kept}")
            raise


def prepare() -> None:
    """Builds and installs everything that `up` and our images need: 20 minutes on a new machine. `up` then takes seconds."""
    require_root()
    _get_programs()
    for name in IMAGES:
        build_archive(name)


def down() -> None:
    """Ends the cluster, whoever started it, and removes all its files. Succeeds also if there is none, or only parts of one."""
    remove_orphans()
    if os.geteuid() != 0 and not Namespace.inits() and not cluster_folders().root.exists():
        return
    require_root()
    with _machine_locked(), step("ending the cluster"):
        _remove()


def import_image(archive: Path) -> None:
    """Puts an image (a docker-archive or OCI archive) onto the node. Raises DevclusterError if the cluster is down."""
    import_archive(_namespace(), archive)


def _namespace() -> Namespace:
    namespaces = _own_namespaces()
    if not namespaces:
        raise DevclusterError("the cluster is not up. Run `devcluster up` first")
    return namespaces[0]


def load(image: BuiltImage) -> None:
    """Puts a built image onto the node, unless the node has exactly this build."""
    record = _loaded() / image.archive.name
    if record.exists():
        return
    with locked("load"), step(f"loading image {image.name}"):
        import_image(image.archive)
        record.parent.mkdir(exist_ok=True)
        _forget(image.archive.name.rsplit("-", 1)[0])
        record.touch()


def unload(name: str) -> None:
    """Removes one of our images (`worker`) from the node, for a test of a missing image."""
    with locked("load"):
        _forget(name)
        remove_image(_namespace(), f"docker.io/{image_name(name)}")


def _loaded() -> Path:
    return cluster_folders().root / "images"


def _forget(name: str) -> None:
    for record in _loaded().glob(f"{name}-*"):
        record.unlink()


def _is_up() -> bool:
    _refuse_cluster_of_another()

    def decided() -> bool:
        return not status().running or node_is_ready(cluster_folders())

    try:  # a busy cluster answers late, and someone may be using it
        wait_until(decided, what="the node is ready", timeout_seconds=READY_TIMEOUT_SECONDS)
    except NotInTimeError as e:
        say(f"{e.message}. A new cluster replaces this one")
        return False
    if status().running:
        say("the cluster is up")
        return True
    return False


def _get_programs() -> None:
    refuse_to_harm_docker()
    require_binaries_or_go()
    install_for_cluster()
    binaries()


def _machine_locked() -> AbstractContextManager[None]:
    return locked("delayed-topics-cluster.lock", folder=Path("/run"))


def _remove() -> None:
    """Ends every cluster on this machine, whoever started it, and removes its files and those of our own cluster."""
    roots = {cluster_folders().root, *(cluster_of(namespace.program) for namespace in Namespace.running())}
    Namespace.end_all()
    for folders in (ClusterFolders(root=root) for root in roots):
        for file in folders.processes.glob("*.json"):
            process = Process.read(file)
            if process is not None:  # the nsenter that waits for a program inside
                process.kill()
    for group in sorted(_pod_cgroups(), reverse=True):
        wait_until(partial(_removed, group), what=f"{group} is empty")
    for folder in MOUNT_POINTS:
        _remove_if_empty(Path(folder))
    for root in roots:
        if root.exists():
            shutil.rmtree(root)


def _own_namespaces() -> list[Namespace]:
    return [namespace for namespace in Namespace.running() if namespace.program.is_relative_to(cache_dir("bin"))]


def _refuse_cluster_of_another() -> None:
    for namespace in Namespace.running():
        if namespace.owner != REPOSITORY or namespace not in _own_namespaces():
            raise PreconditionError(
                f"A cluster that was started from {namespace.owner} runs on this machine, with its files in"
                f" {cluster_of(namespace.program)}. A machine can run only one cluster. To end that one, run `make down`, here or there"
            )


def _pod_cgroups() -> list[Path]:
    """The kubelet's control groups, which the kernel does not remove by itself.

    cgroup v1 has one tree for each controller, v2 has one in all.
    """
    roots = [*Path("/sys/fs/cgroup").glob("kubepods"), *Path("/sys/fs/cgroup").glob("*/kubepods")]
    return [group for root in roots for group in (root, *filter(Path.is_dir, root.rglob("*")))]


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # its last process is still ending
        return False
    return True


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _keep_logs(folders: ClusterFolders) -> Path:
    kept = cache_dir() / "cluster-failed-logs"
    shutil.rmtree(kept, ignore_errors=True)
    if folders.logs.is_dir():
        shutil.copytree(folders.logs, kept)
    return kept


def _resident_bytes_of_tree(pid: int) -> int:
    """The resident memory of a process and all its descendants: the recorded process is the nsenter that started the program."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # the process has ended
        return 0
    return resident_bytes(pid) + sum(_resident_bytes_of_tree(int(child)) for child in children)
