"""One Spark session for the whole run, and a delayed topic whose worker is a few lines of the test's own."""

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
    # a filter less in a plan saves nothing here, and looking for it takes a tenth of the time
    "spark.sql.constraintPropagation.enabled": "false",
    # a table of ten rows is gone over in less time than a program for it is compiled
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # plans of a thousand queries are kept otherwise, for a page that nobody looks at
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
}
"""Settings for tables of a few rows. The command's own tests run with those that users have."""


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """The folder of Spark's Kafka jars; fetched if they aren't in the cache."""
    made = subprocess.run(
        ["make", "--silent", "spark-jars"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return Path(made.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def quick_java() -> dict[str, str]:
    """Environment of a Java machine that runs for seconds only and would spend most of them on compiling: half the time."""
    return {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.fixture(scope="session")
def spark(spark_jars: Path) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC")
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
    """Tables that a test persists go with it."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").catalog.clearCache()
