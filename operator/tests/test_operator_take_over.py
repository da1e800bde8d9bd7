"""Who may take over the topics of a resource in another cluster that was lost or moves, and what becomes of that resource."""

import asyncio
from dataclasses import replace

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim, Owner, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_crds import Grant
from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.engine.execute import Executor, Outcome, Owned
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import NotYet
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.plan import AlterSettings, DeleteChild, GrowTopic, RemoveFromRegistry, WriteRegistry
from delayed_topics_operator_testing.simulation import Kafka, Simulation, Stopped, resource, usable

LOST, RESTORED = "1111-lost", "2222-restored"


def granted(**fields: object) -> Usable:
    return usable(Grant.model_validate({"namespaceSelector": {}, "topicPrefixes": [""], "takeOver": True, **fields}))


def before_and_after(*, connection: Usable | None = None, namespace: str = "shop") -> tuple[Simulation, Simulation]:
    """Returns the served resource of the lost cluster, and the same resource in another cluster, which is refused so far."""
    lost = Simulation(resource(), cluster=LOST, connection=granted())
    lost.settle()
    raw = resource(uid="uid-restored", namespace=namespace)
    restored = Simulation(raw, kafka=lost.kafka, cluster=RESTORED, connection=connection or granted())
    restored.settle()
    assert restored.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER
    assert restored.done == []
    return lost, restored


def topic_ids(kafka: Kafka) -> dict[str, str]:
    return {name: topic.id for name, topic in kafka.topics.items()}


def test_a_restored_resource_is_told_how_to_take_its_topics_over_and_goes_on_where_the_lost_one_ended() -> None:
    lost, restored = before_and_after()
    ids, recorded = topic_ids(lost.kafka), lost.kafka.registry.topics["orders"]
    assert f"delayedtopics.io/take-over-from={LOST}" in restored.condition(Condition.CLAIMED).message
    restored.annotate(take_over_from=LOST)
    restored.later(60)
    restored.serve()
    assert restored.condition(Condition.READY).status == "True"
    assert topic_ids(restored.kafka) == ids
    assert restored.kafka.registry.topics["orders"] == recorded, "no partition begins anew"
    assert restored.kafka.registry.layouts["orders"].owner == restored.owner


def test_a_growth_that_kafka_refuses_does_not_end_the_service_of_what_is_taken_over() -> None:
    lost, restored = before_and_after()
    served = lost.kafka.registry.layouts["orders"]
    restored.edit(partitions=50)
    restored.annotate(take_over_from=LOST)
    for _ in range(10):
        for action in reconcile(restored.observe()).actions:
            if not isinstance(action, GrowTopic):
                restored.execute(action)
    now = restored.kafka.registry.layouts["orders"]
    assert (now.state, now.owner) == ("planned", restored.owner)
    assert now.served == replace(served, owner=restored.owner)


def test_the_owner_of_a_connection_of_ones_own_is_asked_for_nothing() -> None:
    own = {"kind": "KafkaConnection", "name": "own"}
    lost = Simulation(resource(connectionRef=own), cluster=LOST, connection=usable())
    lost.settle()
    restored = Simulation(resource(connectionRef=own), kafka=lost.kafka, cluster=RESTORED, connection=usable())
    restored.settle()
    message = restored.condition(Condition.CLAIMED).message
    assert f"delayedtopics.io/take-over-from={LOST}" in message
    assert "spec.allow" not in message


def test_who_took_what_from_whom_and_when_is_in_the_registry_and_in_the_condition() -> None:
    _, restored = before_and_after()
    restored.annotate(take_over_from=LOST)
    restored.later(60)
    restored.settle()
    (entry,) = restored.kafka.registry.claims.values()
    took = entry.claim
    assert (took.owner, took.taken_from, took.epoch) == (restored.owner, Owner(LOST, "shop", "orders"), 1)
    assert took.taken_at_ms == int(restored.now.timestamp() * 1000)
    message = restored.condition(Condition.CLAIMED).message
    assert f"taken over from DelayedTopic shop/orders (Kubernetes cluster {LOST}) at 2026-01-01 00:01:00 UTC" in message


def test_where_the_connections_owner_does_not_allow_it_nothing_is_taken() -> None:
    _, restored = before_and_after(connection=granted(takeOver=False))
    restored.annotate(take_over_from=LOST)
    claims = dict(restored.kafka.registry.claims)
    restored.settle()
    claimed = restored.condition(Condition.CLAIMED)
    assert (claimed.status, claimed.reason) == ("False", Reason.NOT_ALLOWED)
    assert "takeOver in an entry of spec.allow" in claimed.message
    assert (restored.done, restored.kafka.registry.claims) == ([], claims)


