"""A real Kafka cluster of one node or three, on loopback ports, for tests and benchmarks that need no Kubernetes.

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

Data and ports stay the same over `stop`, `kill` and `restart`, so that clients can reconnect.
"""

import re
import shutil
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.kafka import QUICK, java_command, kafka_jars, refusing_policy
from delayed_topics_devcluster.locks import locked
from delayed_topics_devcluster.orphans import owned_folder, remove_orphans
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.preconditions import require_java
from delayed_topics_devcluster.processes import Process, listens, start_detached
from delayed_topics_devcluster.waiting import wait_until

__all__ = ["PATIENT", "Broker", "Brokers"]

LOOPBACK = "127.0.0.1"
NOTABLE = re.compile(" (WARN|ERROR|FATAL) |[Ff]enc")
START_TIMEOUT_SECONDS = 180.0  # three brokers on two busy cores took over a minute
# Settings that differ from Kafka's defaults. One node has no second replica. A group does not wait for members that are
# still starting. The two minimums set the pace of the newer group protocol (5 s and 45 s by default). After a SIGKILL,
# the controller refuses the same broker until its old session has expired (9 s by default; with 2 s, a broker on a busy
# machine was fenced).
SETTINGS = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "6000",
}

PATIENT = {
    "broker.session.timeout.ms": "60000",
    "broker.heartbeat.interval.ms": "3000",
    "metadata.max.idle.interval.ms": "0",
}
"""For a broker that is never killed. Broker and controller are one process: when it stalled for longer than the session on a busy
machine, the broker was fenced for a moment, and clients saw no broker. While idle, as such a broker mostly is, it takes 2 % of a
processor with these settings instead of 5 %."""

# For three nodes, which replicate to each other.
REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


@dataclass(frozen=True, kw_only=True)
class BrokerAddress:
    """The address of a node, with its cluster. `voters`: the controllers of all nodes, as in `controller.quorum.voters`."""

    node_id: int
    host: str
    client_port: int
    controller_port: int
    cluster_id: str
    voters: str

    @classmethod
    def of_cluster(cls, count: int, host: str) -> "tuple[BrokerAddress, ...]":
        """Returns the addresses of all nodes of a new cluster, on free ports."""
        ports = free_ports(2 * count)
        controllers = ports[count:]
        voters = ",".join(f"{number}@{host}:{port}" for number, port in enumerate(controllers, 1))
        cluster_id = uuid.uuid4().hex[:22]
        return tuple(
            cls(
                node_id=number,
                host=host,
                client_port=ports[number - 1],
                controller_port=controllers[number - 1],
                cluster_id=cluster_id,
                voters=voters,
            )
            for number in range(1, count + 1)
        )


