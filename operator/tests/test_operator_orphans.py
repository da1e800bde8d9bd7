"""The operator removes what it made for a resource even if somebody has removed the finalizer, and it removes nothing else."""

import asyncio
from typing import Any

import pytest
from delayed_topics_operator.audits.reconcile.manifests import job_name
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.orphans import Sweeper
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.labels import MANAGED_BY
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.workers.reconcile.worker_sets import object_name
from delayed_topics_operator_testing.audits import apply_audit, child, report, wait_for_job
from delayed_topics_operator_testing.context import context
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, SYSTEM_NAMESPACE
from delayed_topics_operator_testing.simulation import resource

KINDS = ("StatefulSet", "Secret", "PodDisruptionBudget", "Service", "ConfigMap")


def force_away(harness: OperatorHarness, kind: str, name: str) -> None:
    """Deletes a resource together with its finalizers, as people do when a deletion does not end while the operator is away."""
    harness.api.kubectl("delete", kind, name, f"--namespace={harness.namespace}", "--wait=false")
    harness.patch(kind, name, {"metadata": {"finalizers": None}}, namespace=harness.namespace)
    harness.wait(lambda: harness.api.get(kind, name, harness.namespace) is None, f"{kind} {name} is gone")


def swept(harness: OperatorHarness, kind: str) -> float:
    return harness.operator.counted("delayedtopics_operator_orphans_removed_total", kind=kind)


@pytest.mark.api
def test_workers_of_a_resource_that_was_forced_away_count_for_the_quota_as_long_as_they_are_there(
    harness: OperatorHarness,
) -> None:
    allow = [{"namespaceSelector": {}, "topicPrefixes": [""], "quota": {"workers": 1}}]
    harness.api.apply(harness.cluster_connection(allow=allow))
    harness.apply()
    harness.wait_until_served()
    harness.operator.stop()  # somebody may be quicker than a pass of the operator
    force_away(harness, "DelayedTopic", harness.topic)
    harness.operator.start()
    harness.api.apply(harness.delayed_topic("next", topic=f"{harness.topic}.next"))
    harness.wait(
        lambda: harness.condition("WorkersReady", "next").get("reason") == "GrantExceeded",
        "no worker is granted",
        seen=lambda: harness.stateful_set("next"),
    )
    assert harness.made("StatefulSet"), "its workers are still there"


@pytest.mark.slow
@pytest.mark.api
def test_workers_and_credentials_of_a_resource_that_was_forced_away_are_removed_and_nobody_elses(
    harness: OperatorHarness,
) -> None:
    sharing = harness.cluster_connection("sharing")
    harness.api.apply({**sharing, "spec": {**sharing["spec"], "sharedWorkers": {"replicas": 0}}})
    harness.apply()
    harness.api.apply(harness.delayed_topic("stays", topic=f"{harness.topic}.stays"))
    for name in ("", "stays"):
        harness.wait_until_served(name)
    shared = [harness.api.get(kind, "sharing-cluster-shared", SYSTEM_NAMESPACE) for kind in ("StatefulSet", "Service")]
    assert all(shared)
    before = {kind: harness.made(kind, "stays") for kind in KINDS}
    counts = {kind: len(harness.made(kind)) for kind in KINDS}
    assert all(counts.values())
    harness.operator.stop()
    force_away(harness, "DelayedTopic", harness.topic)

    harness.replace_operator("--orphans-after-seconds=4")
    harness.wait_event(
        "OrphansRemoved", f"DelayedTopic {harness.namespace}/{harness.topic} is gone", "StatefulSet", "Secret"
    )
    harness.wait(
        lambda: not any(harness.made(kind) for kind in KINDS),
        "all objects are gone",
        seen=lambda: harness.made("StatefulSet"),
    )
    assert all(swept(harness, kind) >= count for kind, count in counts.items())
    uids = {kind: [o["metadata"]["uid"] for o in found] for kind, found in before.items()}
    assert {kind: [o["metadata"]["uid"] for o in harness.made(kind, "stays")] for kind in KINDS} == uids
    assert [harness.api.get(o["kind"], "sharing-cluster-shared", SYSTEM_NAMESPACE) for o in shared if o] == shared
    assert len(harness.topics()) == 4, "the topics stay in Kafka"


