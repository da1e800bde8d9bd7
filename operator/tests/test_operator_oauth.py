"""A connection with OAUTHBEARER: the operator, and a worker with the files that it was given, use tokens that last for seconds."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka_testing.oauth import CLIENT_ID, CLIENT_SECRET, SCOPE, OAuthKafka, oauth_kafka
from delayed_topics_kafka_testing.reading import read_committed
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = [pytest.mark.api, pytest.mark.slow]

NAME = "by-token"
DELAY_SECONDS = 6
"""Longer than a token lasts."""


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[OAuthKafka]:
    with oauth_kafka(tmp_path) as made:
        yield made


@pytest.fixture
def harness(api: KubeApi, kafka: OAuthKafka) -> Iterator[OperatorHarness]:
    with OperatorHarness(api, kafka.broker, OperatorProcess(api, "--resync-seconds=3")).opened() as made:
        yield made


def secret(name: str, **data: str) -> Manifest:
    metadata = {"name": name, "namespace": SYSTEM_NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


def connection(harness: OperatorHarness, kafka: OAuthKafka) -> Manifest:
    made = harness.cluster_connection(NAME, bootstrap=kafka.connection.bootstrap_servers)
    oauth = {
        "tokenEndpointUrl": kafka.tokens.url,
        "clientId": CLIENT_ID,
        "secretRef": {"name": "oauth-client"},
        "scope": SCOPE,
        "extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
        "caSecretRef": {"name": "oauth-ca"},
    }
    made["spec"] |= {"tls": {"caSecretRef": {"name": "oauth-ca"}}, "sasl": {"mechanism": "OAUTHBEARER", "oauth": oauth}}
    return made


def test_a_record_is_released_by_a_worker_that_has_outlived_its_token(
    harness: OperatorHarness, kafka: OAuthKafka, tmp_path: Path
) -> None:
    authority = kafka.tokens.authority.certificate.read_text()
    harness.api.apply(secret("oauth-client", **{"client-secret": "wrong"}), secret("oauth-ca", **{"ca.crt": authority}))
    harness.api.apply(connection(harness, kafka))

    def ready() -> Manifest:
        conditions = harness.connection_status(NAME).get("conditions", [])
        return next((c for c in conditions if c["type"] == "Ready"), {})

    harness.wait(lambda: ready().get("reason") == "TokenMissing", "the refused client is reported", seen=ready)
    assert "invalid_client" in ready()["message"]
    harness.api.apply(secret("oauth-client", **{"client-secret": CLIENT_SECRET}))
    harness.wait(lambda: ready().get("status") == "True", "the correct secret is used", seen=ready)

    reference = {"kind": "ClusterKafkaConnection", "name": NAME}
    harness.apply(delaySeconds=[DELAY_SECONDS], partitions=1, connectionRef=reference)
    harness.wait_until_served()
    with_worker = _given_to_workers(harness, tmp_path / "given")
    worker = WorkerProcess(
        tmp_path, with_worker, [harness.topic], port=free_ports(1)[0], member=f"{harness.topic}-delay-0"
    )
    try:
        worker.ready()
        begun = kafka.tokens.given
        producer = Producer(harness.connection.client_config())
        producer.produce(harness.topic, b"late")
        assert producer.flush(60) == 0
        harness.wait(
            lambda: [m.value() for m in read_committed(harness.connection, f"{harness.topic}.ready")] == [b"late"],
            "the record is released",
            seen=worker.evidence,
        )
        assert kafka.tokens.given > begun
        assert ready()["status"] == "True"
    finally:
        worker.kill()
    outputs = (harness.operator.log.read_text(), worker.log_path.read_text(), str(harness.api.list_all("Event")))
    assert not [text for text in outputs if CLIENT_SECRET in text]


def _given_to_workers(harness: OperatorHarness, folder: Path) -> Connection:
    """Returns the connection by the files that are mounted into the workers' pods."""
    (made,) = [s for s in harness.made("Secret") if "oauth-client-secret" in s["data"]]
    folder.mkdir()
    for name, text in made["data"].items():
        (folder / name).write_bytes(base64.b64decode(text))
    return Connection.from_directory(folder)
