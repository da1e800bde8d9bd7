"""Starts the servers of peers as their documentation says, on ports and in folders of their own."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from delayed_topics_devcluster.kafka import maven_jars
from delayed_topics_devcluster.packages import install_redis
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.processes import died, resident_bytes, start_detached
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.model import NewTopicSpec

from delayed_topics_bench.java import JAVA_OPTIONS, SOURCES, JavaProgram, class_path_of
from delayed_topics_bench.testbed import PARTITIONS, Testbed

__all__ = ["Server", "Stored", "redis", "rocketmq", "spring"]

START_TIMEOUT_SECONDS = 60.0
BROKER_MEGABYTES = 1536
LEVELS = {1: 1, 120: 6}
"""Delay in seconds → RocketMQ's delay level."""
# RocketMQ uses internals of the JDK, and its own start scripts are for Java 8.
OPENED = tuple(
    word
    for package in ("java.nio", "java.lang", "java.util", "sun.nio.ch")
    for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
) + tuple(
    word
    for package in ("sun.nio.ch", "jdk.internal.ref", "jdk.internal.misc")
    for word in ("--add-exports", f"java.base/{package}=ALL-UNNAMED")
)


class ServerProgram(Closing):
    """A server that runs until its `with` block ends, unless `kill` ends it before. `start` starts it again."""

    def __init__(self, name: str, command: Sequence[str | Path], *, log: Path, serving: str) -> None:
        """`serving`: what the server logs when it serves. Raises CommandFailedError if it ends before that, and NotInTimeError."""
        self._name = name
        self._command = command
        self._log = log
        self._serving = serving
        self.start()

    def start(self) -> None:
        """Starts the server, and returns when it serves."""
        logged = len(self._log.read_text(errors="replace")) if self._log.exists() else 0
        self._process = start_detached(self._command, log=self._log)

        def serves() -> bool:
            if not self._process.alive():
                raise died(self._name, self._log)
            return self._serving in self._log.read_text(errors="replace")[logged:]

        try:
            wait_until(serves, what=f"{self._name} serves (see {self._log})", timeout_seconds=START_TIMEOUT_SECONDS)
        except BaseException:  # also at an interrupt, since no caller has this object yet
            self.close()
            raise

    def kill(self) -> None:
        """Kills the server with SIGKILL."""
        self._process.kill()

    def close(self) -> None:
        self._process.stop(timeout_seconds=10)

    def resident_bytes(self) -> int:
        return resident_bytes(self._process.pid)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The program in which a peer stores pending records, and its folder on the disk."""

    program: ServerProgram
    directory: Path


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running peer: the Java program that sends to it and receives from it, and the arguments of this program.

    `levels`: delay in seconds → delay level, if the peer has no other delays. `stored`: None if the peer stores its records in Kafka.
    """

    main_class: str
    class_path: str
    arguments: Mapping[str, object]
    levels: Mapping[int, int] = field(default_factory=dict)
    options: Sequence[str] = field(default=JAVA_OPTIONS)
    stored: Stored | None = None

    def load(self, directory: Path, log: Path, *, delay_seconds: int, **arguments: object) -> JavaProgram:
        """Starts the program, which sends records with this delay and receives them. `directory`: for the samples."""
        given = {
            **self.arguments,
            **arguments,
            "delay_ms": delay_seconds * 1000,
            "level": self.levels.get(delay_seconds),
            "directory": directory,
        }
        return JavaProgram(self.main_class, (), given, class_path=self.class_path, log=log, options=self.options)


