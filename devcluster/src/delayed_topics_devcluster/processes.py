"""Processes that outlive the shell that started them, identified by id *and* start time.

A process id alone identifies nothing after a reboot or after ids have wrapped around, and a stale file must never make us
end a foreign process.
"""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from delayed_topics_devcluster.errors import CommandFailedError, NotInTimeError
from delayed_topics_devcluster.waiting import wait_until

__all__ = ["Process", "command_lines", "died", "listens", "program_runs", "resident_bytes", "start_detached"]

LOG_LINES_SHOWN = 15


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process. Its identity stays valid after the process has ended, and after a reboot."""

    pid: int
    started_at_ticks: int  # since boot, field 22 of /proc/PID/stat
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> "Process":
        """Returns the process that has this id now. Raises ProcessLookupError if there is none."""
        ticks = _start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(f"no process {pid}")
        return cls(pid=pid, started_at_ticks=ticks, boot_id=_boot_id())

    @classmethod
    def read(cls, file: Path) -> "Process | None":
        """Reads a file of `write`. Returns None if the file is missing, or incomplete after a crash."""
        try:
            return cls(**json.loads(file.read_text()))
        except (FileNotFoundError, json.JSONDecodeError, TypeError):
            return None

    def write(self, file: Path) -> None:
        """Records the process in a file."""
        file.write_text(json.dumps(asdict(self)))

    def alive(self) -> bool:
        """Whether exactly this process still runs (a zombie doesn't)."""
        return self.boot_id == _boot_id() and _start_ticks(self.pid) == self.started_at_ticks

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; nothing happens if the process is gone."""
        with suppress(ProcessLookupError):
            held = os.pidfd_open(self.pid)  # never refers to a later process with the same id
            try:
                if self.alive():
                    signal.pidfd_send_signal(held, number)
            finally:
                os.close(held)

    def stop(self, *, timeout_seconds: float = 10) -> None:
        """Sends SIGTERM, and SIGKILL after the timeout. Returns when the process is gone."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        with suppress(NotInTimeError):
            wait_until(lambda: not self.alive(), what=f"process {self.pid} ends", timeout_seconds=timeout_seconds)
        self.kill()

    def kill(self) -> None:
        """Sends SIGKILL. Returns when the process is gone."""
        self.signal(signal.SIGKILL)
        wait_until(lambda: not self.alive(), what=f"process {self.pid} dies")


def start_detached(
    command: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None
) -> Process:
    """Starts a process in a session of its own, and appends its output to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            cwd="/",
        )
    child.returncode = 0  # keeps Popen from warning about a running process when this object is collected
    try:
        return Process.of(child.pid)
    except ProcessLookupError:
        raise died(str(command[0]), log) from None


def died(name: str, log: Path) -> CommandFailedError:
    """Returns the error for a process that ended unexpectedly, with the end of its log."""
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return CommandFailedError("\n  ".join([f"{name} ended; the end of {log}:", *lines]))


def listens(process: Process, host: str, port: int, *, name: str, log: Path) -> bool:
    """Whether the process accepts connections on this port. Raises the error of `died` if it has ended."""
    if not process.alive():
        raise died(name, log)
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses; the name may contain spaces and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    state, start_ticks = fields[0], int(fields[19])
    if state in "ZX" and not _other_threads_run(pid):
        _reap(pid)
        return None
    return start_ticks


def _other_threads_run(pid: int) -> bool:
    """Whether threads other than the first still run. A process whose first thread has ended looks like a zombie, but the others may
    still hold its ports."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except FileNotFoundError:
        return False


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # not our child: its parent or init reaps it


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def command_lines() -> Iterator[tuple[int, list[str]]]:
    """Yields the id and the command line of every process that runs a program."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            words = file.read_text(errors="replace").split("\0")[:-1]
            if words:
                yield int(file.parent.name), words


def program_runs(name: str) -> bool:
    """Whether any process on this machine runs a program of this name."""
    return any(_name(file) == name for file in Path("/proc").glob("[0-9]*/comm"))


def _name(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # the process has ended
        return ""
