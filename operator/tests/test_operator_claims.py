"""The first claim in the registry decides who owns a topic; the owner of the connection decides what a namespace may own."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim, Owner, encode
from delayed_topics_crds import Grant
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.values.plan import GrowTopic, RemoveFromRegistry
from delayed_topics_operator_testing.simulation import Kafka, Simulation, Stopped, resource, usable


def grant(**fields: object) -> Grant:
    return Grant.model_validate({"namespaceSelector": {}, "topicPrefixes": [""], **fields})


def template(**fields: Any) -> dict[str, Any]:
    return {"workers": {"template": fields}}


def limits(**amounts: Any) -> dict[str, Any]:
    return template(resources={"limits": amounts})


def claimed_by(kafka: Kafka, namespace: str, name: str, topic: str = "orders") -> None:
    claim = Claim(topic=topic, owner=Owner("0000-cluster", namespace, name))
    kafka.write(claim.key, encode(claim))


def test_who_finds_the_topic_claimed_is_told_by_whom_and_writes_nothing() -> None:
    kafka = Kafka()
    claimed_by(kafka, "billing", "theirs")
    simulation = Simulation(resource(), kafka=kafka)
    simulation.settle()
    assert simulation.done == []
    claimed = simulation.condition(Condition.CLAIMED)
    assert (claimed.status, claimed.reason) == ("False", Reason.CLAIMED_BY_OTHER)
    assert "billing/theirs" in claimed.message
    assert simulation.condition(Condition.READY).reason == Reason.CLAIMED_BY_OTHER


def test_who_claimed_second_withdraws_at_once() -> None:
    kafka = Kafka()
    claimed_by(kafka, "billing", "theirs")
    claimed_by(kafka, "shop", "orders")
    simulation = Simulation(resource(), kafka=kafka)
    simulation.settle()
    assert [type(action) for action in simulation.done] == [RemoveFromRegistry]
    assert [entry.claim.owner.namespace for entry in kafka.registry.claims.values()] == ["billing"]
    assert kafka.topics == {}


def test_of_two_that_claim_at_the_same_time_exactly_one_owns_the_topic() -> None:
    kafka = Kafka()
    first, second = Simulation(resource(), kafka=kafka), Simulation(resource(namespace="other"), kafka=kafka)
    plans = [reconcile(simulation.observe()) for simulation in (first, second)]  # both see an unclaimed topic
    for simulation, plan in zip((second, first), reversed(plans), strict=True):
        for action in plan.actions:
            simulation.execute(action)
    first.settle()
    second.settle()
    assert second.condition(Condition.CLAIMED).status == "True"
    assert first.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER
    assert "other/orders" in first.condition(Condition.CLAIMED).message


def test_the_loser_does_not_lie_in_wait_but_may_claim_a_free_topic_when_it_is_edited() -> None:
    kafka = Kafka()
    claimed_by(kafka, "billing", "theirs")
    simulation = Simulation(resource(), kafka=kafka)
    simulation.settle()
    kafka.write("claim/orders/0000-cluster/billing/theirs", None)
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER
    assert "Edit the spec of this resource" in simulation.condition(Condition.CLAIMED).message
    assert kafka.topics == {}
    simulation.edit(retryCap=3)
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).status == "True"


@pytest.mark.parametrize("theirs", ["orders.delays", "a_b"])
def test_names_that_would_overlap_or_that_kafka_can_not_tell_apart_are_refused(theirs: str) -> None:
    kafka = Kafka()
    if theirs == "a_b":
        claimed_by(kafka, "billing", "theirs", topic="a_b")
        simulation = Simulation(resource(topic="a.b"), kafka=kafka)
    else:
        claimed_by(kafka, "billing", "theirs", topic="orders")
        simulation = Simulation(resource(topic="orders"), kafka=kafka)
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER


@pytest.mark.parametrize("existing", ["orders", "orders.ready", "orders.dead", "orders.delays"])
def test_a_topic_that_nobody_claimed_is_foreign_and_left_alone(existing: str) -> None:
    simulation = Simulation(resource())
    simulation.kafka.create(existing, 7, config={"retention.ms": "1"})
    before = dict(simulation.kafka.topics)
    simulation.settle()
    assert simulation.done == []
    assert simulation.kafka.topics == before
    assert simulation.condition(Condition.CLAIMED).reason == Reason.TOPIC_FOREIGN
    assert existing in simulation.condition(Condition.CLAIMED).message


@pytest.mark.parametrize("theirs", ["orders", "orders.ready", "orders.dead", "orders.delays"])
def test_a_topic_that_somebody_made_while_kafka_refused_ours_is_never_touched(theirs: str) -> None:
    simulation = Simulation(resource(replicationFactor=100, deletionPolicy="Delete"))
    with pytest.raises(Stopped):
        simulation.settle(
            actions=3
        )  # finalizer, claim, planned layout; Kafka does not have a hundred brokers for the topics
    simulation.kafka.create(theirs, 1, 1, config={"cleanup.policy": "compact"})
    before = copy.deepcopy(simulation.kafka.topics)
    simulation.edit(replicationFactor=1)
    simulation.settle()
    condition = simulation.condition(Condition.TOPICS_READY)
    assert (condition.status, condition.reason) == ("False", Reason.TOPIC_FOREIGN)
    assert theirs in condition.message
    assert (simulation.kafka.topics, simulation.children, simulation.kafka.registry.topics) == (before, {}, {})
    simulation.delete()
    simulation.settle()
    assert (simulation.gone, simulation.kafka.topics, simulation.kafka.registry.claims) == (True, before, {})


@pytest.mark.parametrize("theirs", ["orders.ready", "orders.dead"])
def test_a_topic_that_somebody_made_in_the_place_of_ours_is_never_touched(theirs: str) -> None:
    simulation = Simulation(resource(deletionPolicy="Delete"))
    simulation.settle()
    simulation.kafka.delete(theirs)
    simulation.kafka.create(theirs, 1, 1, config={"cleanup.policy": "compact"})
    before, recorded = copy.deepcopy(simulation.kafka.topics), simulation.kafka.registry.topics["orders"]
    simulation.settle()
    assert simulation.condition(Condition.TOPICS_READY).reason == Reason.TOPIC_FOREIGN
    assert (simulation.kafka.topics, simulation.kafka.registry.topics["orders"]) == (before, recorded)
    simulation.delete()
    simulation.settle()
    assert set(simulation.kafka.topics) == {theirs}


def test_a_claim_of_which_nothing_was_made_lapses_with_its_resource_and_keeps_the_name_from_nobody() -> None:
    simulation = Simulation(resource(replicationFactor=100))
    with pytest.raises(Stopped):
        simulation.settle(actions=3)
    assert simulation.kafka.registry.claims
    simulation.delete()
    simulation.settle()
    assert (simulation.gone, simulation.kafka.registry.claims, simulation.kafka.registry.layouts) == (True, {}, {})
    other = Simulation(resource(namespace="other"), kafka=simulation.kafka)
    other.settle()
    assert other.condition(Condition.CLAIMED).status == "True"


def test_a_foreign_topic_that_is_gone_is_no_obstacle_any_more() -> None:
    simulation = Simulation(resource())
    simulation.kafka.create("orders", 7)
    simulation.settle()
    simulation.kafka.delete("orders")
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).status == "True"


def test_with_a_connection_of_the_own_namespace_nobody_is_sent_to_a_field_that_it_does_not_have() -> None:
    simulation = Simulation(resource())
    simulation.kafka.create("orders", 2)
    simulation.settle()
    claimed = simulation.condition(Condition.CLAIMED)
    assert (claimed.reason, "spec.allow" in claimed.message) == (Reason.TOPIC_FOREIGN, False)


def test_a_front_topic_is_adopted_where_the_connections_owner_allows_it_from_its_end_on() -> None:
    simulation = Simulation(resource(), connection=usable(grant(adopt=True)))
    simulation.kafka.create("orders", 2)
    simulation.kafka.topics["orders"].ends = {0: 100, 1: 200}
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).status == "True"
    assert simulation.kafka.registry.topics["orders"].start_offsets["orders"] == (100, 200)
    assert simulation.kafka.committed["delayedtopics.orders"]["orders", 1] == 200
    simulation.edit(deletionPolicy="Delete")
    simulation.delete()
    simulation.settle()
    assert simulation.gone
    assert set(simulation.kafka.topics) == {"orders"}


def test_an_adopted_topic_begins_at_its_end_whatever_its_group_has_committed_in_a_former_life() -> None:
    simulation = Simulation(resource(), connection=usable(grant(adopt=True)))
    simulation.kafka.create("orders", 1)
    simulation.kafka.topics["orders"].ends = {0: 100}
    simulation.kafka.committed["delayedtopics.orders"] = {("orders", 0): 60}
    simulation.settle()
    handover = simulation.kafka.registry.topics["orders"].handover
    assert handover is not None
    assert (handover.group, handover.of("orders", 0)) == ("delayedtopics.orders", OffsetAndMetadata(100))
    simulation.kafka.committed["delayedtopics.orders"]["orders", 0] = 100
    simulation.settle()
    assert simulation.kafka.registry.topics["orders"].handover is None


def test_the_limit_of_a_grant_holds_over_any_series_of_edits_and_refuses_only_growth() -> None:
    simulation = Simulation(resource(partitions=3, delaySeconds=[0, 1]), connection=usable(grant(maxPartitions=3)))
    simulation.settle()
    simulation.edit(delaySeconds=[0, 2])
    simulation.settle()
    assert {name: topic.partitions for name, topic in simulation.kafka.topics.items()}["orders.delays"] == 3
    condition = simulation.condition(Condition.TOPICS_READY)
    assert (condition.status, condition.reason) == ("False", Reason.GRANT_EXCEEDED)
    assert "asks for 4 partitions" in condition.message
    simulation.edit(delaySeconds=[0, 1])
    simulation.settle()
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    simulation.connection = usable(grant(maxPartitions=2))
    simulation.edit(partitions=2)
    simulation.kafka.delete("orders.dead")
    simulation.settle()
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    assert simulation.kafka.topics["orders.dead"].partitions == 2


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_never_adopted(policy: str) -> None:
    simulation = Simulation(resource(), connection=usable(grant(adopt=True)))
    simulation.kafka.create("orders", 3, config={"cleanup.policy": policy, "retention.ms": "-1"})
    simulation.settle()
    assert simulation.done == []
    claimed = simulation.condition(Condition.CLAIMED)
    assert (claimed.status, claimed.reason) == ("False", Reason.TOPIC_FOREIGN)
    assert f"cleanup.policy={policy}" in claimed.message


def test_no_record_is_lost_from_partitions_that_an_adopted_topic_is_given() -> None:
    simulation = Simulation(resource(frontPartitions=6), connection=usable(grant(adopt=True)))
    simulation.kafka.create("orders", 3)
    simulation.kafka.topics["orders"].ends = {0: 100, 1: 100, 2: 100}
    for _ in range(8):
        for action in reconcile(simulation.observe()).actions:
            simulation.execute(action)
            if isinstance(action, GrowTopic) and action.topic == "orders":
                simulation.kafka.topics["orders"].ends |= {3: 7, 4: 5, 5: 9}
    committed = simulation.kafka.committed["delayedtopics.orders"]
    assert [committed["orders", p] for p in range(6)] == [100, 100, 100, 0, 0, 0]


def test_other_topics_than_the_front_are_never_adopted() -> None:
    simulation = Simulation(resource(), connection=usable(grant(adopt=True)))
    simulation.kafka.create("orders.ready", 2)
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).reason == Reason.TOPIC_FOREIGN


@pytest.mark.parametrize(
    ("grants", "spec", "words"),
    [
        ((grant(namespaceSelector={"matchLabels": {"team": "b"}}),), {}, "has no grant for namespace shop"),
        ((grant(topicPrefixes=["shop-", "b-"]),), {}, "none of the allowed prefixes (b-, shop-)"),
        ((grant(),), template(labels={"team": "a"}), "spec.workers.template.labels[team]"),
        ((grant(template={"labels": ["team"]}),), template(annotations={"team": "a"}), "template.annotations[team]"),
        ((grant(),), template(nodeSelector={"disk": "fast"}), "template.nodeSelector[disk]"),
        ((grant(),), template(affinity={"nodeAffinity": {}}), "template.affinity"),
        ((grant(),), template(priorityClassName="system-node-critical"), "priorityClassName (system-node-critical)"),
        (
            (grant(template={"tolerations": ["spot"]}),),
            template(tolerations=[{"key": "spot"}, {"operator": "Exists"}]),
            "does not allow namespace shop to use spec.workers.template.tolerations[1] (every taint).",
        ),
        ((grant(),), limits(memory="2049Mi"), "resources.limits[memory] (2049Mi, at most 2Gi)"),
        *(
            ((grant(),), limits(memory=none), f"resources.limits[memory] ({none} is no limit, at most 2Gi)")
            for none in ("0", "0Mi", "-0", "0e9", 0)
        ),
        ((grant(),), limits(memory="-1"), "resources.limits[memory] (-1, at most 2Gi)"),
        ((grant(),), limits(memory="1Gi", cpu="0m"), "resources.limits[cpu] (0m is no limit, at most 2)"),
        ((grant(),), limits(memory="1Gi", cpu="2001m"), "resources.limits[cpu] (2001m, at most 2)"),
        ((grant(),), limits(memory="1Gi", **{"nvidia.com/gpu": 1}), "resources.limits[nvidia.com/gpu]"),
        ((grant(),), template(resources={"requests": {"memory": "1Mi"}}), "resources.limits without memory"),
        (
            (grant(), grant(template={"labels": ["team"]}, maxPartitions=2)),
            {**template(labels={"team": "a"}), "partitions": 5},
            "spec.workers.template.labels[team]",
        ),
    ],
)
def test_what_the_connections_owner_does_not_allow_is_refused_with_the_rule(
    grants: tuple[Grant, ...], spec: dict[str, Any], words: str
) -> None:
    simulation = Simulation(resource(**spec), connection=usable(*grants), labels={"team": "a"})
    simulation.settle()
    assert simulation.done == []
    claimed = simulation.condition(Condition.CLAIMED)
    assert (claimed.status, claimed.reason) == ("False", Reason.NOT_ALLOWED)
    assert words in claimed.message


@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"matchLabels": {"team": "a"}},
        {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]},
        {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["b"]}]},
        {"matchExpressions": [{"key": "gone", "operator": "NotIn", "values": ["b"]}]},
        {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]},
    ],
)
def test_one_grant_that_fits_is_enough(selector: dict[str, object]) -> None:
    grants = (grant(topicPrefixes=["no"]), grant(namespaceSelector=selector, topicPrefixes=["or"], maxPartitions=3))
    simulation = Simulation(resource(partitions=3), connection=usable(*grants), labels={"team": "a"})
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).status == "True"


def test_what_a_grant_lists_may_be_set_on_pods_in_the_platforms_namespace() -> None:
    asked = {
        "labels": {"team": "a"},
        "annotations": {"note": "x"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "resources": {"requests": {"cpu": 3}, "limits": {"cpu": "4", "memory": "4096Mi"}},
    }
    allowed = {
        "labels": ["team"],
        "annotations": ["note"],
        "nodeSelectors": ["disk"],
        "tolerations": ["spot"],
        "affinity": True,
        "priorityClasses": ["high"],
        "maxCpu": 4,
        "maxMemory": "4Gi",
    }
    simulation = Simulation(resource(**template(**asked)), connection=usable(grant(template=allowed)))
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).status == "True"
    pod = simulation.children["StatefulSet", simulation.name]["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "high"


def test_on_a_connection_of_its_own_namespace_a_team_sets_what_it_likes() -> None:
    simulation = Simulation(resource(**template(labels={"team": "a"}, priorityClassName="high")))
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).status == "True"


def test_a_connection_without_grants_allows_nobody() -> None:
    simulation = Simulation(resource(), connection=replace(usable(), grants=()))
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).reason == Reason.NOT_ALLOWED


def test_a_grant_that_is_withdrawn_stops_changes_and_not_the_workers() -> None:
    simulation = Simulation(resource(), connection=usable(grant()))
    simulation.settle()
    children = dict(simulation.children)
    simulation.connection = replace(usable(), grants=())
    simulation.edit(workers={"replicas": 5})
    simulation.settle()
    assert simulation.condition(Condition.READY).reason == Reason.NOT_ALLOWED
    assert simulation.children == children
