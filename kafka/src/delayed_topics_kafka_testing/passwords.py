"""A broker whose users have passwords."""

from collections.abc import Iterator
from contextlib import contextmanager

from delayed_topics_devcluster.broker import LOOPBACK, PATIENT, Broker, BrokerAddress
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_kafka.connection import Connection


@contextmanager
def password_kafka() -> Iterator[Connection]:
    """Starts a broker, and yields a connection with the right password."""
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
