"""Nothing is created for a resource before it has the finalizer, by which the operator removes all of it again."""

import asyncio
import time
from typing import Any

import pytest
from delayed_topics_core.registry import Claim
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.engine.execute import Executor, Owned
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import NotFound, NotYet
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.plan import WriteRegistry
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.simulation import Simulation, resource

ORDERS = Key("DelayedTopic", "shop", "orders")


class Cluster:
    """Kubernetes, Kafka and Events as `execute` uses them. `deleted`: the resource is gone, even if the operator has not seen that yet."""

    def __init__(self, *, deleted: bool) -> None:
        self.deleted = deleted
        self.written: list[Any] = []

    async def merge(self, kind: str, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        if self.deleted:
            raise NotFound(f"{kind} {name}", status=404)
        found = resource(name, namespace)
        return {**found, "metadata": {**found["metadata"], **patch["metadata"]}}

    async def registry(self) -> RegistryState:
        return RegistryState()

    async def write(self, records: list[Any]) -> None:
        self.written += records

    async def record(self, told_of: dict[str, Any], notice: object) -> None:
        """Ignores Events, which do not matter here."""


def known(uid: str) -> dict[str, Any]:
    """Returns the resource as the operator saw it last."""
    found = resource(uid=uid)
    found["metadata"]["resourceVersion"] = "1"
    return found


@pytest.mark.parametrize(
    ("cached", "deleted", "claimed"),
    [
        (known("uid-shop-orders"), False, True),
        (known("uid-shop-orders"), True, False),
        (known("another"), False, False),
        (None, True, False),
    ],
)
def test_a_resource_that_was_deleted_meanwhile_claims_nothing(
    cached: dict[str, Any] | None, deleted: bool, claimed: bool
) -> None:
    simulation = Simulation(resource())
    actions = reconcile(simulation.observe()).actions
    assert [a.record.topic for a in actions if isinstance(a, WriteRegistry) and isinstance(a.record, Claim)]
    store = Store()
    if cached is not None:
        store.put(cached)
    cluster: Any = Cluster(deleted=deleted)
    executor = Executor(cluster, store, cluster, rolling_at_once=1)
    owned = Owned(topic="orders", owner=simulation.owner)
    outcome = asyncio.run(executor.execute(ORDERS, actions, cluster, owned))
    assert bool(cluster.written) == claimed
    assert [type(failure.error) for failure in outcome.failures] == ([] if claimed else [NotYet])


@pytest.mark.api
@pytest.mark.slow
def test_resources_that_are_deleted_as_soon_as_they_are_made_leave_no_claim(harness: OperatorHarness) -> None:
    names = [f"{harness.topic}-{number}" for number in range(20)]
    for number, name in enumerate(names):
        harness.api.apply(harness.delayed_topic(name, deletionPolicy="Delete"))
        time.sleep(number / 100)  # each is deleted at another point of its first pass
        harness.api.delete("DelayedTopic", name, harness.namespace)
    harness.apply()
    harness.wait_until_served()

    def left() -> list[str]:
        return [found["metadata"]["name"] for found in harness.api.list_all("DelayedTopic")]

    harness.wait(lambda: left() == [harness.topic], "the other resources are gone", seen=left)
    owners = [entry.claim.owner for entry in harness.registry().claims.values()]
    assert [owner.name for owner in owners if owner.namespace == harness.namespace] == [harness.topic]
