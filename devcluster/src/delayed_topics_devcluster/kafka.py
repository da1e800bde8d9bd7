"""Kafka's jars, which Maven resolves, and calls of the Java programs in them."""

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
"""Options for a JVM that runs for seconds or minutes, and would spend most of this time on compiling. Not for benchmarks."""


def kafka_jars() -> Path:
    """Returns the folder with Kafka's jars, and fetches them first if it is missing (about 12 s).

    The environment variable KAFKA_VERSION, such as 4.0.2, overrides the version in images/kafka/pom.xml.
    Raises PreconditionError if its value is not a version.
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
    """Returns a folder in the user's cache with the jars that a pom.xml requires, keyed by the file's content and `properties`.

    `properties` override those of the file. Raises CommandFailedError if Maven can't get the jars, PreconditionError without Maven.
    """
    replaced = [f"-D{key}={value}" for key, value in sorted((properties or {}).items())]

    def fetch(folder: Path) -> None:
        require_maven()
        run("mvn", "-q", "-B", "-f", pom, *replaced, "dependency:copy-dependencies", f"-DoutputDirectory={folder}")

    digest = hashlib.sha256(pom.read_bytes() + "".join(replaced).encode())
    return made_once(cache_dir(name) / digest.hexdigest()[:16], fetch)


def compiled(name: str, sources: Sequence[Path], *, jars: Path) -> str:
    """Compiles Java programs and returns their class path: the classes, cached until a source changes, and the jars.

    Raises PreconditionError without javac, CommandFailedError with the compiler's messages.
    """

    def compile_all(folder: Path) -> None:
        require_java_compiler()
        run("javac", "-proc:none", "-parameters", "-d", folder, "-cp", f"{jars}/*", *sources)

    digest = hashlib.sha256(str(jars).encode())
    for file in sources:
        digest.update(file.read_bytes())
    return f"{made_once(cache_dir('classes') / f'{name}-{digest.hexdigest()[:16]}', compile_all)}:{jars}/*"


def refusing_policy() -> str:
    """Returns the class path for a broker that uses the class RefusingPolicy."""
    return compiled("policy", [Path(__file__).with_name("RefusingPolicy.java")], jars=kafka_jars())


def java_command(
    main_class: str, *arguments: str | Path, options: Sequence[str] = (), class_path: str | None = None
) -> list[str]:
    """Returns the command line that runs a Java class, by default one of Kafka's: `kafka.Kafka` or `org.apache.kafka.tools.…`."""
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
    """Runs one of Kafka's Java tools to its end and returns its output. `options`: for the JVM. `class_path`: for a tool that needs
    more than Kafka's jars, as returned by `compiled`.

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
    """Sets Kafka's quota for the bytes that a client may produce, for each broker; None removes the quota. The broker then delays
    its acknowledgements."""
    rate = f"producer_byte_rate={bytes_per_second}" if bytes_per_second is not None else "producer_byte_rate"
    java_tool(
        _config_command(),
        *("--bootstrap-server", bootstrap, "--entity-type", "clients", "--entity-name", client_id),
        *("--alter", "--add-config" if bytes_per_second is not None else "--delete-config", rate),
    )


def _config_command() -> str:
    """The class of Kafka's ConfigCommand, which Kafka 4.4 has in another package than 4.0."""
    moved = "org/apache/kafka/tools/ConfigCommand.class"
    for jar in kafka_jars().glob("kafka-tools-*.jar"):
        with ZipFile(jar) as classes:
            if moved in classes.namelist():
                return moved.removesuffix(".class").replace("/", ".")
    return "kafka.admin.ConfigCommand"
