"""Kafka's own jars, as Maven resolves them, and running what is in them."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import ZipFile

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.errors import PreconditionError
from delayed_topics_devcluster.locks import made_once
from delayed_topics_devcluster.paths import IMAGE_SOURCES, cache_dir
from delayed_topics_devcluster.preconditions import require_java, require_java_compiler, require_maven

__all__ = [
    "QUICK",
    "compiled",
    "java_command",
    "java_tool",
    "kafka_jars",
    "limit_producer",
    "maven_jars",
    "refusing_policy",
]

POM = IMAGE_SOURCES / "kafka" / "pom.xml"
LOGGING = IMAGE_SOURCES / "kafka" / "log4j2.properties"

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a Java machine that runs for seconds or minutes, and would spend most of them on compiling. Not for benchmarks."""


def kafka_jars() -> Path:
    """The folder with the jars of Kafka; they are fetched when it is missing (about 12 s).

    The version is the one of images/kafka/pom.xml, or that of the environment variable KAFKA_VERSION, such as 4.0.2.
    Raises PreconditionError if that is no version.
    """
    version = os.environ.get("KAFKA_VERSION")
    if not version:
        return maven_jars("kafka", POM)
    if not re.fullmatch(r"\d+(\.\d+)+", version):
        raise PreconditionError(
            f"KAFKA_VERSION must be a released version of Kafka, such as 4.0.2, but it is {version!r}"
        )
    return maven_jars("kafka", POM, properties={"kafka.version": version})


def maven_jars(name: str, pom: Path, *, properties: Mapping[str, str] | None = None) -> Path:
    """The folder with the jars that a pom.xml asks for, in the user's cache, keyed by the file's content and `properties`.

    `properties` replace those of the file. Raises CommandFailedError if they can't be had, PreconditionError without Maven.
    """
    replaced = [f"-D{key}={value}" for key, value in sorted((properties or {}).items())]

    def fetch(folder: Path) -> None:
        require_maven()
        run("mvn", "-q", "-B", "-f", pom, *replaced, "dependency:copy-dependencies", f"-DoutputDirectory={folder}")

    digest = hashlib.sha256(pom.read_bytes() + "".join(replaced).encode())
    return made_once(cache_dir(name) / digest.hexdigest()[:16], fetch)


def compiled(name: str, sources: Sequence[Path], *, jars: Path) -> str:
    """The class path of Java programs: their classes, kept in the user's cache until a source changes, and the jars.

    Raises PreconditionError without javac, CommandFailedError with what it says.
    """

    def compile_all(folder: Path) -> None:
        require_java_compiler()
        run("javac", "-proc:none", "-parameters", "-d", folder, "-cp", f"{jars}/*", *sources)

    digest = hashlib.sha256(str(jars).encode())
    for file in sources:
        digest.update(file.read_bytes())
    return f"{made_once(cache_dir('classes') / f'{name}-{digest.hexdigest()[:16]}', compile_all)}:{jars}/*"


def refusing_policy() -> str:
    """The class path of a broker with the class RefusingPolicy."""
    return compiled("policy", [Path(__file__).with_name("RefusingPolicy.java")], jars=kafka_jars())


def java_command(
    main_class: str, *arguments: str | Path, options: Sequence[str] = (), class_path: str | None = None
) -> list[str]:
    """The command line that runs a class, by default of Kafka's jars: `kafka.Kafka` or `org.apache.kafka.tools.…`."""
    return [
        "java",
        *(options or ("-Xmx256m",)),
        f"-Dlog4j2.configurationFile={LOGGING}",
        "-cp",
        class_path or f"{kafka_jars()}/*",
        main_class,
        *map(str, arguments),
    ]


def java_tool(
    main_class: str,
    *arguments: str | Path,
    text_in: str | None = None,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (*QUICK, "-Xmx256m"),
    class_path: str | None = None,
) -> str:
    """Run one of Kafka's Java tools to its end and return what it printed. `options`: of the Java machine. `class_path`: with what
    the tool needs beside Kafka's jars, as of `compiled`.

    For example `java_tool("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", …, text_in="a\\nb\\n")`.
    Raises CommandFailedError if it fails, PreconditionError without Java 17 or Maven.
    """
    require_java()
    return run(
        *java_command(main_class, *arguments, options=options, class_path=class_path),
        text_in=text_in,
        environment={"KAFKA_LOG_LEVEL": "WARN", **(environment or {})},
    )


def limit_producer(bootstrap: str, client_id: str, bytes_per_second: int | None) -> None:
    """Kafka's quota for what a client produces, a broker; None takes it away. Acknowledgements then take their time."""
    rate = f"producer_byte_rate={bytes_per_second}" if bytes_per_second is not None else "producer_byte_rate"
    java_tool(
        _config_command(),
        *("--bootstrap-server", bootstrap, "--entity-type", "clients", "--entity-name", client_id),
        *("--alter", "--add-config" if bytes_per_second is not None else "--delete-config", rate),
    )


def _config_command() -> str:
    """Kafka 4.4 has it in another package than 4.0."""
    moved = "org/apache/kafka/tools/ConfigCommand.class"
    for jar in kafka_jars().glob("kafka-tools-*.jar"):
        with ZipFile(jar) as classes:
            if moved in classes.namelist():
                return moved.removesuffix(".class").replace("/", ".")
    return "kafka.admin.ConfigCommand"
