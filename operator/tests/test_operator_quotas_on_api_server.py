"""Quotas on a real API server and a real broker: nothing exceeds them, nothing that exists is taken away, and the connection shows them."""

from typing import Any

import pytest
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.operator_harness import OperatorHarness

pytestmark = pytest.mark.api


def grant(**fields: Any) -> list[Manifest]:
    return [{"namespaceSelector": {}, "topicPrefixes": [""], **fields}]


def shown(harness: OperatorHarness) -> Manifest:
    """Returns what the connection's status says about the test's namespace."""
    listed = harness.connection_status().get("namespaces", [])
    return next((entry for entry in listed if entry["namespace"] == harness.namespace), {})


def wait_shown(harness: OperatorHarness, hard: Manifest, **used: int) -> None:
    wanted = {"namespace": harness.namespace, "hard": hard, "used": {"executors": 0, **used}}
    harness.wait(lambda: shown(harness) == wanted, f"the connection shows {wanted}", seen=lambda: shown(harness))


def replicas(harness: OperatorHarness, name: str = "") -> int:
    return int((harness.stateful_set(name) or {"spec": {"replicas": -1}})["spec"]["replicas"])


def scale(harness: OperatorHarness, count: int, name: str = "") -> None:
    where = f"--namespace={harness.namespace}"
    harness.api.kubectl("scale", "delayedtopic", name or harness.topic, where, f"--replicas={count}")


def test_of_two_that_are_made_at_once_for_a_quota_of_one_exactly_one_is(harness: OperatorHarness) -> None:
    harness.api.apply(harness.cluster_connection(allow=grant(quota={"delayedTopics": 1})))
    names = [f"{harness.topic}-{letter}" for letter in "ab"]
    harness.api.apply(*(harness.delayed_topic(name, deletionPolicy="Delete") for name in names))

    def claimed() -> dict[str, str]:
        return {name: harness.condition("Claimed", name).get("reason", "") for name in names}

    harness.wait(
        lambda: sorted(claimed().values()) == ["ClaimHeld", "GrantExceeded"], "one of them is served", seen=claimed
    )
    served, refused = sorted(names, key=lambda name: claimed()[name])
    harness.wait_until_served(served)
    assert harness.topics(refused) == {}
    assert "spec.allow[].quota.delayedTopics" in harness.condition("Claimed", refused)["message"]
    harness.wait_event("GrantExceeded", "to 1 in total")
    wait_shown(
        harness, {"delayedTopics": 1}, delayedTopics=1, partitions=sum(harness.topics(served).values()), workers=1
    )
    harness.delete(served)
    harness.wait_until_served(refused)


@pytest.mark.slow
def test_kubectl_scale_beyond_the_grant_gets_what_is_granted_and_everything_is_repaired_on(
    harness: OperatorHarness,
) -> None:
    harness.api.apply(harness.cluster_connection(allow=grant(maxWorkers=2, quota={"workers": 9})))
    harness.apply()
    harness.wait_until_served()
    scale(harness, 8)
    harness.wait(lambda: replicas(harness) == 2, "there are two workers", seen=harness.stateful_set)
    harness.wait_until_ready()
    for kind in ("WorkersReady", "Ready"):
        harness.wait_for(kind, "True", "GrantExceeded")
        assert "spec.workers.replicas is 8, but only 2 may run" in harness.condition(kind)["message"]
    status = (harness.resource() or {})["status"]
    assert status["workers"]["replicas"] == 2
    wait_shown(harness, {"workers": 9}, delayedTopics=1, partitions=sum(harness.topics().values()), workers=2)

    (service,) = harness.made("Service")
    harness.api.kubectl(
        "delete", "service", service["metadata"]["name"], f"--namespace={service['metadata']['namespace']}"
    )
    harness.wait(lambda: bool(harness.made("Service")), "the Service is made again")
    harness.kafka.alter_topic_configs({harness.topic: {"retention.bytes": "1000"}})
    harness.wait(lambda: harness.settings(harness.topic)["retention.bytes"] == "-1", "the setting is repaired")

    harness.api.apply(harness.cluster_connection(allow=grant(quota={"workers": 5})))
    harness.wait(
        lambda: replicas(harness) == 5, "there are as many workers as the quota allows", seen=harness.stateful_set
    )
    scale(harness, 1)
    harness.wait(lambda: replicas(harness) == 1, "there is one worker", seen=harness.stateful_set)


@pytest.mark.slow
def test_a_quota_lowered_below_what_there_is_takes_nothing_away_and_refuses_growth(harness: OperatorHarness) -> None:
    harness.apply(partitions=4, workers={"replicas": 2})
    harness.wait_until_served()
    before = harness.topics()
    lowered = {"delayedTopics": 0, "partitions": 1, "workers": 1}
    harness.api.apply(harness.cluster_connection(allow=grant(quota=lowered)))
    there = {"delayedTopics": 1, "partitions": sum(before.values())}
    wait_shown(harness, lowered, **there, workers=2)
    harness.wait_until_ready()
    harness.operator.kill()  # the operator must know what it has let through after a restart, too
    harness.operator.start()

    harness.apply(partitions=9, workers={"replicas": 3}, retryCap=7)
    harness.wait_for("TopicsReady", "False", "GrantExceeded")
    harness.wait_for("LayoutClamped", "True", "GrantExceeded")
    harness.wait_for("Claimed", "True")
    harness.wait(
        lambda: harness.registry().layouts[harness.topic].retry_cap == 7, "the change that needs no quota is followed"
    )
    assert (harness.topics(), replicas(harness)) == (before, 2)
    harness.apply(partitions=9, workers={"replicas": 1}, retryCap=7)
    harness.wait(lambda: replicas(harness) == 1, "there is one worker", seen=harness.stateful_set)
    wait_shown(harness, lowered, **there, workers=1)

    harness.api.apply(harness.cluster_connection(allow=grant()))
    harness.wait_for("TopicsReady", "True")
    harness.wait(lambda: harness.topics()[f"{harness.topic}.delays"] == 9, "the topics have grown", seen=harness.topics)


@pytest.mark.slow
def test_topics_that_were_kept_count_and_the_connection_names_their_namespace(harness: OperatorHarness) -> None:
    harness.api.apply(harness.cluster_connection(allow=grant(quota={"delayedTopics": 1})))
    harness.apply()
    harness.wait_until_served()
    kept = sum(harness.topics().values())
    harness.delete()
    wait_shown(harness, {"delayedTopics": 1}, delayedTopics=1, partitions=kept, workers=0)
    other = f"{harness.topic}-other"
    harness.api.apply(harness.delayed_topic(other))
    harness.wait_for("Claimed", "False", "GrantExceeded", name=other)
    harness.apply()
    harness.wait_until_served()
    written = harness.connection_status()
    assert written["namespaceCount"] == len(written["namespaces"])