@pytest.mark.slow
@pytest.mark.api
def test_the_job_of_an_audit_that_was_forced_away_is_removed_with_its_window_and_its_credentials(
    harness: OperatorHarness,
) -> None:
    harness.apply()
    harness.api.apply(audit(harness, "gone"))
    harness.wait(lambda: bool(jobs(harness)), "the audit has its Job")
    (job,) = jobs(harness)
    harness.operator.stop()
    force_away(harness, "DelayedTopicAudit", "gone")

    harness.replace_operator("--orphans-after-seconds=4")
    harness.api.apply(audit(harness, "stays"))
    harness.wait_event("OrphansRemoved", f"DelayedTopicAudit {harness.namespace}/gone is gone", job["metadata"]["name"])

    def left() -> list[str]:
        objects = [o for kind in ("Job", "Secret", "ConfigMap") for o in harness.api.list_all(kind, AUDIT_NAMESPACE)]
        return [o["metadata"]["name"] for o in objects if o["metadata"]["name"].startswith(job["metadata"]["name"])]

    harness.wait(lambda: not left(), "all objects of the audit are gone", seen=left)
    assert swept(harness, "Job") >= 1
    harness.wait(lambda: len(jobs(harness)) == 1, "the other audit runs")


@pytest.mark.slow
@pytest.mark.api
def test_the_job_of_an_audit_that_has_its_verdict_is_kept_no_longer_than_the_audit(harness: OperatorHarness) -> None:
    harness.replace_operator("--orphans-after-seconds=4")
    harness.apply()
    for name in ("first", "second"):
        apply_audit(harness, name)
        wait_for_job(harness, name)
        report(harness, "Verified", name)
        harness.wait(
            lambda: all("ttlSecondsAfterFinished" in job["spec"] for job in jobs(harness)), "the Job has ended"
        )
    kept = child(harness, "Job", "jobName", "second") or {}
    harness.api.delete("DelayedTopicAudit", "first", harness.namespace)
    harness.wait(lambda: len(jobs(harness)) == 1, "the Job of the deleted audit is gone", seen=lambda: jobs(harness))
    assert jobs(harness)[0]["metadata"]["uid"] == kept["metadata"]["uid"]
    assert harness.events("OrphansRemoved") == []


def jobs(harness: OperatorHarness) -> list[Manifest]:
    found = harness.api.list_all("Job", AUDIT_NAMESPACE)
    return [job for job in found if job["metadata"]["labels"]["delayedtopics.io/namespace"] == harness.namespace]


def audit(harness: OperatorHarness, name: str) -> Manifest:
    return {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopicAudit",
        "metadata": {"name": name, "namespace": harness.namespace},
        "spec": {"delayedTopicRef": {"name": harness.topic}},
    }


class Kubernetes:
    """Has these objects, and records deletions and the messages of Events."""

    def __init__(self, *objects: Manifest) -> None:
        self.objects = {(o["kind"], o["metadata"]["name"]): o for o in objects}
        self.deleted: list[tuple[str, str]] = []
        self.event_messages: list[str] = []

    async def list_all(self, kind: str, namespace: str, *, labels: str, **_: Any) -> list[Manifest]:
        return [
            o for (found, _), o in self.objects.items() if found == kind and namespace == o["metadata"]["namespace"]
        ]

    async def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self.objects.get((kind, name))

    async def delete(self, kind: str, namespace: str, name: str, **_: Any) -> None:
        self.deleted.append((kind, name))
        del self.objects[kind, name]

    async def create(self, event: Manifest) -> None:
        self.event_messages.append(event["message"])


