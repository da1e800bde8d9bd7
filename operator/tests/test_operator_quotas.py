"""No namespace in total and no resource gets more than the connection's owner grants, and a lower grant takes nothing away."""

from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import Grant, QuotaUsed, parse
from delayed_topics_operator.connection.reconcile.grants import hard
from delayed_topics_operator_testing.namespace_simulation import (
    NamespaceSimulation,
    grant,
    live_workers,
    partitions,
    with_quota,
    workers,
)
from delayed_topics_operator_testing.simulation import Simulation, resource, usable


def test_of_two_that_are_made_at_once_for_a_quota_of_one_exactly_one_is() -> None:
    tenant = NamespaceSimulation(with_quota(delayedTopics=1))
    tenant.add("first")
    tenant.add("second")
    plans = {name: tenant.plan(name) for name in ("second", "first")}  # neither plan is executed yet
    for name, plan in plans.items():
        tenant.do(name, plan)
    tenant.settle()
    assert tenant.reason("second", Condition.CLAIMED) == ("True", Reason.CLAIM_HELD)
    assert tenant.reason("first", Condition.CLAIMED) == ("False", Reason.GRANT_EXCEEDED)
    assert (
        "limits the DelayedTopics of namespace shop to 1 in total (spec.allow[].quota.delayedTopics), and the namespace already has 1"
        in (tenant.simulations["first"].condition(Condition.CLAIMED).message)
    )
    assert set(tenant.kafka.topics) == {"second", "second.delays", "second.ready", "second.dead"}


def test_what_is_let_through_survives_a_restart_of_the_operator() -> None:
    tenant = NamespaceSimulation(with_quota(partitions=11))
    tenant.add("first", partitions=3)
    tenant.add("second", partitions=3)
    tenant.settle("first")
    tenant.restart()
    tenant.settle("second")
    assert tenant.reason("second", Condition.CLAIMED) == ("False", Reason.GRANT_EXCEEDED)
    assert partitions(tenant.kafka, "first") == tenant.used().partitions == 6


def test_topics_that_are_kept_count_until_they_are_deleted() -> None:
    tenant = NamespaceSimulation(with_quota(delayedTopics=1))
    tenant.add("orders")
    tenant.settle()
    tenant.simulations["orders"].delete()
    tenant.settle()
    assert tenant.used().delayed_topics == 1
    tenant.add("orders", uid="another", topic="elsewhere")
    tenant.settle()
    assert tenant.reason("orders", Condition.CLAIMED) == ("False", Reason.GRANT_EXCEEDED)
    del tenant.simulations["orders"]
    tenant.add("orders", uid="again", deletionPolicy="Delete")
    tenant.settle()
    assert tenant.reason("orders", Condition.CLAIMED) == ("True", Reason.CLAIM_HELD)
    tenant.simulations["orders"].delete()
    tenant.settle()
    assert tenant.used() == QuotaUsed()


def test_scaling_beyond_a_grant_serves_with_what_is_granted_and_repairs_on() -> None:
    simulation = Simulation(resource(**workers(2)), connection=usable(grant(maxWorkers=3)))
    simulation.settle()
    simulation.edit(**workers(9))
    simulation.serve()
    assert live_workers(simulation) == 3
    condition = simulation.condition(Condition.WORKERS_READY)
    assert (condition.status, condition.reason) == ("True", Reason.GRANT_EXCEEDED)
    assert "3 of 3 workers are ready. spec.workers.replicas is 9, but only 3 may run" in condition.message
    assert "at most 3 workers for a DelayedTopic (spec.allow[].maxWorkers)" in condition.message
    ready = simulation.condition(Condition.READY)
    assert (ready.status, ready.reason) == ("True", Reason.GRANT_EXCEEDED)
    assert parse("DelayedTopic", simulation.raw).status.workers.replicas == 3  # type: ignore[union-attr]

    simulation.kafka.topics["orders"].config["cleanup.policy"] = "compact"
    simulation.kafka.delete("orders.ready")
    simulation.settle()
    assert simulation.kafka.topics["orders"].config["cleanup.policy"] == "delete"
    assert "orders.ready" in simulation.kafka.topics


def test_workers_of_a_namespace_share_its_quota() -> None:
    tenant = NamespaceSimulation(with_quota(workers=5))
    tenant.add("first", **workers(4))
    tenant.add("second", **workers(4))
    tenant.settle()
    assert (live_workers(tenant.simulations["first"]), live_workers(tenant.simulations["second"])) == (4, 1)
    tenant.simulations["first"].edit(**workers(2))
    tenant.see()
    tenant.settle("first", "second")
    assert (live_workers(tenant.simulations["first"]), live_workers(tenant.simulations["second"])) == (2, 3)


def test_no_worker_at_all_is_not_ready() -> None:
    tenant = NamespaceSimulation(with_quota(workers=1))
    tenant.add("first", **workers(1))
    tenant.add("second", **workers(1))
    tenant.settle()
    assert live_workers(tenant.simulations["second"]) == 0
    assert tenant.reason("second", Condition.WORKERS_READY) == ("False", Reason.GRANT_EXCEEDED)