@pytest.mark.parametrize(
    ("connection", "namespace"),
    [
        (granted(topicPrefixes=["other"]), "shop"),
        (granted(maxPartitions=1), "shop"),
        (granted(namespaceSelector={"matchLabels": {"team": "b"}}), "shop"),
        (usable(), "attic"),
    ],
    ids=["other-topics", "too-large", "other-namespaces", "own-connection-other-name"],
)
def test_a_grant_of_something_else_takes_nothing(connection: Usable, namespace: str) -> None:
    simulation, kafka = Simulation(resource(), cluster=LOST), None
    simulation.settle()
    kafka = simulation.kafka
    claims = dict(kafka.registry.claims)
    taker = Simulation(resource(namespace=namespace), kafka=kafka, cluster=RESTORED, connection=connection)
    taker.annotate(take_over_from=f"{LOST}/shop/orders")
    taker.settle()
    assert taker.condition(Condition.CLAIMED).reason == Reason.NOT_ALLOWED
    assert kafka.registry.claims == claims


def test_with_a_connection_of_its_own_a_namespace_takes_over_what_is_its_own() -> None:
    _, restored = before_and_after(connection=usable())
    restored.annotate(take_over_from=LOST)
    restored.settle()
    assert restored.condition(Condition.CLAIMED).status == "True"


def test_nothing_is_taken_from_a_resource_of_the_same_cluster() -> None:
    victim = Simulation(resource())
    victim.settle()
    claims = dict(victim.kafka.registry.claims)
    thief = Simulation(resource(namespace="evil"), kafka=victim.kafka, connection=granted())
    for asked in (victim.cluster, str(victim.owner)):
        thief.annotate(take_over_from=asked)
        thief.settle()
        assert thief.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER
        assert "take-over-from" not in thief.condition(Condition.CLAIMED).message
    assert victim.kafka.registry.claims == claims


@pytest.mark.parametrize("asked", ["", "3333-third", f"{LOST}/shop/other", f"{LOST}@1", "*"])
def test_only_who_is_named_is_taken_from(asked: str) -> None:
    _, restored = before_and_after()
    restored.annotate(take_over_from=asked)
    restored.settle()
    assert restored.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER
    assert restored.done == []


def test_into_a_namespace_of_another_name_it_takes_the_whole_name_of_the_owner() -> None:
    _, restored = before_and_after(namespace="attic")
    message = restored.condition(Condition.CLAIMED).message
    assert f"delayedtopics.io/take-over-from={LOST}/shop/orders" in message
    restored.annotate(take_over_from=LOST)
    restored.settle()
    assert restored.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER
    restored.annotate(take_over_from=f"{LOST}/shop/orders")
    restored.settle()
    assert restored.condition(Condition.CLAIMED).status == "True"


def test_a_topic_that_only_collides_by_its_name_is_not_taken() -> None:
    kafka = Kafka()
    claim = Claim(topic="a_b", owner=Owner(LOST, "shop", "orders"))
    kafka.write(claim.key, encode(claim))
    simulation = Simulation(resource(topic="a.b"), kafka=kafka, cluster=RESTORED, connection=granted())
    simulation.annotate(take_over_from=LOST)
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER
    assert kafka.registry.holder("a.b") == claim


def test_a_former_owner_that_still_lives_stops_its_workers_and_writes_and_deletes_nothing() -> None:
    lost, restored = before_and_after()
    restored.annotate(take_over_from=LOST)
    restored.settle()
    assert lost.children
    lost.edit(partitions=12, deletionPolicy="Delete")
    lost.done.clear()
    lost.settle()
    assert lost.children == {}
    assert {type(action) for action in lost.done} == {DeleteChild}
    claimed = lost.condition(Condition.CLAIMED)
    assert claimed.reason == Reason.CLAIMED_BY_OTHER
    assert "took them over from this resource. The workers of this resource are stopped" in claimed.message
    topics, registry = topic_ids(lost.kafka), dict(lost.kafka.registry.claims)
    lost.delete()
    lost.settle()
    assert (lost.gone, topic_ids(lost.kafka), lost.kafka.registry.claims) == (True, topics, registry)


def test_a_former_owner_stops_its_workers_also_where_it_is_not_allowed_the_topic_any_more() -> None:
    lost, restored = before_and_after()
    restored.annotate(take_over_from=LOST)
    restored.settle()
    lost.connection = replace(usable(), grants=())
    lost.settle()
    assert lost.children == {}


def test_a_take_over_that_was_stopped_half_way_is_completed() -> None:
    whole = _registry_after(actions=None)
    for actions in range(1, 4):
        assert _registry_after(actions=actions) == whole