def made(kind: str, namespace: str, name: str, spec: Manifest | None = None, *, audit: str | None = None) -> Manifest:
    labels = {"app.kubernetes.io/managed-by": MANAGED_BY, "delayedtopics.io/namespace": "shop"}
    labels |= {"delayedtopics.io/audit": audit} if audit else {}
    return {
        "kind": kind,
        "metadata": {"namespace": namespace, "name": name, "uid": name, "labels": labels},
        "spec": spec or {},
    }


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def sweeper(kube: Kubernetes, store: Store, clock: Clock) -> Sweeper:
    given = context(kube, store, namespace=SYSTEM_NAMESPACE, audit_namespace=AUDIT_NAMESPACE)
    return Sweeper(given, clock=clock)


def test_what_has_no_resource_is_given_time_in_which_the_resource_may_come_back() -> None:
    name = object_name(namespace="shop", name="orders", home=SYSTEM_NAMESPACE)
    workers = made("StatefulSet", SYSTEM_NAMESPACE, name)
    kube, store, clock = Kubernetes(workers), Store(), Clock()
    store.put(workers)
    swept = sweeper(kube, store, clock)

    def look(at: float) -> list[tuple[str, str]]:
        clock.now = at
        asyncio.run(swept.sweep())
        return kube.deleted

    assert look(0) == look(599) == []
    store.put(resource())
    assert look(700) == []
    store.gone(resource())
    assert look(800) == look(1399) == [], "the waiting time begins again"
    assert look(1400) == [("StatefulSet", name)]
    assert len(kube.event_messages) == 1


def test_what_a_tenant_has_under_the_name_of_a_child_is_left_and_in_nobodys_way() -> None:
    ours = made("StatefulSet", SYSTEM_NAMESPACE, object_name(namespace="shop", name="orders", home=SYSTEM_NAMESPACE))
    theirs = {"kind": "ConfigMap", "metadata": {"name": "orders-delay-layout", "namespace": "shop", "uid": "u"}}
    kube, store, clock = Kubernetes(ours), Store(), Clock()
    store.put(theirs)
    store.put(ours)
    swept = sweeper(kube, store, clock)
    for clock.now in (0, 600):
        asyncio.run(swept.sweep())
    assert [kind for kind, _ in kube.deleted] == ["StatefulSet"]


def test_ended_jobs_go_with_their_audit_and_those_of_audits_that_there_are_stay() -> None:
    kept, held, freed, over = (job_name(name, "u") for name in ("kept", "held", "freed", "over"))
    kube = Kubernetes(
        made("Job", AUDIT_NAMESPACE, kept, audit=kept),
        made("Job", AUDIT_NAMESPACE, held, audit=held),
        made("Job", AUDIT_NAMESPACE, freed, audit=freed),
        made("Job", AUDIT_NAMESPACE, over, {"ttlSecondsAfterFinished": 60}, audit=over),
        made("Job", AUDIT_NAMESPACE, "ended", {"ttlSecondsAfterFinished": 60}, audit="ended"),
        made("Job", AUDIT_NAMESPACE, "left", audit="left"),
        made("ConfigMap", AUDIT_NAMESPACE, "half-window", audit="half"),
    )
    store, clock = Store(), Clock()
    for name in ("kept", "held", "freed", "over"):
        status = {} if name == "kept" else {"verdict": "Unknown"}
        metadata = {"namespace": "shop", "name": name, "uid": "u", "finalizers": [FINALIZER] if name == "held" else []}
        store.put({"kind": "DelayedTopicAudit", "metadata": metadata, "status": status})
    swept = sweeper(kube, store, clock)
    asyncio.run(swept.sweep())
    clock.now = 600
    asyncio.run(swept.sweep())
    assert set(kube.deleted) == {("Job", "left"), ("Job", "ended"), ("Job", freed), ("ConfigMap", "half-window")}
