"""The Spark session of an audit: small, quiet, with the jars that it needs; and small tables in it."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from delayed_topics_audit.errors import AuditFailed

_LOGGING = Path(__file__).with_name("log4j2.properties")

_JAVA = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:-DontCompileHugeMethods"
"""Spark makes one method of a stage. Java leaves those of more than 8,000 bytes uncompiled otherwise, 30 times as slow."""


_OUT_OF_MEMORY = (52, -9)
"""Exit codes of the Java machine: Spark's own word for it, and the kernel's."""
_MORE_HEAP = "Raise spec.spark.memory"
_END_SECONDS = 20.0

_TASK_TRIES: Final = "spark.task.maxFailures"
_DEFAULT_TASK_TRIES: Final = "4"
"""Spark's own, where it has executors."""


def _exit_code() -> int:
    """Of the Java machine, which has stopped answering. Raises subprocess.TimeoutExpired if it goes on regardless."""
    gateway = SparkContext._gateway
    assert gateway is not None, "there was no session"
    return int(gateway.proc.wait(_END_SECONDS))


def start(
    *, master: str, jars: Path, memory: str = "1g", settings: Mapping[str, str] | None = None, java_options: str = ""
) -> SparkSession:
    """`master`: as local[2] or k8s://…; in both, a task that fails is tried again as often as spark.task.maxFailures says.
    `memory`: heap of each Java machine, as 1g. `java_options`: further ones of each. `jars`: the folder that `make spark-jars` prints.
    Raises AuditFailed.
    """
    if not any(jars.glob("spark-sql-kafka-*.jar")):
        raise AuditFailed(
            f"the folder {jars} must contain Spark's jars for Kafka and S3. Run `make spark-jars` to fetch them and print their folder"
        )
    java = f"{_JAVA} {java_options}".rstrip()
    every = {
        "spark.driver.memory": memory,
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.executor.extraClassPath": f"{jars}/*",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.sql.session.timeZone": "UTC",
        # for each expression it would ask Java where in Python it was made: 2 of 3 s of an audit's planning
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # the account is looked at a dozen times and thrown away: packing it takes a fifth of an audit
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # it reads 4,096 rows at once: of a table that a link of a chain carries each is an array of as many, gigabytes of them
        "spark.sql.parquet.enableNestedColumnVectorizedReader": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(settings or {}),
    }
    tries = every.get(_TASK_TRIES, _DEFAULT_TASK_TRIES)
    builder = SparkSession.builder.master(_with_tries(master, tries)).appName("delayed-topics-audit")
    for name, value in every.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _with_tries(master: str, tries: str) -> str:
    """In one pod Spark heeds no setting, only what its master says, and with none it gives up at the first failed task."""
    return re.sub(r"^local\[([0-9]+|\*)\]$", rf"local[\1,{tries}]", master)


def reason(error: Exception, remedies: Mapping[str, str]) -> str:
    """The cause of a failed call of Spark or Java, in one line. `remedies`: a sentence that says what to do, by a word of the error."""
    if isinstance(error, Py4JNetworkError | ConnectionError):
        code = _exit_code()
        what = _MORE_HEAP if code in _OUT_OF_MEMORY else "See the logs of the Job"
        return f"Spark's Java machine ended with exit code {code}. {what}"
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    said = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    line = causes[-1] if causes else said[0]
    known = {"OutOfMemoryError": _MORE_HEAP, **remedies}
    return line + next((f". {what}" for name, what in known.items() if name in str(error)), "")


def stop() -> None:
    """Whatever session there is. Spark removes its executors' pods then, not when Java just ends with Python."""
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()


def kept(rows: DataFrame) -> DataFrame:
    """Read once: what is counted is what was hashed. And planned once: each look at a persisted table would plan again how it was made,
    which takes longer than a small audit.

    Spark can't make what is lost of it again, so each of two executors has it: one may go away. In one pod there is nothing to lose."""
    in_one_pod = re.match(r"local(\[|$)", str(rows.sparkSession.sparkContext.master))
    return rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY if in_one_pod else StorageLevel.DISK_ONLY_2)


def table(spark: SparkSession, rows: Sequence[Mapping[str, object]], schema: str) -> DataFrame:
    """A small table of JSON values (binary ones in base64), schema as "partition: int, offset: long".

    `spark.createDataFrame` would start Python workers to read it, which takes longer than a small audit.
    """
    parsed = sf.from_json(sf.lit(json.dumps(rows)), f"array<struct<{schema}>>")
    return spark.range(1).select(sf.inline(parsed))
