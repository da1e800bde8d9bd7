"""Large objects of tenants: the operator keeps only what it reads of them, and leaves everything in them as it is."""

from pathlib import Path
from typing import Any

import pytest
from delayed_topics_operator.values.annotations import FINALIZER, PLAN_ONLY
from delayed_topics_operator.values.slim import MAX_SPEC_CHARACTERS, slim
from delayed_topics_operator_testing.audits import status
from delayed_topics_operator_testing.operator_harness import OperatorHarness

LARGE_OBJECTS = 300
TEXT = "€" + "a" * 250_000
"""Nearly as much as Kubernetes allows in all annotations of an object. In Python, each character takes two bytes."""
MIB = 2**20


def kept(api_version: str, kind: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """Returns what the operator keeps of such an object."""
    return slim({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "shop", "name": "a", **metadata}})


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
