"""How many calls a resync needs: what a tenant may have filled is read in small pages, and what the operator made itself is not."""

import pytest
from delayed_topics_operator.values.labels import SELECTOR_LABELS
from delayed_topics_operator_testing.audits import apply_audit
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE

pytestmark = pytest.mark.api

OBJECTS = 45
RESYNCS = 6


def test_a_resync_reads_the_objects_of_all_workers_in_one_call_and_those_of_tenants_in_pages(
    harness: OperatorHarness,
) -> None:
    def lists(kind: str) -> float:
        return harness.operator.counted("delayedtopics_operator_kube_calls_total", verb="LIST", kind=kind)

    labels = dict(label.split("=") for label in SELECTOR_LABELS.split(","))
    for n in range(OBJECTS):
        meta = {"name": f"page-{n}", "namespace": SYSTEM_NAMESPACE, "labels": labels}
        harness.api.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": {}})
        apply_audit(harness, f"page-{n}", delayedTopicRef={"name": "none"})
    kinds = ("PodDisruptionBudget", "StatefulSet", "DelayedTopicAudit", "KafkaConnection")
    before = {kind: lists(kind) for kind in kinds}
    harness.wait(lambda: lists("StatefulSet") >= before["StatefulSet"] + RESYNCS, f"{RESYNCS} resyncs")
    calls = {kind: lists(kind) - before[kind] for kind in kinds}
    assert round(calls["PodDisruptionBudget"] / calls["StatefulSet"]) == 1
    assert round(calls["DelayedTopicAudit"] / calls["KafkaConnection"]) == 3
