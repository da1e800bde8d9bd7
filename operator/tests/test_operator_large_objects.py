"""Large objects of tenants: the operator keeps only what it reads of them, and leaves everything in them as it is."""

import json
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_operator.values.annotations import FINALIZER, PLAN_ONLY
from delayed_topics_operator.values.pods import brief, obstacle_of_events
from delayed_topics_operator.values.slim import MAX_SPEC_CHARACTERS, TOO_LARGE, bounded, slim
from delayed_topics_operator.workers.reconcile.drift import drifted
from delayed_topics_operator_testing.audits import status
from delayed_topics_operator_testing.operator_harness import OperatorHarness

LARGE_OBJECTS = 300
TEXT = "€" + "a" * 250_000
"""Nearly as much as Kubernetes allows in all annotations of an object. In Python, each character takes two bytes."""
MANY_FINALIZERS = [f"{n:0200d}.example.com/{n:063d}" for n in range(1000)]
MIB = 2**20


def kept(api_version: str, kind: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """Returns what the operator keeps of such an object."""
    return slim({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "shop", "name": "a", **metadata}})


def strange_owner(number: int) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Unknown", "name": "a", "uid": f"{number}"}


MANY_OWNERS = [strange_owner(number) for number in range(4000)]


def managed(manager: str, **further: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", **further}


def test_of_annotations_and_managed_fields_only_those_of_the_operator_are_kept() -> None:
    fields: dict[str, Any] = {
        "f:status": {"f:conditions": {'k:{"type":"Ready"}': {"f:reason": {}}}, "f:topic": {}},
        "f:other": {},
    }
    mine = managed("delayed-topics-operator", subresource="status", fieldsV1=fields)
    metadata = {
        "annotations": {PLAN_ONLY: "true", "delayedtopics.io/large": "a" * 5000, "kubectl/last-applied": "{}"},
        "labels": {"team": "shop"},
        "managedFields": [managed("kubectl", fieldsV1={"f:spec": {}}), mine],
    }
    found = kept("delayedtopics.io/v1alpha1", "DelayedTopic", metadata)["metadata"]
    assert found["annotations"] == {PLAN_ONLY: "true"}
    assert "labels" not in found
    (entry,) = found["managedFields"]
    assert entry["fieldsV1"] == {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {}}, "f:topic": {}}}
    assert kept("v1", "Namespace", metadata)["metadata"]["labels"] == {"team": "shop"}, "grants select by these"


def test_of_finalizers_and_owners_few_are_kept_and_those_of_the_operator_among_them() -> None:
    ours = {"apiVersion": "delayedtopics.io/v1alpha1", "kind": "DelayedTopic", "name": "orders", "uid": "u"}
    few = {"finalizers": ["example.com/a", FINALIZER], "ownerReferences": [strange_owner(1), ours]}
    found = kept("delayedtopics.io/v1alpha1", "DelayedTopicAudit", few)["metadata"]
    assert found["finalizers"] == few["finalizers"]
    assert found["ownerReferences"] == [ours, strange_owner(1)]
    many = {"finalizers": [*MANY_FINALIZERS, FINALIZER], "ownerReferences": [*MANY_OWNERS, ours]}
    found = kept("delayedtopics.io/v1alpha1", "DelayedTopicAudit", many)["metadata"]
    assert found["finalizers"] == [TOO_LARGE, FINALIZER]
    assert found["ownerReferences"][0] == ours
    assert len(json.dumps(found)) < 20_000


WANTED: dict[str, dict[str, Any]] = {
    "ConfigMap": {"data": {"layout.json": "b" * 10_000}},
    "Service": {"spec": {"selector": {"app": "a"}, "ports": [{"name": "http", "port": 8080}]}},
    "StatefulSet": {"spec": {"replicas": 3, "template": {"metadata": {"annotations": {"a": "b"}}, "spec": {}}}},
}


@pytest.mark.parametrize("kind", WANTED)
@pytest.mark.parametrize("text", ["a" * 1_000_000, "€" * 330_000], ids=["ascii", "euros"])
def test_a_large_object_that_looks_like_one_of_the_operator_is_kept_without_what_is_large(kind: str, text: str) -> None:
    """Who may create ConfigMaps in a namespace of a tenant can give them the labels of those of workers."""
    wanted = {"apiVersion": "v1", "kind": kind, "metadata": {"labels": {"app.kubernetes.io/name": "x"}}, **WANTED[kind]}
    made = {**wanted, "metadata": {**wanted["metadata"], "namespace": "shop", "name": "a", "uid": "u"}}
    assert bounded(slim(made)) == made
    labels = {**wanted["metadata"]["labels"], **{f"example.com/{n}": "a" * 60 for n in range(10_000)}}
    filled = bounded(slim({**made, "metadata": {**made["metadata"], "labels": labels}}))
    assert len(json.dumps(filled)) < 20_000
    field, contents = next(iter(WANTED[kind].items()))
    filled = bounded(slim({**made, field: {**contents, "template": {"a": text}, "layout.json": text}}))
    assert len(json.dumps(filled)) < 20_000
    assert (drifted(wanted, filled) is None) == (kind == "Service"), "what is kept of a Service is all that is wanted"
    assert kind != "StatefulSet" or filled["spec"]["template"]["spec"]["containers"] == []


