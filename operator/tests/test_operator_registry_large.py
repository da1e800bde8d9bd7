"""A registry that somebody has filled makes its connection unusable, and does not fill the operator's memory."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.registry import Claim, Owner, encode
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import OperatorProcess

pytestmark = pytest.mark.api

CLAIMS = 10_000
"""Their keys and values take 2 MiB."""


@pytest.fixture
def frugal(api: KubeApi) -> Iterator[OperatorHarness]:
    """Yields a harness with a broker of its own, whose operator holds at most 1 MiB of a registry."""
    with (
        Broker() as broker,
        OperatorHarness(
            api, broker, OperatorProcess(api, "--resync-seconds=3", "--registry-mebibytes=1")
        ).opened() as made,
    ):
        yield made


@pytest.mark.slow
def test_a_registry_that_grows_beyond_what_is_held_is_said_and_nothing_is_done_by_it(frugal: OperatorHarness) -> None:
    harness = frugal
    harness.apply()
    harness.wait_until_served()
    producer = Producer({**harness.connection.client_config(), "linger.ms": 50})
    for n in range(CLAIMS):
        claim = Claim(topic=f"filled-{n}", owner=Owner("cluster", "attic", f"filled-{n}"))
        producer.produce(REGISTRY_TOPIC, key=claim.key, value=encode(claim), partition=0)
    assert producer.flush(120) == 0
    harness.wait_for("Ready", "False", "RegistryTooLarge")
    harness.wait(
        lambda: harness.connection_status()["conditions"][0]["reason"] == "RegistryTooLarge",
        "the connection reports it, too",
        seen=harness.connection_status,
    )
    condition = harness.connection_status()["conditions"][0]
    assert "more than 1 MiB" in condition["message"]
    assert "raise operator.registryMebibytes" in condition["message"]
    harness.apply(retryCap=9)
    harness.operator.kill()
    harness.operator.start()
    harness.wait_for("Ready", "False", "RegistryTooLarge")
    assert harness.registry().layouts[harness.topic].retry_cap != 9, "the edit waits"
    assert harness.stateful_set() is not None
