"""What the API server refuses, in words that say what must be, through the installation that a user has."""

from typing import Any

import pytest
from delayed_topics_e2e.kube import Refused
from delayed_topics_e2e.tenant import API_VERSION, Declared, Install, Tenant

pytestmark = pytest.mark.cluster

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no delay": ({"delaySeconds": []}, "must list 1 to 64 delays"),
    "a negative delay": ({"delaySeconds": [-1]}, "must be between 0 and 2592000 seconds"),
    "above 30 days": ({"delaySeconds": [2_592_001]}, "must be between 0 and 2592000 seconds"),
    "65 delays": ({"delaySeconds": list(range(65))}, "must list 1 to 64 delays"),
    "no partition": ({"partitions": 0}, "must be between 1 and 10000 partitions"),
    "10,001 partitions": ({"partitions": 10_001}, "must be between 1 and 10000 partitions"),
    "too many lanes": ({"delaySeconds": [0, 1, 2], "lanesPerDelay": 5_000}, "must be at most 10000 partitions"),
    "a negative cap": ({"retryCap": -1}, "must be between 0 and 1000 retries"),
    "a cap above 1,000": ({"retryCap": 1_001}, "must be between 0 and 1000 retries"),
    "an illegal topic name": ({"topic": "orders!"}, "must be a Kafka topic name"),
    "a topic name too long for its suffixes": ({"topic": "t" * 243}, "must have at most 242 characters"),
    "the name of another's part": ({"topic": "orders.ready"}, "must not end with"),
    "a name of the system": ({"topic": "__consumer_offsets"}, "must not start with"),
    "a negative number of workers": ({"workers": {"replicas": -1}}, "must be between 0 and 1000 workers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_is_refused_and_says_what_must_be(case: str, anybody: Tenant) -> None:
    changes, message = REFUSED[case]
    with pytest.raises(Refused) as refused:
        anybody.declare("orders").apply(**changes)
    assert message in str(refused.value)


def test_a_misspelt_field_is_refused_by_name(anybody: Tenant) -> None:
    with pytest.raises(Refused, match=r'unknown field "spec\.retryCapp"'):
        anybody.declare("orders").apply(retryCapp=3)


@pytest.mark.parametrize(
    ("with_topic", "changes"),
    [
        (True, {"topic": "another"}),
        (False, {"topic": "added"}),
        (True, {"topic": None}),
        (True, {"connectionRef": {"kind": "ClusterKafkaConnection", "name": "another"}}),
        (False, {"connectionRef": {"kind": "KafkaConnection", "name": "default"}}),
    ],
    ids=["topic changed", "topic added", "topic removed", "connection changed", "connection added"],
)
def test_topic_and_connection_stay_as_they_were_created(
    with_topic: bool, changes: dict[str, Any], plan_only: dict[bool, Declared]
) -> None:
    orders = plan_only[with_topic]
    with pytest.raises(Exception, match="must stay as it was created"):
        orders.kube.patch("delayedtopic", orders.name, {"spec": changes}, namespace=orders.namespace)


@pytest.fixture(scope="module")
def anybody(install: Install) -> Tenant:
    """Nothing of this tenant ever comes to be, so it needs no namespace of its own."""
    return Tenant(install=install, namespace="default")


@pytest.fixture
def plan_only(tenant: Tenant) -> dict[bool, Declared]:
    """A resource with `topic` and one without; only planned, so nothing is made for them."""
    made = {}
    for with_topic, name in ((True, "with-topic"), (False, f"{tenant.namespace}-without")):
        declared = tenant.declare(name, topic=None if with_topic else name)
        manifest = declared.manifest()
        spec = {key: value for key, value in manifest["spec"].items() if with_topic or key != "topic"}
        metadata = {**manifest["metadata"], "annotations": {"delayedtopics.io/plan-only": "true"}}
        tenant.install.kube.apply(
            {"apiVersion": API_VERSION, "kind": "DelayedTopic", "metadata": metadata, "spec": spec}
        )
        made[with_topic] = declared
    return made


def test_a_plan_is_shown_and_nothing_is_done(plan_only: dict[bool, Declared]) -> None:
    orders = plan_only[True]
    planned = orders.wait_condition("Planned", "True", reason="PlanOnly")
    assert f"claim {orders.topic}" in planned["message"]
    assert orders.topic not in orders.kafka.topics()
    assert not orders.pods()
