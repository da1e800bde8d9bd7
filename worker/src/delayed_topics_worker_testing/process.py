"""Runs `python -m delayed_topics_worker` as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delayed_topics_devcluster.processes import resident_bytes
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from prometheus_client.parser import text_string_to_metric_families

LOG_LINES_SHOWN = 25


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a worker is started: a command to put before its own, further environment variables, and the address of its HTTP server."""

    prefix: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"


class WorkerProcess:
    """A worker process, started on construction. `ready` waits until its partitions are served. `ended_at_ms`: when it was terminated or
    killed."""

    def __init__(
        self,
        directory: Path,
        connection: Connection,
        topics: Sequence[str],
        *,
        port: int,
        member: str,
        launch: Launch = Launch(),
        **config: Any,
    ) -> None:
        """`config`: further fields of worker.json."""
        self.member = member
        self.log_path = directory / f"{member}.log"
        self._url = f"http://{launch.address}:{port}"
        self.started_at_ms = int(time.time() * 1000)
        self.ended_at_ms: int | None = None
        # Each worker has a folder of its own, because another worker may be reading while this one's files are written.
        secret = directory / f"{member}.connection"
        secret.mkdir(exist_ok=True)
        for name, text in connection.to_files().items():
            (secret / name).write_text(text)
        file = directory / f"{member}.json"
        file.write_text(json.dumps({"topics": list(topics), "http_port": port, **config}))
        with self.log_path.open("ab") as log:
            command = [
                sys.executable,
                "-m",
                "delayed_topics_worker",
                "--config",
                str(file),
                "--connection",
                str(secret),
            ]
            self._process = subprocess.Popen(
                [*launch.prefix, *command],
                env={**os.environ, "POD_NAME": member, **launch.environment},
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def ready(self, timeout_seconds: float = 180) -> "WorkerProcess":
        def is_ready() -> bool:
            assert self.running, self.log_path.read_text()
            return self.get("/readyz")[0] == 200

        wait_until(is_ready, what=f"{self.member} is ready (see {self.log_path})", timeout_seconds=timeout_seconds)
        return self

    def wait_up(self) -> None:
        """Waits until the HTTP server answers, as a kubelet's startup probe does."""

        def is_up() -> bool:
            assert self.running, self.log_path.read_text()
            return self.get("/livez")[0] == 200

        wait_until(is_up, what=f"{self.member} is up (see {self.log_path})", poll_seconds=0.01)

    def get(self, path: str) -> tuple[int, str]:
        """Returns the status code and the body; 0 and an empty body while nothing listens."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError:
            return 0, ""

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.get("/status")[1] or "{}")
        return body

    def metric(self, name: str, **labels: str) -> float:
        """Returns the sum of the samples of a gauge or counter that have these labels; 0 if there are none."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def takes_in_no_more(self) -> None:
        """Waits until the worker takes in no more records, because too many are unfinished."""
        seen = [0.0]

        def the_same_twice() -> bool:
            seen.append(self.metric("delayedtopics_taken_in_total"))
            return seen[-1] == seen[-2] > 0

        wait_until(the_same_twice, what=f"intake of {self.member} waits", poll_seconds=1, timeout_seconds=60)

    def evidence(self) -> str:
        """Returns the status of the worker and the end of its log."""
        state = "runs" if self.running else f"ended with {self._process.returncode}"
        log = self.log_path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join([f"{self.member} {state}; /status: {self.get('/status')[1]}", *log])

    def alarms(self) -> list[dict[str, str]]:
        """Returns the alarms of /status."""
        found: list[dict[str, str]] = self.status().get("alarms", [])
        return found

    def alarm_reasons(self) -> set[str]:
        return {alarm["reason"] for alarm in self.alarms()}

    def cpu_seconds(self) -> float:
        """Returns the processor time of all threads so far, including that of the start."""
        return seconds_of(Path(f"/proc/{self.pid}/stat"))

    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_seconds: float = 180) -> int:
        return self._process.wait(timeout_seconds)

    def terminate(self) -> int:
        """Sends SIGTERM, and returns the exit code."""
        self.ended_at_ms = int(time.time() * 1000)
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Sends SIGKILL, and waits for the end of the process."""
        self.ended_at_ms = int(time.time() * 1000)
        self._process.kill()
        self._process.wait(180)


def seconds_of(stat: Path) -> float:
    """Returns the processor time in the `stat` file of a process or a thread."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
