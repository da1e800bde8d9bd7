"""An account in a bucket, on an S3 server that checks signatures, and the errors if the audit can't write there."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_audit import index
from delayed_topics_audit.errors import AuditFailed
from delayed_topics_audit.job import audit
from delayed_topics_audit.output import SETTINGS, Output
from delayed_topics_audit_testing.made import Made
from delayed_topics_audit_testing.topics import Written
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.kafka import QUICK, maven_jars
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.processes import listens, start_detached
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

BUCKET = "accounts"
KEY_ID, SECRET = "AUDITOR", "open-sesame-4711"
S3A = "spark.hadoop.fs.s3a."
CREDENTIALS = "aws.sharedCredentialsFile"
"""The system property that has, in a running JVM, the effect of AWS_SHARED_CREDENTIALS_FILE at its start."""


def credentials(file: Path, secret: str = SECRET) -> Path:
    file.write_text(f"[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {secret}\n")
    return file


@pytest.fixture(scope="module")
def storage(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings that the operator gives Spark for the bucket. The session of the tests gets them too, and a file with the key."""
    folder = tmp_path_factory.mktemp("s3")
    (port,) = free_ports(1)
    properties = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": KEY_ID,
        "s3proxy.credential": SECRET,
        "jclouds.provider": "transient",
        "jclouds.identity": "in-memory",
        "jclouds.credential": "in-memory",
    }
    (folder / "s3proxy.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    jars = maven_jars("s3proxy", Path(__file__).with_name("s3proxy") / "pom.xml")
    words = ("-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", folder / "s3proxy.properties")
    told = {"endpoint": properties["s3proxy.endpoint"], "endpoint.region": "us-east-1", "path.style.access": "true"}
    settings = {f"{S3A}{name}": value for name, value in told.items()}
    hadoop, java = of_java(spark)
    server = start_detached(["java", "-Xmx256m", *QUICK, *words], log=folder / "log")

    try:
        serves = partial(listens, server, "127.0.0.1", port, name="the S3 server", log=folder / "log")
        wait_until(serves, what="the S3 server serves")
        for name, value in {**SETTINGS, **settings}.items():
            hadoop.set(name.removeprefix("spark.hadoop."), value)
        java.System.setProperty(CREDENTIALS, str(credentials(folder / "credentials")))
        make_bucket(spark, BUCKET)
        yield settings
    finally:
        server.kill()
        java.System.clearProperty(CREDENTIALS)


def of_java(spark: SparkSession) -> tuple[Any, Any]:
    """Returns Hadoop's configuration and the JVM."""
    return spark._jsc.hadoopConfiguration(), spark._jvm


def make_bucket(spark: SparkSession, name: str) -> None:
    hadoop, java = of_java(spark)
    files = java.org.apache.hadoop.fs.Path(f"s3a://{name}/").getFileSystem(hadoop)
    request = java.software.amazon.awssdk.services.s3.model.CreateBucketRequest.builder().bucket(name).build()
    files.getS3AInternals().getAmazonS3Client("test").createBucket(request)


@pytest.fixture(scope="module")
def window(spark: SparkSession, broker: Broker) -> tuple[AuditWindow, Connection]:
    made = Made(spark=spark, records=1200)
    connection = Connection(bootstrap_servers=broker.bootstrap)
    written = Written.of(made, connection, f"on-s3-{uuid.uuid4().hex[:8]}")
    written.write()
    return written.freeze(max_lateness_ms=3_600_000), connection


def test_the_account_is_in_the_bucket_and_the_key_is_nowhere_else(
    storage: dict[str, str],
    window: tuple[AuditWindow, Connection],
    spark: SparkSession,
    spark_jars: Path,
    quick_java: dict[str, str],
    tmp_path: Path,
) -> None:
    frozen, connection = window
    (tmp_path / "window.json.gz").write_bytes(frozen.encode())
    (tmp_path / "bootstrap-servers").write_text(connection.bootstrap_servers)
    (tmp_path / "events").mkdir()
    events_to = {
        "enabled": "true",
        "dir": (tmp_path / "events").as_uri(),
        "compress": "false",
        "rolling.enabled": "false",
    }
    told = {**storage, **{f"spark.eventLog.{name}": value for name, value in events_to.items()}}
    folder = f"s3a://{BUCKET}/some/folder/orders-audit"
    options = {
        "window": tmp_path / "window.json.gz",
        "connection": tmp_path,
        "jars": spark_jars,
        "result": tmp_path / "result.json",
        "master": "local[2]",
        "memory": "512m",
        "output": folder,
    }
    words = [*(f"--{name}={value}" for name, value in options.items()), "--parquet", "--index"]
    words += [f"--conf={name}={value}" for name, value in told.items()]
    file = credentials(tmp_path / "credentials")
    done = subprocess.run(
        [sys.executable, "-m", "delayed_topics_audit", "run", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **quick_java, "AWS_SHARED_CREDENTIALS_FILE": str(file)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    (page,) = spark.read.text(f"{folder}/report.html", wholetext=True).collect()
    verdict = json.loads((tmp_path / "result.json").read_text())["verdict"]
    assert f"<strong>{verdict}" in page["value"]
    rows = index.read(spark, f"s3a://{BUCKET}/some/folder/audits").collect()
    assert [(row.topic, row.audit, row.verdict) for row in rows] == [(frozen.topic, "orders-audit", verdict)]
    (of_topic,) = spark.read.text(f"s3a://{BUCKET}/some/folder/{frozen.topic}.html", wholetext=True).collect()
    assert 'href="orders-audit/report.html"' in of_topic["value"]

    audit(frozen, connection, lambda: spark, print, Output(folder=str(tmp_path / "local"), parquet=True))
    in_bucket, on_disk = (spark.read.parquet(f"{place}/places") for place in (folder, tmp_path / "local"))
    assert in_bucket.count() == on_disk.count() > 1200
    assert in_bucket.exceptAll(on_disk).isEmpty()

    (log,) = (tmp_path / "events").glob("local-*")
    events = log.read_text()
    assert "ProfileCredentialsProvider" in events, "the event log has the configuration of Spark"
    for visible_text in (done.stdout, done.stderr, events, (tmp_path / "result.json").read_text()):
        assert SECRET not in visible_text
        assert KEY_ID not in visible_text


@pytest.mark.parametrize(
    ("name", "secret", "endpoint", "says"),
    [
        (
            "wrong-key",
            "open-barley",
            None,
            "Check that the access key in the Secret is right, and that it may read and write there",
        ),
        ("no-secret", None, None, "Check that the Secret exists. Its key credentials must have aws_access_key_id"),
        ("no-bucket", SECRET, None, "Either create the bucket, or correct its name"),
        ("away", SECRET, "http://127.0.0.1:1", "Either correct the endpoint, or try again when it answers"),
    ],
)
def test_what_keeps_it_from_a_bucket_is_said_at_once(
    storage: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
    name: str,
    secret: str | None,
    endpoint: str | None,
    says: str,
) -> None:
    hadoop, java = of_java(spark)
    hadoop.set(f"fs.s3a.bucket.{name}.endpoint", endpoint or storage[f"{S3A}endpoint"])
    file = credentials(tmp_path / "credentials", secret) if secret else tmp_path / "missing"
    before = java.System.setProperty(CREDENTIALS, str(file))
    began = time.monotonic()
    try:
        with pytest.raises(AuditFailed, match=f"could not be written to s3a://{name}/orders-audit: .*{says}"):
            Output(folder=f"s3a://{name}/orders-audit", parquet=False).prepare(spark)
    finally:
        java.System.setProperty(CREDENTIALS, before)
    assert time.monotonic() - began < 60


def test_a_claim_that_can_not_be_written_is_said(spark: SparkSession) -> None:
    with pytest.raises(AuditFailed, match=r"could not be written to /proc/orders-audit\. Make the claim writable"):
        Output(folder="/proc/orders-audit", parquet=False).prepare(spark)