def test_a_quota_that_is_lowered_takes_nothing_away() -> None:
    tenant = NamespaceSimulation(with_quota(delayedTopics=2, partitions=100, workers=8))
    tenant.add("first", partitions=3, **workers(4))
    tenant.add("second", partitions=3, **workers(4))
    tenant.settle()
    before = tenant.used()
    tenant.connection = with_quota(delayedTopics=1, partitions=1, workers=1)
    tenant.restart()
    tenant.settle()
    assert tenant.used() == before
    for name in ("first", "second"):
        assert tenant.reason(name, Condition.CLAIMED) == ("True", Reason.CLAIM_HELD)
        assert tenant.reason(name, Condition.TOPICS_READY) == ("True", Reason.AS_DECLARED)
    tenant.simulations["first"].edit(partitions=4, **workers(3))
    tenant.settle()
    assert live_workers(tenant.simulations["first"]) == 3
    assert tenant.reason("first", Condition.TOPICS_READY) == ("False", Reason.GRANT_EXCEEDED)
    tenant.simulations["first"].edit(**workers(4))
    tenant.settle()
    assert live_workers(tenant.simulations["first"]) == 3


@pytest.mark.parametrize("limit", [{"maxPartitions": 3}, {"quota": {"partitions": 6}}])
def test_topics_that_may_not_grow_are_served_and_repaired_as_they_are(limit: dict[str, Any]) -> None:
    simulation = Simulation(resource(delaySeconds=[0, 10, 60], partitions=3), connection=usable(grant(**limit)))
    simulation.settle()
    layout = simulation.kafka.registry.layouts["orders"].layout
    simulation.edit(delaySeconds=[0, 10, 60, 600], partitions=8, retryCap=9)
    simulation.kafka.topics["orders"].config["cleanup.policy"] = "compact"
    simulation.kafka.delete("orders.dead")
    simulation.children.pop(("Service", simulation.name))
    simulation.settle()
    record = simulation.kafka.registry.layouts["orders"]
    assert (record.layout, record.state, record.retry_cap) == (layout, "serving", 9)
    assert partitions(simulation.kafka) == 6
    assert simulation.kafka.topics["orders"].config["cleanup.policy"] == "delete"
    assert ("Service", simulation.name) in simulation.children
    for kind, status in ((Condition.TOPICS_READY, "False"), (Condition.LAYOUT_CLAMPED, "True")):
        condition = simulation.condition(kind)
        assert (condition.status, condition.reason) == (status, Reason.GRANT_EXCEEDED)
    assert simulation.condition(Condition.CLAIMED).status == "True"
    simulation.connection = usable(grant())
    simulation.settle()
    assert simulation.kafka.registry.layouts["orders"].layout.delay_seconds == (0, 10, 60, 600)
    assert simulation.condition(Condition.TOPICS_READY).status == "True"


@pytest.mark.parametrize(
    ("grants", "spec", "words"),
    [
        ((grant(maxPartitions=4),), {"partitions": 5}, "at most 4 partitions"),
        ((grant(maxPartitions=4),), {"partitions": 4, "frontPartitions": 9}, "at most 4 partitions"),
        (
            (grant(maxPartitions=9, topicPrefixes=["x"]), grant(maxPartitions=2)),
            {"partitions": 5},
            "at most 2 partitions",
        ),
        (
            (grant(quota={"delayedTopics": 0}),),
            {},
            "to 0 in total (spec.allow[].quota.delayedTopics), and the namespace already has 0",
        ),
        (
            (grant(quota={"partitions": 5}),),
            {"partitions": 3},
            "limits the partitions of namespace shop to 5 in total (spec.allow[].quota.partitions)",
        ),
        ((grant(quota={"partitions": 5}),), {"partitions": 3}, "this one asks for 6 in all its topics"),
    ],
)
def test_nothing_is_made_of_what_asks_for_more_than_is_granted(
    grants: tuple[Grant, ...], spec: dict[str, Any], words: str
) -> None:
    simulation = Simulation(resource(**spec), connection=usable(*grants))
    simulation.settle()
    assert simulation.done == []
    claimed = simulation.condition(Condition.CLAIMED)
    assert (claimed.status, claimed.reason) == ("False", Reason.GRANT_EXCEEDED)
    assert words in claimed.message


def test_of_several_entries_for_a_namespace_the_highest_number_counts() -> None:
    grants = (
        grant(quota={"partitions": 5, "workers": 9}),
        grant(quota={"partitions": 7}),
        grant(adopt=True),
        grant(quota={"delayedTopics": 99}, namespaceSelector={"matchLabels": {"team": "b"}}),
    )
    found = hard(grants, {"team": "a"})
    assert (found.partitions, found.workers, found.delayed_topics, found.executors) == (7, 9, None, None)


def test_a_tenant_on_a_connection_of_its_own_has_no_quota() -> None:
    simulation = Simulation(resource(**workers(50)))
    simulation.others = QuotaUsed(delayed_topics=10**6, partitions=10**6, workers=10**6)
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).status == "True"
    assert live_workers(simulation) == 50
