"""Somebody removes the finalizer of a running audit: none of its objects are left behind, and its executors still count."""

import asyncio
from typing import cast

import pytest
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_operator.audits.reservations import Reservations
from delayed_topics_operator.connection.usage import Usage, use_of_audit
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audit_simulation import AUDIT_NAMESPACE, AuditSimulation, audit_resource
from delayed_topics_operator_testing.context import context

DEFAULT = Key("ClusterKafkaConnection", "", "default")
AUDIT = Key("DelayedTopicAudit", "shop", "orders-audit")


def running(*, finalizers: tuple[str, ...] = ()) -> AuditSimulation:
    """Begins an audit, and then sets its finalizers to these."""
    simulation = AuditSimulation()
    simulation.settle()
    assert simulation.job is not None
    simulation.raw["metadata"]["finalizers"] = list(finalizers)
    return simulation


def test_an_audit_without_its_finalizer_gets_it_back_and_goes_on() -> None:
    """In the past, such an audit got the verdict `Unknown`, "was removed before it ended", and its Secret was left behind."""
    simulation = running()
    simulation.settle()
    assert simulation.raw["metadata"]["finalizers"] == [FINALIZER]
    assert simulation.job is not None
    assert "verdict" not in simulation.status
    simulation.job_reports("Verified")
    simulation.settle()
    assert (simulation.status["verdict"], simulation.secret) == ("Verified", None)
    assert simulation.raw["metadata"]["finalizers"] == []


def test_a_deleted_audit_with_only_somebody_elses_finalizer_is_cleaned_up_too() -> None:
    simulation = running(finalizers=("example.com/theirs",))
    simulation.raw["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    simulation.settle()
    assert (simulation.job, simulation.secret, simulation.config_map) == (None, None, None)
    assert simulation.raw["metadata"]["finalizers"] == ["example.com/theirs"]


@pytest.mark.parametrize(
    "status",
    [{"jobName": "audits/x"}, {"windowConfigMap": "audits/x-window"}, {"jobName": "audits/x", "verdict": "Unknown"}],
)
def test_its_executors_count_until_it_has_its_verdict(status: dict[str, str]) -> None:
    store = Store()
    store.put({**audit_resource(spark={"executors": 3}), "status": status})
    used = of(store).by_namespace(DEFAULT, RegistryState())
    assert [amount.executors for amount in used.values()] == ([] if "verdict" in status else [3])


class Kubernetes:
    """Has the Job `job`, or none."""

    def __init__(self) -> None:
        self.job: Manifest | None = None

    async def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self.job


def of(store: Store) -> Usage:
    return Usage(context(Kubernetes(), store, audit_namespace=AUDIT_NAMESPACE), changed=lambda _: None)


def test_its_executors_count_until_its_job_is_gone_also_beside_those_of_one_of_the_same_name() -> None:
    kubernetes = Kubernetes()
    usage = of(Store())
    reservations = Reservations(cast(Kube, kubernetes), usage)

    def used() -> int:
        return sum(amount.executors for amount in usage.by_namespace(DEFAULT, RegistryState()).values())

    def released(audit: Manifest | None) -> bool:
        return asyncio.run(reservations.release_former(AUDIT, audit))

    first, second = audit_resource(), audit_resource()
    second["metadata"]["uid"] = "another"
    reservations.reserve(first, DEFAULT, 3)
    kubernetes.job = {"kind": "Job", "metadata": {"namespace": AUDIT_NAMESPACE, "name": "job"}}
    reservations.runs(first, kubernetes.job)
    assert not released(None)
    assert not released(second)
    assert usage.others(use_of_audit(second), DEFAULT, RegistryState()).executors == 3
    reservations.reserve(second, DEFAULT, 2)
    assert used() == 5
    kubernetes.job = None
    released(second)
    assert used() == 2
    assert released(None)
    assert used() == 0
