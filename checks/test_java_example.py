"""The Java example of docs/use.md does not commit a record that it could not retry, and ignores the retries of other groups."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.kafka import kafka_jars
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.commits import committed_offsets
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec

from checks.documents import ROOT, blocks

pytestmark = pytest.mark.broker

READY, GROUP = "payments.ready", "shipping"
LARGEST_BYTES = 1000
"""The largest record batch that the front topic accepts."""
REFUSED_OFFSET = 1
"""The offset of the record whose retry is too large."""


def test_a_retry_that_kafka_refuses_leaves_its_record_and_those_behind_it_uncommitted(tmp_path: Path) -> None:
    [example] = [block for block in blocks(ROOT / "docs" / "use.md") if block.language == "java"]
    (tmp_path / "Example.java").write_text(example.text)
    with Broker() as broker:
        connection = Connection(bootstrap_servers=broker.bootstrap)
        largest = {"max.message.bytes": str(LARGEST_BYTES)}
        KafkaAdmin(connection).create_topics(
            [
                NewTopicSpec(name="payments", partitions=1, replication_factor=1, config=largest),
                NewTopicSpec(name=READY, partitions=1, replication_factor=1, config={}),
            ]
        )
        producer = Producer(connection.client_config())
        for further in ({"dt-group": b"billing"}, {"trace": b"t" * LARGEST_BYTES}, {}, {}):
            producer.produce(READY, b"from java", b"key", headers={"dt-attempt": b"0", **further})
        assert producer.flush(30) == 0

        command = ("java", "-cp", f"{kafka_jars()}/*", "Example.java", broker.bootstrap)
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        committed = committed_offsets(connection, GROUP, [(READY, 0)], timeout_seconds=60)

    assert "RecordTooLargeException" in ran.stderr
    assert [at.offset for at in committed.values() if at.offset > REFUSED_OFFSET] == []
    assert ran.stdout.count("attempt 0") == 1
