"""Kafka refuses a password. The client library goes on trying, and would only let each call time out."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.control import ControlReader
from delayed_topics_kafka.errors import NotAuthorized
from delayed_topics_kafka.reader import PartitionReader
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_kafka_testing.passwords import password_kafka

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WORDS = "_AUTHENTICATION: .* Either grant this to the user of the connection, or correct the connection's credentials"


@pytest.fixture(scope="module")
def right() -> Iterator[Connection]:
    with password_kafka() as connection:
        yield connection


def test_a_wrong_password_is_said_by_whoever_reads(right: Connection) -> None:
    ensure_system_topics(KafkaAdmin(right), replication_factor=1)
    wrong = replace(right, password="wrong")
    with PartitionReader(right, REGISTRY_TOPIC, client_id="test") as reader:
        reader.catch_up(60, lambda _: None)
    with PartitionReader(wrong, REGISTRY_TOPIC, client_id="test") as reader:
        for _ in range(2):
            with pytest.raises(NotAuthorized, match=f"reading {REGISTRY_TOPIC} failed .*{WORDS}"):
                reader.catch_up(3, lambda _: None)
    with ControlReader(wrong, client_id="test") as reading:
        reading.follow(["orders.control"])
        wait_until(lambda: bool(reading.poll(0.1) or reading.problems), what="the reader reports why it can't read")
        with pytest.raises(NotAuthorized, match=f"reading control topics failed .*{WORDS}"):
            raise reading.problems["orders.control"]
