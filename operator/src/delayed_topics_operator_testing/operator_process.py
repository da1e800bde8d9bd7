"""The operator as a real process."""

import itertools
import os
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path

from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.processes import Process, died
from delayed_topics_devcluster.waiting import wait_until

from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.preforked import start_operator

SYSTEM_NAMESPACE = "delayed-topics-system"
AUDIT_NAMESPACE = "delayed-topics-system-audits"
START_SECONDS = 120.0
STOP_SECONDS = 60.0
ANSWER_SECONDS = 60.0
LEASE_SECONDS = 60
"""Long, because an operator may have to wait while other tests keep the machine busy. One that starts again gets its lease at once."""
SHOWN_CHARACTERS = 20_000
_numbers = itertools.count(1)


class OperatorProcess:
    """Can be started, killed and stopped repeatedly. All its output is in `log`."""

    def __init__(self, api: KubeApi, *arguments: str, kubeconfig: Path | None = None) -> None:
        """`kubeconfig`: by default, the one with only the rights that the chart grants."""
        self._api = api
        self._kubeconfig = kubeconfig or api.operators_kubeconfig
        self._arguments = arguments
        self._port = free_ports(1)[0]
        self._name = f"operator-{next(_numbers)}"
        self.log = api.server.folder / f"{self._name}.log"
        self._process: Process | None = None

    def start(self) -> None:
        """Starts the operator. Returns when it has listed everything."""
        self.launch()
        wait_until(self.ready, what=f"the operator is ready (see {self.log})", timeout_seconds=START_SECONDS)

    def launch(self, *arguments: str) -> None:
        """Starts the operator and returns at once. `arguments`: further ones for this start."""
        self._process = start_operator(
            [
                "run",
                f"--namespace={SYSTEM_NAMESPACE}",
                f"--audit-namespace={AUDIT_NAMESPACE}",
                "--worker-image=worker:1",
                "--audit-image=audit:1",
                f"--http-port={self._port}",
                f"--identity={self._name}",
                f"--lease-seconds={LEASE_SECONDS}",
                *self._arguments,
                *arguments,
            ],
            log=self.log,
            environment={"KUBECONFIG": str(self._kubeconfig), **_without_cluster()},
        )
        self._process.write(self._api.server.folder / f"{self._name}.json")

    def stop(self) -> None:
        """Sends SIGTERM and waits for the end."""
        if self._process is not None:
            self._process.stop(timeout_seconds=STOP_SECONDS)
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def freeze(self) -> None:
        """Sends SIGSTOP."""
        assert self._process is not None
        self._process.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Sends SIGCONT."""
        assert self._process is not None
        self._process.signal(signal.SIGCONT)

    def ended(self) -> bool:
        return self._process is None or not self._process.alive()

    def close(self) -> None:
        self.kill()
        if self.log.exists():
            print(self.log.read_text()[-SHOWN_CHARACTERS:])  # pytest shows it when the test has failed

    @property
    def pid(self) -> int:
        """The process id, while the operator runs."""
        assert self._process is not None, "start() comes first"
        return self._process.pid

    @property
    def address(self) -> str:
        """Host and port of the metrics."""
        return f"127.0.0.1:{self._port}"

    def metrics(self) -> str:
        """Returns the metrics as Prometheus reads them."""
        return self._get("/metrics")

    def counted(self, metric: str, **labels: str) -> float:
        """Returns the sum over all series of this metric that have these labels."""
        total = 0.0
        for line in self.metrics().splitlines():
            name, _, value = line.rpartition(" ")
            if re.match(rf"{metric}(\{{|$)", name) and all(f'{k}="{v}"' in name for k, v in labels.items()):
                total += float(value)
        return total

    def processes_below(self) -> dict[int, int]:
        """Returns the private memory of the processes that the operator has started, in bytes by process id."""
        assert self._process is not None
        parents = {pid: _parent(pid) for pid in (int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal())}
        below, added = {self._process.pid}, 1
        while added:
            further = {pid for pid, parent in parents.items() if parent in below} - below
            below, added = below | further, len(further)
        return {pid: _private_bytes(pid) for pid in below - {self._process.pid}}

    def ready(self) -> bool:
        """Whether the operator has listed everything. Raises if it has ended."""
        if self._process is None or not self._process.alive():
            raise died("the operator", self.log)
        try:
            self._get("/readyz")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def alive(self) -> int:
        """Returns the process id if a kubelet would leave the operator alone. Raises if it has ended, or /livez says that it is stuck."""
        if self._process is None or not self._process.alive():
            raise died("the operator", self.log)
        self._get("/livez")
        return self._process.pid

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=ANSWER_SECONDS) as answer:
            return str(answer.read().decode())


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # the process has ended in the meantime
        return 0


def _private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def _without_cluster() -> dict[str, str]:
    """Hides the cluster in whose pod the tests may run."""
    return dict.fromkeys((name for name in os.environ if name.startswith("KUBERNETES_SERVICE_")), "")
