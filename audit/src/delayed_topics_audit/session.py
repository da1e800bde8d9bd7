"""Starts and stops the Spark session of an audit, explains its errors, and makes small tables in it."""

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

_JAVA = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:-DontCompileHugeMethods -XX:+UseParallelGC"
"""Spark generates one method for each stage. By default, Java does not compile methods of more than 8,000 bytes, and they run 30 times
slower. Nobody waits for a single record, so the collector may stop all threads: an audit then takes 5 % to 17 % less time than with G1."""


_OUT_OF_MEMORY = (52, -9)
"""Exit codes of a Java machine that ran out of memory: Spark's own, and that of a process which the kernel killed."""
_MORE_HEAP = "Raise spec.spark.memory"
_END_SECONDS = 20.0

_TASK_TRIES: Final = "spark.task.maxFailures"
_DEFAULT_TASK_TRIES: Final = "4"
"""Spark's default with executors."""


def _exit_code() -> int:
    """Returns the exit code of the Java machine, which no longer answers. Raises subprocess.TimeoutExpired if it still runs."""
    gateway = SparkContext._gateway
    assert gateway is not None, "there was no session"
    return int(gateway.proc.wait(_END_SECONDS))


def start(
    *, master: str, jars: Path, memory: str = "1g", settings: Mapping[str, str] | None = None, java_options: str = ""
) -> SparkSession:
    """Starts a session. `master` is local[2], k8s://… or the like; with each of them, Spark retries a failed task as often as
    spark.task.maxFailures says. `memory` is the heap of each Java machine, such as 1g, and `java_options` are further options of each.
    `jars` is the folder that `make spark-jars` prints. Raises AuditFailed.
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
        # Otherwise Spark tells Java for each expression where it was made in Python, which takes 2 of the 3 s of planning an audit.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Without kafka in this list, Spark reads Kafka's records as rows. By default, it makes Java objects of them first.
        "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
        # The account is queried a dozen times and then dropped. To compress it would take a fifth of the time of an audit.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # This reader reads 4,096 rows at once. In the table of a chain, each row is an array of as many rows, which makes gigabytes.
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
    """Adds the number of tries to a local master. There Spark ignores the setting, and by default gives up at the first failed task."""
    return re.sub(r"^local\[([0-9]+|\*)\]$", rf"local[\1,{tries}]", master)


def reason(error: Exception, remedies: Mapping[str, str]) -> str:
    """Returns the cause of a failed call of Spark or Java, in one line. `remedies` has a sentence that says what to do, by a word of the
    error."""
    if isinstance(error, Py4JNetworkError | ConnectionError):
        code = _exit_code()
        what = _MORE_HEAP if code in _OUT_OF_MEMORY else "See the logs of the Job"
        return f"Spark's Java machine ended with exit code {code}. {what}"
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    messages = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    line = causes[-1] if causes else messages[0]
    known = {"OutOfMemoryError": _MORE_HEAP, **remedies}
    return line + next((f". {what}" for name, what in known.items() if name in str(error)), "")


def stop() -> None:
    """Stops the session, if there is one. Spark then removes the pods of its executors, which it does not do if Java just ends with
    Python."""
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()


def checkpointed(rows: DataFrame) -> DataFrame:
    """Reads and plans `rows` once, and keeps the result. So the rows that are counted are the rows that were hashed. Each query of a
    persisted table would plan again how it was made, which takes longer than a small audit.

    Spark can't compute lost parts of the result again, so two executors store each part: one of them may go away. In one pod, one copy is
    enough."""
    in_one_pod = re.match(r"local(\[|$)", str(rows.sparkSession.sparkContext.master))
    return rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY if in_one_pod else StorageLevel.DISK_ONLY_2)


def table(spark: SparkSession, rows: Sequence[Mapping[str, object]], schema: str) -> DataFrame:
    """Returns a small table of JSON values (binary ones in base64). A schema is a text such as "partition: int, offset: long".

    `spark.createDataFrame` would start Python workers to read the rows, which takes longer than a small audit.
    """
    parsed = sf.from_json(sf.lit(json.dumps(rows)), f"array<struct<{schema}>>")
    return spark.range(1).select(sf.inline(parsed))