class Broker:
    """One Kafka broker as a detached process. Entering the context starts it; leaving the context ends it and removes its data.

    A new Broker first ends all brokers whose owner was killed.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        heap_megabytes: int = 512,
        host: str = LOOPBACK,
        environment: Mapping[str, str] | None = None,
        java_options: Sequence[str] | None = None,
        address: BrokerAddress | None = None,
        refusing: Sequence[str] = (),
    ) -> None:
        """`settings`: added to server.properties; they override those of this module. `host`: the address to listen on.
        `environment`: added to that of the process. `java_options`: by default options for a quick start, which cost speed later.
        `address`: for a member of Brokers. `refusing`: topic settings that the broker's policy refuses from every client."""
        self._directory: Path | None = None
        self._class_path = refusing_policy() if refusing else None
        self._settings = {**SETTINGS, **(_policy(refusing) if refusing else {}), **(settings or {})}
        self._heap_megabytes = heap_megabytes
        self._environment = environment
        self._java_options = java_options
        self._process: Process | None = None
        self._address = address or BrokerAddress.of_cluster(1, host)[0]

    @property
    def node_id(self) -> int:
        """The id of this node in Kafka's metadata."""
        return self._address.node_id

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return f"{self._address.host}:{self._address.client_port}"

    @property
    def pid(self) -> int:
        """The id of the Java process. Raises DevclusterError if the broker is not running."""
        return self._running().pid

    @property
    def directory(self) -> Path:
        """The folder of its data, log and settings. Raises DevclusterError before the first start."""
        if self._directory is None:
            raise DevclusterError("this broker has not been started yet. Either call start(), or enter it as a context")
        return self._directory

    @property
    def log_path(self) -> Path:
        """The file with all output of the broker, over all its restarts."""
        return self.directory / "broker.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and self.log_path.exists():
            print(
                f"{type(error).__name__}; the last messages of the broker:", self.evidence(), sep="\n", file=sys.stderr
            )
        self.close()

    def evidence(self) -> str:
        """The last ten lines of the log with a warning, an error or a fencing."""
        return "\n".join([line for line in self.log_path.read_text().splitlines() if NOTABLE.search(line)][-10:])

    def start(self) -> None:
        """Starts it and returns when it serves: after 2 s, 3 s on the first start, and 20 s on the first start on a machine."""
        self.launch()
        self.await_serving()

    def launch(self) -> None:
        """Starts it and returns at once: one node of several serves only when a majority of them runs."""
        require_java()
        java_options = self._java_options
        if java_options is None:
            java_options = (*QUICK, f"-XX:SharedArchiveFile={_class_archive()}")
        if self._directory is None:
            remove_orphans()
            self._directory = owned_folder("broker")
            self._format(java_options)
        heap = f"{self._heap_megabytes}m"
        options = (f"-Xmx{heap}", f"-Xms{heap}", *java_options)
        process = start_detached(
            java_command(
                "kafka.Kafka", self.directory / "server.properties", options=options, class_path=self._class_path
            ),
            log=self.log_path,
            environment=self._environment,
        )
        process.write(self.directory / "broker.json")
        self._process = process

    def await_serving(self) -> None:
        """Returns when it accepts connections."""
        wait_until(self._serves, what=f"the broker serves (see {self.log_path})", timeout_seconds=START_TIMEOUT_SECONDS)

    def stop(self) -> None:
        """Shuts it down cleanly. The data stays."""
        self._running().stop(timeout_seconds=180)
        self._process = None

    def kill(self) -> None:
        """Sends SIGKILL. The data stays as it is."""
        self._running().kill()
        self._process = None

    def restart(self) -> None:
        """Stops it cleanly if it runs, and starts it on the same data and ports."""
        if self._process is not None:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Sends SIGSTOP: connections stay open and nothing answers."""
        self._running().signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Sends SIGCONT."""
        self._running().signal(signal.SIGCONT)

    def close(self) -> None:
        """Kills it and removes its data."""
        if self._process is not None:
            self.kill()
        if self._directory is not None:
            shutil.rmtree(self._directory)
            self._directory = None

    def _running(self) -> Process:
        if self._process is None:
            raise DevclusterError("this broker is not running. Call start() or restart()")
        return self._process

    def _serves(self) -> bool:
        return listens(
            self._running(), self._address.host, self._address.client_port, name="the broker", log=self.log_path
        )

    def _format(self, java_options: Sequence[str]) -> None:
        address = self._address
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(address.node_id),
            "controller.quorum.voters": address.voters,
            "listeners": f"PLAINTEXT://{address.host}:{address.client_port},CONTROLLER://{address.host}:{address.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / "data"),
            **self._settings,
        }
        file = self.directory / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        words = ("format", "--cluster-id", address.cluster_id, "--config", file)
        run(*java_command("kafka.tools.StorageTool", *words, options=java_options, class_path=self._class_path))


class Brokers:
    """A cluster of three nodes, each both broker and controller, whose topics are replicated; a context manager like Broker."""

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        heap_megabytes: int = 384,
        environments: Sequence[Mapping[str, str]] = ({}, {}, {}),
    ) -> None:
        """`environments`: one for each node, added to that of its process."""
        self.members = tuple(
            Broker(
                settings={**REPLICATED, **(settings or {})},
                heap_megabytes=heap_megabytes,
                environment=environment,
                address=address,
            )
            for address, environment in zip(BrokerAddress.of_cluster(3, LOOPBACK), environments, strict=True)
        )

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return ",".join(member.bootstrap for member in self.members)

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                member.launch()
            for member in self.members:
                member.await_serving()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kills all nodes and removes their data."""
        for member in self.members:
            member.close()


def _policy(refusing: Sequence[str]) -> dict[str, str]:
    kinds = ("create.topic", "alter.config")
    return {f"{kind}.policy.class.name": "RefusingPolicy" for kind in kinds} | {"refused.settings": " ".join(refusing)}


def _class_archive() -> Path:
    """An archive of Kafka's classes for class data sharing, in the user's cache: with it, a start takes a third of the CPU time.
    Java ignores an archive of another Java. https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html"""
    archive = kafka_jars().with_suffix(".jsa")
    with locked("kafka-classes"):
        if not archive.exists():
            making = archive.with_suffix(".new")
            making.unlink(missing_ok=True)
            with Broker(java_options=(f"-XX:ArchiveClassesAtExit={making}",)) as broker:
                broker.stop()
            making.rename(archive)
    return archive
