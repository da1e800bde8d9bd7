"""A password that Kafka refuses: the client library tries on, and each call only times out."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_devcluster.broker import LOOPBACK, PATIENT, Broker, BrokerAddress
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.control import ControlReader
from delayed_topics_kafka.errors import NotAuthorized
from delayed_topics_kafka.reader import PartitionReader
from delayed_topics_kafka.system_topics import ensure_system_topics

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WORDS = "_AUTHENTICATION: .* Either grant this to the user of the connection, or correct the connection's credentials"


@pytest.fixture(scope="module")
def right() -> Iterator[Connection]:
    address = BrokerAddress.of_cluster(1, LOOPBACK)[0]
    bootstrap = f"{LOOPBACK}:{free_ports(1)[0]}"
    listeners = {
        "PLAINTEXT": f"{LOOPBACK}:{address.client_port}",
        "PASSWORD": bootstrap,
        "CONTROLLER": f"{LOOPBACK}:{address.controller_port}",
    }
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        **PATIENT,
        "listeners": ",".join(f"{name}://{at}" for name, at in listeners.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PASSWORD:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.password.plain.sasl.jaas.config": f'{login} user_shop="right";',
    }
    with Broker(settings=settings, address=address):
        yield Connection(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            username="shop",
            password="right",
            further={"log_level": "0"},
        )


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
        wait_until(lambda: bool(reading.poll(0.1) or reading.problems), what="it is known why it can't be read")
        with pytest.raises(NotAuthorized, match=f"reading control topics failed .*{WORDS}"):
            raise reading.problems["orders.control"]
