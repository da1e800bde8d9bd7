"""One Spark session for the whole run, the jars that it needs, and settings that suit small tables."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_audit import session
from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[2]
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    # removing a filter from a plan saves nothing here, and the search for such filters takes a tenth of the time
    "spark.sql.constraintPropagation.enabled": "false",
    # processing a table of ten rows takes less time than compiling code for it
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # otherwise Spark keeps the plans of a thousand queries for its web UI, which no test opens
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
}
"""Settings for tables of a few rows. The tests of the command use the settings that users have."""


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """The folder of Spark's Kafka jars, which are downloaded if they are not in the cache."""
    made = subprocess.run(
        ["make", "--silent", "spark-jars"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return Path(made.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def quick_java() -> dict[str, str]:
    """Environment of a JVM that runs for a few seconds only. Without full compilation it takes half the time."""
    return {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}


@pytest.fixture(scope="session")
def spark(spark_jars: Path) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KAFKA_CLIENT_RACK", "zone-b")
        started = session.start(
            master="local[2]",
            jars=spark_jars,
            memory="512m",
            settings=SMALL,
        )
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def nothing_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drops the tables that a test has persisted when the test ends."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").catalog.clearCache()