def _registry_after(*, actions: int | None) -> dict[str, Claim]:
    _, restored = before_and_after()
    restored.annotate(take_over_from=LOST)
    if actions is not None:
        with pytest.raises(Stopped):
            restored.settle(actions=actions)
    restored.settle()
    assert restored.condition(Condition.CLAIMED).status == "True"
    return {key: entry.claim for key, entry in restored.kafka.registry.claims.items()}


def test_if_the_annotation_goes_half_way_the_claim_does_not_lie_in_wait() -> None:
    lost, restored = before_and_after()
    restored.annotate(take_over_from=LOST)
    with pytest.raises(Stopped):
        restored.settle(actions=2)  # finalizer and claim
    assert len(lost.kafka.registry.claims) == 2
    restored.annotate(take_over_from="")
    restored.settle()
    assert [entry.claim.owner for entry in lost.kafka.registry.claims.values()] == [lost.owner]


def test_an_annotation_that_stays_does_not_take_back_what_was_taken_from_it_and_one_with_the_epoch_does() -> None:
    first, second = before_and_after()
    second.annotate(take_over_from=LOST)
    second.settle()
    first.settle()
    assert f"take-over-from={RESTORED}@1" in first.condition(Condition.CLAIMED).message
    first.annotate(take_over_from=f"{RESTORED}@1")
    first.settle()
    assert first.condition(Condition.CLAIMED).status == "True"
    second.settle()
    assert second.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER
    assert second.children == {}
    first.settle()
    assert first.condition(Condition.CLAIMED).status == "True", "no resource takes topics back by itself"
    second.annotate(take_over_from=f"{LOST}@2")
    second.settle()
    assert second.condition(Condition.CLAIMED).status == "True"
    (entry,) = second.kafka.registry.claims.values()
    assert entry.claim.epoch == 3


def test_topics_that_the_lost_cluster_made_and_could_not_note_any_more_go_over_too() -> None:
    lost = Simulation(resource(), cluster=LOST, connection=granted())
    with pytest.raises(Stopped):
        lost.settle(actions=4)  # finalizer, claim, planned layout, topics
    assert lost.kafka.topics
    assert not lost.kafka.registry.topics
    restored = Simulation(resource(uid="uid-restored"), kafka=lost.kafka, cluster=RESTORED, connection=granted())
    restored.annotate(take_over_from=LOST)
    ids = topic_ids(lost.kafka)
    restored.settle()
    assert restored.condition(Condition.TOPICS_READY).status == "True"
    assert topic_ids(lost.kafka) == ids


def test_an_adopted_topic_stays_adopted_and_is_never_deleted() -> None:
    lost = Simulation(resource(), cluster=LOST, connection=granted(adopt=True))
    lost.kafka.create("orders", 2)
    lost.settle()
    restored = Simulation(
        resource(uid="uid-restored", deletionPolicy="Delete"), kafka=lost.kafka, cluster=RESTORED, connection=granted()
    )
    restored.annotate(take_over_from=LOST)
    restored.settle()
    restored.delete()
    restored.settle()
    assert set(restored.kafka.topics) == {"orders"}


def test_the_new_claim_is_written_before_the_old_one_is_removed() -> None:
    _, restored = before_and_after()
    restored.annotate(take_over_from=LOST)
    about_claims = [
        a for a in reconcile(restored.observe()).actions if isinstance(a, WriteRegistry | RemoveFromRegistry)
    ]
    assert [type(action) for action in about_claims] == [WriteRegistry, RemoveFromRegistry]


class Gateways:
    """Kafka and Kubernetes as `execute` uses them."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.altered: list[str] = []

    async def registry(self) -> RegistryState:
        return self._kafka.registry

    async def alter_config(self, topic: str, settings: object) -> None:
        self.altered.append(topic)


def test_what_was_planned_before_the_topics_were_taken_is_not_done_any_more() -> None:
    lost, restored = before_and_after()
    gateways = Gateways(lost.kafka)
    executor = Executor(None, Store(), None, rolling_at_once=1)  # type: ignore[arg-type]
    planned = (AlterSettings(topic="orders", settings={"retention.ms": "1"}, present={}),)
    key = Key("DelayedTopic", "shop", "orders")

    def execute() -> Outcome:
        owned = Owned(topic="orders", owner=lost.owner)
        return asyncio.run(executor.execute(key, planned, gateways, owned))  # type: ignore[arg-type]

    returns = Claim(topic="returns", owner=lost.owner)
    lost.kafka.write(returns.key, encode(returns))
    assert len(execute().done) == 1
    restored.annotate(take_over_from=LOST)
    restored.settle()
    (failure,) = execute().failures
    assert isinstance(failure.error, NotYet)
    assert "took over the topics of" in str(failure.error)
    assert gateways.altered == ["orders"]
