from pathlib import Path
from typing import Any

import pytest
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import ConnectionInvalid
from delayed_topics_kafka.reader import PartitionReader
from hypothesis import given
from hypothesis import strategies as st

SECURE = Connection(
    bootstrap_servers="kafka:9093",
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-512",
    username="shop",
    password=" s3cret ",
    ca_pem="-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
)


OAUTH = Connection(
    bootstrap_servers="kafka:9093",
    security_protocol="SASL_SSL",
    sasl_mechanism="OAUTHBEARER",
    token_endpoint_url="https://login.example.com/token",
    token_endpoint_ca_pem="CA",
    oauth_client_id="delays",
    oauth_client_secret="s3cret ",
    oauth_scope="kafka records",
    oauth_extensions="logicalCluster=lkc-1,identityPoolId=pool-1",
)


@pytest.mark.parametrize("connection", [Connection(bootstrap_servers="a:1,b:2"), SECURE, OAUTH])
def test_a_secret_written_and_mounted_gives_the_same_connection(connection: Connection, tmp_path: Path) -> None:
    for name, content in connection.to_files().items():
        (tmp_path / name).write_text(content + "\n")
    assert Connection.from_directory(tmp_path) == connection


def test_secrets_do_not_show() -> None:
    connection = Connection.from_properties({**SECURE.client_config(), "ssl.key.password": "other s3cret"})
    assert "s3cret" not in repr(connection) + repr(OAUTH)
    assert "s3cret" not in str(connection)


def test_properties_survive_and_unknown_ones_are_kept() -> None:
    properties = {**SECURE.client_config(), "ssl.endpoint.identification.algorithm": "none"}
    connection = Connection.from_properties(properties)
    assert connection.username == "shop"
    assert connection.client_config() == properties
    assert Connection.from_properties(OAUTH.client_config()).client_config() == OAUTH.client_config()


def test_tokens_that_a_properties_file_asks_for_in_another_way_are_left_to_the_client_library() -> None:
    properties = {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "sasl.oauthbearer.assertion.private.key.file": "client.key",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    }
    assert properties.items() <= Connection.from_properties(properties).client_config().items()


def test_either_spelling_of_a_property_is_understood() -> None:
    connection = Connection.from_properties(
        {
            "metadata.broker.list": "kafka:9092",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "p",
        }
    )
    assert connection == Connection(
        bootstrap_servers="kafka:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        username="u",
        password="p",
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bootstrap_servers": " "}, "must name its bootstrap servers"),
        ({"security_protocol": "TLS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security_protocol": "SASL_SSL"}, "needs a SASL mechanism"),
        ({"sasl_mechanism": "PLAIN"}, "needs the security protocol SASL_SSL or SASL_PLAINTEXT, but it is PLAINTEXT"),
        ({"username": "shop"}, "given together"),
        ({"certificate_pem": "x"}, "tls.key"),
    ],
)
def test_what_does_not_fit_together_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConnectionInvalid, match=message):
        Connection(**{"bootstrap_servers": "kafka:9092", **fields})


def test_a_property_that_a_client_can_not_honour_is_refused_by_its_name() -> None:
    further = {"enable.auto.commit": "false", "max.in.flight": "5"}
    connection = Connection(bootstrap_servers="a:1", further=further)
    assert connection.config_with({"enable.auto.commit": False, "group.id": "shipping"})["group.id"] == "shipping"
    with pytest.raises(
        ConnectionInvalid, match=r"property max\.in\.flight can't be 5, because this client works only with 1\."
    ):
        connection.config_with({"max.in.flight.requests.per.connection": 1})
    with pytest.raises(ConnectionInvalid, match=r"enable\.auto\.commit can't be false, because .* only with true\."):
        connection.config_with({"enable.auto.commit": True})


def test_a_directory_without_bootstrap_servers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectionInvalid, match="at least bootstrap-servers"):
        Connection.from_directory(tmp_path)


def test_properties_without_bootstrap_servers_are_refused() -> None:
    with pytest.raises(ConnectionInvalid, match=r"must include bootstrap\.servers"):
        Connection.from_properties({"security.protocol": "PLAINTEXT"})


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1))
def test_a_password_keeps_its_spaces(password: str) -> None:
    assert Connection(bootstrap_servers="k:1", username="u", password=password).to_files()["password"] == password


@pytest.mark.parametrize(
    "pem", [{"ca_pem": "garbage"}, {"certificate_pem": "garbage", "key_pem": "garbage"}], ids=["ca", "certificate"]
)
def test_a_certificate_that_is_none_is_said_to_be_the_connections_fault(pem: dict[str, Any]) -> None:
    connection = Connection(bootstrap_servers="kafka:9093", security_protocol="SSL", **pem)
    with pytest.raises(ConnectionInvalid, match=r"Kafka at kafka:9093 can't be used: .*pem.*Correct its certificates"):
        KafkaAdmin(connection)
    with pytest.raises(ConnectionInvalid, match="Correct its certificates"):
        PartitionReader(connection, "orders", client_id="test")
