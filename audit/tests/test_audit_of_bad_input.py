"""An audit that can't reach a verdict says why, and what to do. Examples are missing rights, and a heap that is too small."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType
from delayed_topics_audit.cli import main
from delayed_topics_audit.errors import AuditFailed
from delayed_topics_audit.job import audit
from delayed_topics_audit.visibility import look
from delayed_topics_audit_testing.topics import whole_window
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.headers import Header
from delayed_topics_core.names import TopicNames
from delayed_topics_core.settings import DEFAULT_MAX_MESSAGE_BYTES
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_kafka_testing.rights import AUTHORIZER, rule
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

HUGE_BYTES = 300 << 20
"""The record contains only zeros, which Kafka stores compressed, in some kilobytes."""


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with Broker(settings=AUTHORIZER) as broker:
        yield Connection(bootstrap_servers=broker.bootstrap)


def one_record(connection: Connection, topic: str, *, size: int = 1, headers: Sequence[Header] = ()) -> AuditWindow:
    """Creates the topics with one uncommitted front record of `size` bytes, and returns the window."""
    names = TopicNames.of(topic)
    config = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "10000000"}
    specs = [NewTopicSpec(name=name, partitions=1, replication_factor=1, config=config) for name in names.topics]
    made = KafkaAdmin(connection).create_topics(specs)
    producer = Producer({**connection.client_config(), "message.max.bytes": 2 * HUGE_BYTES, "compression.type": "zstd"})
    producer.produce(names.front, bytes(size), partition=0, headers=list(headers))
    assert producer.flush(120) == 0
    return whole_window(
        names,
        topic_ids={name: info.id for name, info in made.items() if isinstance(info, TopicInfo)},
        delay_seconds=[0],
        retry_cap=3,
        max_lateness_ms=1000,
        committed_offsets={names.front: [0], names.delays: [0]},
        end_offsets={**dict.fromkeys(names.topics, (0,)), names.front: (1,)},
    )


def allow_only(connection: Connection, topic: str, *operations: AclOperation) -> None:
    rule(connection, ResourceType.TOPIC, topic, operations, AclPermissionType.ALLOW)


def test_a_topic_that_may_not_be_seen_makes_it_unknown(connection: Connection) -> None:
    window = one_record(connection, "unseen")
    allow_only(connection, "unseen.ready", AclOperation.DESCRIBE_CONFIGS)

    def no_session() -> SparkSession:
        raise AssertionError("there is nothing to read")

    result = audit(window, connection, no_session, print).result
    assert result.verdict == "Unknown"
    assert "describing topic unseen.ready" in result.message
    assert "Either grant this to the user of the connection" in result.message


def run(
    window: AuditWindow, connection: Connection, folder: Path, *options: str, java: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command as in a user's own pipeline. `java`: environment of the JVM."""
    (folder / "window.json.gz").write_bytes(window.encode())
    (folder / "bootstrap-servers").write_text(connection.bootstrap_servers)
    files = [f"--window={folder}/window.json.gz", f"--connection={folder}", f"--result={folder}/result.json"]
    command = [sys.executable, "-m", "delayed_topics_audit", "run", *files, f"--jars={folder}", *options]
    environment = {**os.environ, **(java or {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_pipeline_fails_on_the_verdicts_that_it_names(connection: Connection, tmp_path: Path) -> None:
    """A topic of the window was created again, so the audit reads nothing and does not start Spark."""
    window = one_record(connection, "pipeline")
    unknown = replace(window, topic_ids={**window.topic_ids, "pipeline.ready": "AAAAAAAAAAAAAAAAAAAAAA"})
    for options, code in {"--fail-on=Violated": 0, "--fail-on=Violated,Unknown": 3}.items():
        done = run(unknown, connection, tmp_path, options)
        assert (done.returncode, done.stdout[:9]) == (code, "Unknown: "), done.stderr
        assert json.loads((tmp_path / "result.json").read_text())["verdict"] == "Unknown"
    refused = CliRunner().invoke(main, ["run", "--fail-on=violated"])
    assert refused.exit_code == 2
    assert "'violated' must be Violated, Unknown, or both separated by a comma" in refused.output


def test_a_due_time_that_no_calendar_has_ends_no_audit(
    connection: Connection, spark_jars: Path, quick_java: dict[str, str], tmp_path: Path
) -> None:
    """The report page once failed with a traceback, and with it each attempt of the Job."""
    window = one_record(connection, "far", headers=[("dt-deliver-at", b"9000000000000000000")])
    output = tmp_path / "accounts" / "far"
    small = ("--master=local[1]", "--memory=512m")
    done = run(window, connection, tmp_path, f"--jars={spark_jars}", *small, f"--output={output}", java=quick_java)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "result.json").read_text())["verdict"] == "Verified"
    assert "after 9999" in (output / "report.html").read_text()


def test_a_topic_that_may_not_be_read_is_named(connection: Connection, spark: SparkSession) -> None:
    window = one_record(connection, "unread")
    allow_only(connection, "unread", AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    with pytest.raises(AuditFailed, match=r"Not authorized to access topics: \[unread\]\. Grant Read to the user"):
        audit(window, connection, lambda: spark, print)


def test_the_smallest_limit_that_a_topic_has_decides_what_can_have_been_too_large(connection: Connection) -> None:
    """A limit above Kafka's default does not count, because the topic may have had the default before."""
    window, admin = one_record(connection, "limited"), KafkaAdmin(connection)
    assert look(admin, window).least_limit_bytes == DEFAULT_MAX_MESSAGE_BYTES
    admin.alter_topic_configs({"limited.ready": {"max.message.bytes": "2000"}})
    wait_until(lambda: look(admin, window).least_limit_bytes == 2000, what="the audit sees the limit of 2,000 bytes")


def test_a_heap_that_is_too_small_is_said(
    connection: Connection, spark_jars: Path, quick_java: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "window.json.gz").write_bytes(one_record(connection, "huge", size=HUGE_BYTES).encode())
    (tmp_path / "bootstrap-servers").write_text(connection.bootstrap_servers)
    result = tmp_path / "result.json"
    where = [f"--window={tmp_path}/window.json.gz", f"--connection={tmp_path}", f"--jars={spark_jars}"]
    done = subprocess.run(
        [sys.executable, "-m", "delayed_topics_audit", "run", *where, f"--result={result}", "--memory=512m"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **quick_java},
    )
    assert done.returncode == 1, done.stderr
    message = json.loads(result.read_text())["message"]
    assert "Raise spec.spark.memory" in message, message
