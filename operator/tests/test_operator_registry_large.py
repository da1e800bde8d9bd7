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
"""Their keys and values take 1.6 MiB."""
NEARLY = 5_500
"""Their keys and values take 90% of 1 MiB."""


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


def fill(harness: OperatorHarness, claims: int, *, emptied: bool = False) -> None:
    """Writes claims of others into the registry. `emptied`: removes them."""
    producer = Producer({**harness.connection.client_config(), "linger.ms": 50})
    for n in range(claims):
        claim = Claim(topic=f"filled-{n}", owner=Owner("cluster", "attic", f"filled-{n}"))
        value = None if emptied else encode(claim)
        producer.produce(REGISTRY_TOPIC, key=claim.key, value=value, partition=0)
    assert producer.flush(120) == 0


@pytest.mark.slow
def test_while_a_registry_is_nearly_full_everything_that_exists_is_served_and_nothing_new_is_made(
    frugal: OperatorHarness,
) -> None:
    harness = frugal
    harness.apply()
    harness.wait_until_served()
    before = harness.topics()
    fill(harness, NEARLY)
    harness.api.apply(harness.delayed_topic("late", topic=f"{harness.topic}.late"))
    harness.wait_for("Claimed", "False", "RegistryTooLarge", name="late")
    assert "operator.registryMebibytes" in harness.condition("Claimed", "late")["message"]
    assert 0.8 < harness.operator.counted("delayedtopics_operator_registry_fullness_ratio", resource_name="default") < 1
    harness.apply(retryCap=9)
    harness.wait(lambda: harness.registry().layouts[harness.topic].retry_cap == 9, "the edit is followed")
    harness.apply(retryCap=9, delaySeconds=[0, 10, 20, 30])
    harness.wait_for("TopicsReady", "False", "RegistryTooLarge")
    assert harness.topics() == before
    assert harness.connection_status()["conditions"][0]["status"] == "True"
    fill(harness, NEARLY, emptied=True)
    harness.wait_until_served("late")
    harness.wait_until_served()
    assert harness.topics() != before


@pytest.mark.slow
def test_a_registry_that_grows_beyond_what_is_held_is_said_and_nothing_is_done_by_it(frugal: OperatorHarness) -> None:
    harness = frugal
    harness.apply()
    harness.wait_until_served()
    fill(harness, CLAIMS)
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