def test_a_secret_with_a_bundle_of_certificates_is_no_large_object() -> None:
    bundle = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"ca.crt": "a" * 300_000}}
    assert bounded(slim(bundle)) == bundle
    assert bounded(slim({**bundle, "data": {"ca.crt": "a" * 1_000_000}}))["data"] == {}


def test_a_namespace_keeps_its_labels_however_many_there_are() -> None:
    labels = {f"example.com/{n}": "a" * 60 for n in range(10_000)}
    named = {"kind": "Namespace", "metadata": {"name": "a", "labels": labels}}
    assert bounded(slim(named)) == named


def test_of_events_about_pods_only_words_are_kept() -> None:
    about = {"kind": "Pod", "name": "a-0", "fieldPath": "x" * 100_000}
    event = {"reason": "FailedMount", "message": "m" * 1_000_000, "note": "n" * 100_000, "involvedObject": about}
    assert len(json.dumps(brief(event))) < 5_000
    assert obstacle_of_events([brief(event)]) is not None


@pytest.mark.slow
@pytest.mark.api
def test_large_annotations_of_a_tenant_do_not_fill_the_memory_of_the_operator(harness: OperatorHarness) -> None:
    names = [f"large-{n}" for n in range(LARGE_OBJECTS)]
    before = peak_bytes(harness.operator.pid)
    for name in names:
        metadata = {"name": name, "namespace": harness.namespace, "annotations": {"example.com/text": TEXT}}
        audit = {"apiVersion": "delayedtopics.io/v1alpha1", "kind": "DelayedTopicAudit", "metadata": metadata}
        harness.api.apply({**audit, "spec": {"delayedTopicRef": {"name": "none"}}})
    harness.wait(lambda: all("conditions" in status(harness, name) for name in names), "the operator has seen them all")
    harness.operator.stop()
    harness.operator.start()
    harness.apply()
    harness.wait_until_served()
    assert peak_bytes(harness.operator.pid) - before < 300 * MIB, "the chart gives the operator 512 MiB"


def peak_bytes(pid: int) -> int:
    """Returns the most memory that the process ever had."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.mark.api
def test_what_a_user_writes_into_metadata_stays_whatever_the_operator_writes(harness: OperatorHarness) -> None:
    written = harness.delayed_topic(annotations={"example.com/note": "mine", "delayedtopics.io/note": "a" * 5000})
    written["metadata"] |= {"labels": {"team": "shop"}, "finalizers": ["example.com/finalizer"]}
    harness.api.apply(written)
    harness.wait_until_ready()
    found = (harness.resource() or {})["metadata"]
    assert written["metadata"]["annotations"].items() <= found["annotations"].items()
    assert found["labels"] == {"team": "shop"}
    assert set(found["finalizers"]) == {"example.com/finalizer", FINALIZER}
    assert {entry["manager"] for entry in found["managedFields"]} >= {"test", "delayed-topics-operator"}
    harness.patch("DelayedTopic", harness.topic, {"metadata": {"finalizers": [FINALIZER]}}, namespace=harness.namespace)
    harness.delete()


@pytest.mark.api
def test_a_spec_that_is_too_large_is_said_to_be_and_the_resource_can_be_deleted(harness: OperatorHarness) -> None:
    harness.apply(deletionPolicy="Delete")
    harness.wait_until_served()
    many = {f"example.com/note-{n}": "a" * 4000 for n in range(MAX_SPEC_CHARACTERS // 4000 + 1)}
    harness.apply(deletionPolicy="Delete", workers={"template": {"annotations": many}})
    harness.wait_for("Ready", "False", "SpecInvalid")
    assert f"spec has more than {MAX_SPEC_CHARACTERS} characters" in harness.condition("Ready")["message"]
    harness.delete()
    assert harness.topics() == {}


@pytest.mark.api
def test_finalizers_of_others_stay_however_many_there_are(harness: OperatorHarness) -> None:
    written = harness.delayed_topic()
    written["metadata"]["finalizers"] = MANY_FINALIZERS
    harness.api.apply(written)
    harness.wait_until_ready()
    assert sorted(finalizers(harness)) == sorted([*MANY_FINALIZERS, FINALIZER])
    harness.api.delete("DelayedTopic", harness.topic, harness.namespace)
    harness.wait(lambda: FINALIZER not in finalizers(harness), "the operator has let go of the resource")
    assert sorted(finalizers(harness)) == sorted(MANY_FINALIZERS)
    harness.patch("DelayedTopic", harness.topic, {"metadata": {"finalizers": None}}, namespace=harness.namespace)


def finalizers(harness: OperatorHarness) -> list[str]:
    return list((harness.resource() or {})["metadata"].get("finalizers", ()))
