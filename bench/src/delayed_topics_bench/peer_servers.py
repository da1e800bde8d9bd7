"""Starting the peers' servers, each as its own documentation says, on ports and in folders of their own."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from delayed_topics_devcluster.kafka import maven_jars
from delayed_topics_devcluster.packages import install_redis
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.processes import Process, died, start_detached
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.model import NewTopicSpec

from delayed_topics_bench.java import JAVA_OPTIONS, SOURCES, class_path_of
from delayed_topics_bench.testbed import PARTITIONS, Testbed

__all__ = ["Server", "redis", "rocketmq", "spring"]

START_TIMEOUT_SECONDS = 60.0
BROKER_MEGABYTES = 1536
# RocketMQ reaches into the JDK; its own start scripts are for Java 8.
OPENED = tuple(
    word
    for package in ("java.nio", "java.lang", "java.util", "sun.nio.ch")
    for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
) + tuple(
    word
    for package in ("sun.nio.ch", "jdk.internal.ref", "jdk.internal.misc")
    for word in ("--add-exports", f"java.base/{package}=ALL-UNNAMED")
)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A peer that runs: the Java program that loads it and receives from it, and what that one has to be told."""

    main_class: str
    class_path: str
    arguments: Mapping[str, object]
    options: Sequence[str] = field(default=JAVA_OPTIONS)


@contextmanager
def redis(testbed: Testbed) -> Iterator[Server]:
    """With an append-only file, written out each second: what is sent survives a crash of the server but for a second."""
    install_redis()
    class_path = class_path_of("redis", jars=maven_jars("bench-redis", SOURCES / "redis" / "pom.xml"))
    directory = testbed.new_directory()
    server = directory / "redis-server"  # Debian's package has the server under the name of its checker
    server.symlink_to(shutil.which("redis-check-rdb") or "")
    (port,) = free_ports(1)
    log = directory / "redis.log"
    process = start_detached(
        [
            *(server, "--port", str(port), "--bind", "127.0.0.1", "--dir", directory),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        ],
        log=log,
    )
    with _running("Redis", process, log, "Ready to accept connections"):
        yield Server(main_class="SortedSet", class_path=class_path, arguments={"port": port})


def rocketmq(version: str, *, level: int | None) -> Callable[[Testbed], AbstractContextManager[Server]]:
    """`level`: of the delay levels, 1 is a second; None: by the timer of RocketMQ 5."""

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
        for program in ("namesrv", "broker"):  # RocketMQ 4 doesn't start without
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
            "maxTransferCountOnMessageInMemory": 256,  # at 32, the default, the consumer would be the limit
        }
        (directory / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        log = directory / "rocketmq.log"
        names = start_detached(
            [*java, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", directory / "namesrv.conf"], log=log
        )
        with _running("the name server", names, log, "boot success"):
            heap = (f"-Xms{BROKER_MEGABYTES}m", f"-Xmx{BROKER_MEGABYTES}m", "-XX:MaxDirectMemorySize=2g")
            log = directory / "broker.log"
            broker = start_detached(
                [
                    *java[:1],
                    *heap,
                    *java[1:],
                    "org.apache.rocketmq.broker.BrokerStartup",
                    "-c",
                    directory / "broker.conf",
                ],
                log=log,
            )
            with _running("the broker", broker, log, "boot success"):
                yield Server(
                    main_class="Delayed",
                    class_path=class_path,
                    arguments={"namesrv": namesrv, "topic": "bench", "level": level},
                    options=(*JAVA_OPTIONS, *OPENED, *home),
                )

    return started


@contextmanager
def spring(testbed: Testbed) -> Iterator[Server]:
    """On the same Kafka broker; with the clients that it asks for."""
    jars = maven_jars("bench-spring", SOURCES / "spring" / "pom.xml")
    class_path = class_path_of("kafka", "spring", jars=jars)
    topic = f"spring-{time.time_ns()}"
    spec = NewTopicSpec(name=topic, partitions=PARTITIONS, replication_factor=1, config={})
    testbed.harness.admin.create_topics([spec])
    yield Server(
        main_class="Retryable", class_path=class_path, arguments={"bootstrap": testbed.bootstrap, "topic": topic}
    )


@contextmanager
def _running(name: str, process: Process, log: Path, said: str) -> Iterator[None]:
    """Wait until the log says that it serves; end the process at the end of the block."""

    def serves() -> bool:
        if not process.alive():
            raise died(name, log)
        return said in log.read_text(errors="replace")

    try:
        wait_until(serves, what=f"{name} serves (see {log})", timeout_seconds=START_TIMEOUT_SECONDS)
        yield
    finally:
        process.stop(timeout_seconds=10)
