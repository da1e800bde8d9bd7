"""What was made for a resource goes although somebody has removed its finalizer, and nothing else does."""

import asyncio
from typing import Any

import pytest
from delayed_topics_operator.audits.manifests import job_name
from delayed_topics_operator.gateways.recorder import Recorder
from delayed_topics_operator.orphans import Sweeper
from delayed_topics_operator.settings import Settings
from delayed_topics_operator.store import Store
from delayed_topics_operator.worker_sets import MANAGED_BY, object_name
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, SYSTEM_NAMESPACE
from delayed_topics_operator_testing.scene import Manifest, Scene
from delayed_topics_operator_testing.world import resource

KINDS = ("StatefulSet", "Secret", "PodDisruptionBudget", "Service", "ConfigMap")


def force_away(scene: Scene, kind: str, name: str) -> None:
    """As people do when a deletion does not end, while the operator is away."""
    scene.api.kubectl("delete", kind, name, f"--namespace={scene.namespace}", "--wait=false")
    scene.patch(kind, name, {"metadata": {"finalizers": None}}, namespace=scene.namespace)
    scene.wait(lambda: scene.api.get(kind, name, scene.namespace) is None, f"{kind} {name} is gone")


def swept(scene: Scene, kind: str) -> float:
    return scene.operator.counted("delayed_topics_operator_orphans_removed_total", kind=kind)


@pytest.mark.slow
@pytest.mark.api
def test_workers_and_credentials_of_a_resource_that_was_forced_away_are_removed_and_nobody_elses(scene: Scene) -> None:
    sharing = scene.cluster_connection("sharing")
    scene.api.apply({**sharing, "spec": {**sharing["spec"], "sharedWorkers": {"replicas": 0}}})
    scene.apply()
    scene.api.apply(scene.delayed_topic("stays", topic=f"{scene.topic}.stays"))
    for name in ("", "stays"):
        scene.wait_until_served(name)
    shared = [scene.api.get(kind, "sharing-cluster-shared", SYSTEM_NAMESPACE) for kind in ("StatefulSet", "Service")]
    assert all(shared)
    before = {kind: scene.made(kind, "stays") for kind in KINDS}
    counts = {kind: len(scene.made(kind)) for kind in KINDS}
    assert all(counts.values())
    scene.operator.stop()
    force_away(scene, "DelayedTopic", scene.topic)

    scene.replace_operator("--orphans-after-seconds=4")
    scene.wait_event("OrphansRemoved", f"DelayedTopic {scene.namespace}/{scene.topic} is gone", "StatefulSet", "Secret")
    scene.wait(
        lambda: not any(scene.made(kind) for kind in KINDS), "all is gone", seen=lambda: scene.made("StatefulSet")
    )
    assert all(swept(scene, kind) >= count for kind, count in counts.items())
    uids = {kind: [o["metadata"]["uid"] for o in found] for kind, found in before.items()}
    assert {kind: [o["metadata"]["uid"] for o in scene.made(kind, "stays")] for kind in KINDS} == uids
    assert [scene.api.get(o["kind"], "sharing-cluster-shared", SYSTEM_NAMESPACE) for o in shared if o] == shared
    assert len(scene.topics()) == 4, "what is in Kafka stays"


@pytest.mark.slow
@pytest.mark.api
def test_the_job_of_an_audit_that_was_forced_away_is_removed_with_its_window_and_its_credentials(scene: Scene) -> None:
    scene.apply()
    scene.api.apply(audit(scene, "gone"))
    scene.wait(lambda: bool(jobs(scene)), "the audit has its Job")
    (job,) = jobs(scene)
    scene.operator.stop()
    force_away(scene, "DelayedTopicAudit", "gone")

    scene.replace_operator("--orphans-after-seconds=4")
    scene.api.apply(audit(scene, "stays"))
    scene.wait_event("OrphansRemoved", f"DelayedTopicAudit {scene.namespace}/gone is gone", job["metadata"]["name"])

    def left() -> list[str]:
        objects = [o for kind in ("Job", "Secret", "ConfigMap") for o in scene.api.list_all(kind, AUDIT_NAMESPACE)]
        return [o["metadata"]["name"] for o in objects if o["metadata"]["name"].startswith(job["metadata"]["name"])]

    scene.wait(lambda: not left(), "all of it is gone", seen=left)
    assert swept(scene, "Job") >= 1
    scene.wait(lambda: len(jobs(scene)) == 1, "the other audit runs")


def jobs(scene: Scene) -> list[Manifest]:
    found = scene.api.list_all("Job", AUDIT_NAMESPACE)
    return [job for job in found if job["metadata"]["labels"]["delayedtopics.io/namespace"] == scene.namespace]


def audit(scene: Scene, name: str) -> Manifest:
    return {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopicAudit",
        "metadata": {"name": name, "namespace": scene.namespace},
        "spec": {"delayedTopicRef": {"name": scene.topic}},
    }


class Kubernetes:
    """Has these objects, and notes what is deleted."""

    def __init__(self, *objects: Manifest) -> None:
        self.objects = {(o["kind"], o["metadata"]["name"]): o for o in objects}
        self.deleted: list[tuple[str, str]] = []
        self.told: list[str] = []

    async def list_all(self, kind: str, namespace: str, *, labels: str) -> list[Manifest]:
        return [
            o for (found, _), o in self.objects.items() if found == kind and namespace == o["metadata"]["namespace"]
        ]

    async def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self.objects.get((kind, name))

    async def delete(self, kind: str, namespace: str, name: str, **_: Any) -> None:
        self.deleted.append((kind, name))
        del self.objects[kind, name]

    async def create(self, event: Manifest) -> None:
        self.told.append(event["message"])


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
    settings = Settings(namespace=SYSTEM_NAMESPACE, audit_namespace=AUDIT_NAMESPACE, worker_image="w", audit_image="a")
    recorder = Recorder(kube)  # type: ignore[arg-type]
    return Sweeper(settings=settings, kube=kube, store=store, recorder=recorder, clock=clock)  # type: ignore[arg-type]


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
    assert look(800) == look(1399) == [], "the time begins anew"
    assert look(1400) == [("StatefulSet", name)]
    assert len(kube.told) == 1


def test_jobs_that_go_by_themselves_and_those_of_audits_that_there_are_stay() -> None:
    kept = job_name("kept", "u")
    kube = Kubernetes(
        made("Job", AUDIT_NAMESPACE, kept, audit=kept),
        made("Job", AUDIT_NAMESPACE, "over", {"ttlSecondsAfterFinished": 60}, audit="over"),
        made("Job", AUDIT_NAMESPACE, "left", audit="left"),
        made("ConfigMap", AUDIT_NAMESPACE, "half-window", audit="half"),
    )
    store, clock = Store(), Clock()
    store.put({"kind": "DelayedTopicAudit", "metadata": {"namespace": "shop", "name": "kept", "uid": "u"}})
    swept = sweeper(kube, store, clock)
    asyncio.run(swept.sweep())
    clock.now = 600
    asyncio.run(swept.sweep())
    assert set(kube.deleted) == {("Job", "left"), ("ConfigMap", "half-window")}