@contextmanager
def redis(testbed: Testbed) -> Iterator[Server]:
    """Starts Redis with an append-only file that is synced every second, so that a crash loses at most one second of records."""
    install_redis()
    class_path = class_path_of("redis", jars=maven_jars("bench-redis", SOURCES / "redis" / "pom.xml"))
    directory = testbed.new_directory()
    server = directory / "redis-server"  # Debian's package has the server under the name of its checker
    server.symlink_to(shutil.which("redis-check-rdb") or "")
    (port,) = free_ports(1)
    log = directory / "redis.log"
    command: list[str | Path] = [
        *(server, "--port", str(port), "--bind", "127.0.0.1", "--dir", directory),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    ]
    with ServerProgram("Redis", command, log=log, serving="Ready to accept connections") as program:
        yield Server(
            main_class="SortedSet",
            class_path=class_path,
            arguments={"port": port},
            stored=Stored(program=program, directory=directory),
        )


def rocketmq(version: str, *, timer: bool = False) -> Callable[[Testbed], AbstractContextManager[Server]]:
    """Returns what starts RocketMQ. `timer`: use any due time, as RocketMQ 5 can, instead of delay levels."""

    @contextmanager
    def started(testbed: Testbed) -> Iterator[Server]:
        jars = maven_jars(f"bench-rocketmq-{version}", SOURCES / "rocketmq" / f"pom-{version}.xml")
        class_path = class_path_of("rocketmq", jars=jars)
        directory = testbed.new_directory()
        home = (
            f"-Duser.home={directory}",
            f"-Dlogback.configurationFile={directory}/conf/logback_broker.xml",
            f"-Drocketmq.client.logRoot={directory}",
            "-Drocketmq.client.logLevel=WARN",
        )
        java = ["java", *OPENED, *home, f"-Drocketmq.home.dir={directory}", "-cp", class_path]
        name_port, port = free_ports(2)
        namesrv = f"127.0.0.1:{name_port}"
        (directory / "conf").mkdir()
        for program in ("namesrv", "broker"):  # RocketMQ 4 doesn't start without these files
            (directory / "conf" / f"logback_{program}.xml").write_text(
                '<configuration><root level="WARN"/></configuration>'
            )
        (directory / "namesrv.conf").write_text(f"listenPort={name_port}\n")
        settings = {
            "brokerClusterName": "bench",
            "brokerName": "bench",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": namesrv,
            "storePathRootDir": directory / "store",
            "storePathCommitLog": directory / "store" / "commitlog",
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "autoCreateTopicEnable": "true",
            "maxTransferCountOnMessageInMemory": 256,  # with the default of 32, the consumer would be the bottleneck
        }
        (directory / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        log = directory / "rocketmq.log"
        heap = (f"-Xms{BROKER_MEGABYTES}m", f"-Xmx{BROKER_MEGABYTES}m", "-XX:MaxDirectMemorySize=2g")
        namesrv_start: list[str | Path] = [
            *java,
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            "-c",
            directory / "namesrv.conf",
        ]
        broker_start: list[str | Path] = [
            *(*java[:1], *heap, *java[1:]),
            *("org.apache.rocketmq.broker.BrokerStartup", "-c", directory / "broker.conf"),
        ]
        with (
            ServerProgram("the name server", namesrv_start, log=log, serving="boot success"),
            ServerProgram("the broker", broker_start, log=directory / "broker.log", serving="boot success") as broker,
        ):
            yield Server(
                main_class="Delayed",
                class_path=class_path,
                arguments={"namesrv": namesrv, "topic": "bench"},
                levels={} if timer else LEVELS,
                options=(*JAVA_OPTIONS, *OPENED, *home),
                stored=Stored(program=broker, directory=directory / "store"),
            )

    return started


@contextmanager
def spring(testbed: Testbed) -> Iterator[Server]:
    """Prepares Spring Kafka on the broker of the testbed, with the clients that Spring depends on."""
    jars = maven_jars("bench-spring", SOURCES / "spring" / "pom.xml")
    class_path = class_path_of("kafka", "spring", jars=jars)
    topic = f"spring-{time.time_ns()}"
    spec = NewTopicSpec(name=topic, partitions=PARTITIONS, replication_factor=1, config={})
    testbed.harness.admin.create_topics([spec])
    yield Server(
        main_class="Retryable", class_path=class_path, arguments={"bootstrap": testbed.bootstrap, "topic": topic}
    )
