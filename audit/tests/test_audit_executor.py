"""The commands that the pods of Spark run, and an audit that loses an executor."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner
from delayed_topics_audit.cli import main
from delayed_topics_audit.executor import command


def test_an_executor_is_started_as_spark_says_with_its_options_in_order() -> None:
    said = {
        "DRIVER_URL": "spark://d",
        "APPLICATION_ID": "spark-1",
        "RESOURCE_PROFILE_ID": "0",
        "CLASSPATH": "/opt/jars/*",
    }
    own = {"ID": "7", "CORES": "2", "POD_IP": "10.0.0.9", "POD_NAME": "e-7", "MEMORY": "512m"}
    options = {f"SPARK_JAVA_OPT_{i}": f"-Dspark.option={i}" for i in (10, 2)}
    environment = {f"SPARK_{n}": v for n, v in said.items()} | {f"SPARK_EXECUTOR_{n}": v for n, v in own.items()}
    java = command({**environment, **options})
    assert java[:4] == ["java", "-Dspark.option=2", "-Dspark.option=10", "-Xmx512m"]
    assert java[5].startswith("/opt/jars/*:")
    assert java[6].endswith("KubernetesExecutorBackend")
    assert dict(zip(java[7::2], java[8::2], strict=True)) == {
        "--driver-url": "spark://d",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "e-7",
    }


def test_the_driver_of_a_spark_application_takes_sparks_settings_and_runs_what_comes_after_its_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_DRIVER_BIND_ADDRESS", "10.0.0.9")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "")
    said = ["--properties-file", "/opt/spark/conf/spark.properties", "--class", "org.apache.spark.deploy.PythonRunner"]
    ran = CliRunner().invoke(main, ["driver", *said, "local:///opt/app/program.py", "run", "--help"])
    assert (ran.exit_code, "Judge one frozen window" in ran.output) == (0, True)
    submitted = os.environ["PYSPARK_SUBMIT_ARGS"].split()
    assert "--properties-file=/opt/spark/conf/spark.properties" in submitted
    assert "--conf=spark.driver.bindAddress=10.0.0.9" in submitted
    assert submitted[-1] == "pyspark-shell"


LOSES_AN_EXECUTOR = """
import os, signal, sys, time
from pathlib import Path

from delayed_topics_audit import session
from pyspark import SparkContext

spark = session.start(master="local-cluster[2,1,1024]", jars=Path(sys.argv[1]), memory="512m")
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 1 + 2:
    time.sleep(0.1)
kept = session.checkpointed(spark.range(0, 1000, 1, 8))
driver = SparkContext._gateway.proc.pid
executors = os.popen(f"pgrep --parent {driver} --full ExecutorBackend").read().split()  # the driver may have other children
assert len(executors) == 2, executors
os.kill(int(executors[0]), signal.SIGKILL)
print(kept.groupBy().sum("id").collect()[0][0])
"""


@pytest.mark.spark
@pytest.mark.slow
def test_an_audit_goes_on_when_one_of_its_executors_goes_away(
    spark_jars: Path, quick_java: dict[str, str], tmp_path: Path
) -> None:
    """Each persisted row was once kept by one executor only and could not be computed again, so the attempt failed. The test runs on a
    `local-cluster`, as Spark's own tests do."""
    environment = {**os.environ, **quick_java, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", LOSES_AN_EXECUTOR, spark_jars],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(sum(range(1000)))), done.stderr
    assert "Lost executor" in done.stderr
