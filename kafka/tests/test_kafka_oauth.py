"""OAuth 2.0 tokens instead of a password, with a real token endpoint and a broker that verifies its signatures."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.registry import TopicsRecord
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.control import ControlReader
from delayed_topics_kafka.errors import TokenMissing
from delayed_topics_kafka.reader import PartitionReader
from delayed_topics_kafka.registry import RegistryFollower, RegistryWriter
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_kafka_testing.oauth import OAuthKafka, oauth_kafka

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthKafka]:
    with oauth_kafka(tmp_path_factory.mktemp("oauth")) as made:
        yield made


def test_reading_and_writing_go_on_when_tokens_and_connections_run_out(
    kafka: OAuthKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine trusts the certificate authority of the token endpoint, so the connection has no CA for it."""
    monkeypatch.setenv("SSL_CERT_FILE", str(kafka.tokens.authority.certificate))
    connection = replace(kafka.connection, token_endpoint_ca_pem=None)
    ensure_system_topics(KafkaAdmin(connection, timeout_seconds=60), replication_factor=1)
    with RegistryFollower(connection) as follower:
        writer = RegistryWriter(follower, connection)
        writer.write([TopicsRecord(topic="before")])
        begun, until = kafka.tokens.given, time.monotonic() + 120

        def renewed() -> bool:
            """Polls once, which raises an error if the follower can't go on reading."""
            assert time.monotonic() < until
            follower.poll(0.2)
            return kafka.tokens.given >= begun + 4  # two for each client

        wait_until(renewed, what="tokens are renewed")
        writer.write([TopicsRecord(topic="after")])
        assert {"before", "after"} <= follower.state.topics.keys()


@pytest.mark.parametrize("fault", ["secret", "address"])
def test_a_token_endpoint_that_refuses_or_is_away_is_said_with_what_to_do(kafka: OAuthKafka, fault: str) -> None:
    away = replace(kafka.connection, token_endpoint_url=f"https://127.0.0.1:{free_ports(1)[0]}/token")
    connection, words = (
        (kafka.with_secret("wrong-s3cret"), "invalid_client") if fault == "secret" else (away, "Could not connect")
    )
    admin = KafkaAdmin(connection, timeout_seconds=3)
    for _ in range(2):  # the client library reports the error only once
        with pytest.raises(
            TokenMissing, match=f"token endpoint gave no token .*{words}.*correct the client id"
        ) as raised:
            admin.describe_cluster()
        assert "s3cret" not in str(raised.value)
    with (
        PartitionReader(connection, REGISTRY_TOPIC, client_id="test") as reader,
        pytest.raises(TokenMissing, match=f"token endpoint gave no token .*{words}"),
    ):
        reader.catch_up(3, lambda _: None)
    with ControlReader(connection, client_id="test") as reading:
        reading.follow(["orders.control"])
        wait_until(lambda: bool(reading.poll(0.1) or reading.problems), what="the reader reports why it can't read")
        assert re.search(f"token endpoint gave no token .*{words}", str(reading.problems["orders.control"]))
