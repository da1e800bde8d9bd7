"""The processes of a pod and their memory, if the node is this machine: for faults that kubectl can't cause."""

import errno
import os
import signal
from contextlib import suppress
from pathlib import Path

__all__ = ["limit_memory", "processes_of", "send_signal"]

CGROUPS = Path("/sys/fs/cgroup")


def processes_of(uid: str) -> list[int]:
    """Returns the ids of the pod's processes, without that of its sandbox; none if the pod is not on this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _belongs(entry, uid)]


def send_signal(pids: list[int], number: signal.Signals) -> None:
    """Sends a signal to the processes that still run: helper processes of a pod come and go."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def limit_memory(uid: str, limit_bytes: int) -> bool:
    """Lowers the memory limit of a pod's container, as if it had been configured too low. Returns False if the pod is not on this
    machine, or uses more already."""
    for pid in processes_of(uid):
        with suppress(FileNotFoundError, ProcessLookupError):
            for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                if "memory" in controllers.split(","):
                    return _write(CGROUPS / "memory" / path[1:] / "memory.limit_in_bytes", limit_bytes)
                if not controllers and (CGROUPS / path[1:] / "memory.max").exists():
                    return _write(CGROUPS / path[1:] / "memory.max", limit_bytes)
    return False


def _write(file: Path, number: int) -> bool:
    try:
        file.write_text(str(number))
    except OSError as e:
        if e.errno != errno.EBUSY:
            raise
        return False
    return True


def _belongs(entry: Path, uid: str) -> bool:
    try:
        in_pod = uid in (entry / "cgroup").read_text().replace("_", "-")
        return in_pod and (entry / "comm").read_text().strip() != "pause"
    except (FileNotFoundError, ProcessLookupError):
        return False
