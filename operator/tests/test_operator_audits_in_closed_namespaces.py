"""Audits in a namespace that the operator may no longer enter: it concludes nothing from what it cannot see."""

import json
from collections.abc import Iterator

import pytest
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator.audits.reconcile.manifests import child_names
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audits import apply_audit, report, status, wait_for_job, wait_said
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, OperatorProcess

pytestmark = pytest.mark.api

LABEL = "delayed-topics-closed"


@pytest.fixture
def labelled(api: KubeApi, broker: Broker) -> Iterator[OperatorHarness]:
    """Yields a harness whose operator enters the namespaces with the label. The namespace of the harness has it."""
    made = OperatorHarness(api, broker, OperatorProcess(api))
    selector = json.dumps({"matchLabels": {LABEL: "own"}})
    made.operator = OperatorProcess(api, "--resync-seconds=3", f"--tenant-selector={selector}")
    with made.opened(let_in=True):
        label(made, "own")
        yield made


def label(harness: OperatorHarness, value: str | None) -> None:
    """Sets the label of the namespace; None removes it."""
    harness.patch("Namespace", harness.namespace, {"metadata": {"labels": {LABEL: value}}})


def audit(harness: OperatorHarness) -> Manifest | None:
    return harness.api.get("DelayedTopicAudit", "first", harness.namespace)


def test_an_audit_waits_while_its_namespace_has_lost_its_label_and_then_goes_on(labelled: OperatorHarness) -> None:
    mine = {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "KafkaConnection",
        "metadata": {"name": "mine", "namespace": labelled.namespace},
        "spec": {"bootstrapServers": [labelled.broker.bootstrap]},
    }
    labelled.api.apply(mine)
    labelled.apply(connectionRef={"kind": "KafkaConnection", "name": "mine"})
    apply_audit(labelled)
    wait_for_job(labelled)
    running = status(labelled)

    label(labelled, None)
    wait_said(labelled, Reason.NOT_ALLOWED, labelled.namespace, "label it as tenantNamespaceSelector requires")
    assert "verdict" not in status(labelled)
    assert status(labelled)["jobName"] == running["jobName"]

    label(labelled, "own")
    wait_said(labelled, Reason.AUDIT_RUNNING)
    report(labelled, "Verified")
    labelled.wait(
        lambda: status(labelled).get("verdict") == "Verified",
        "the audit has its verdict",
        seen=lambda: status(labelled),
    )

    job = running["jobName"].partition("/")[2]
    labelled.wait(
        lambda: labelled.api.get("Secret", f"{job}-connection", labelled.namespace) is None,
        "the Secret of the audit is deleted",
    )


@pytest.mark.slow
def test_an_audit_keeps_its_finalizer_while_its_credentials_are_in_the_former_namespace_of_audits(
    harness: OperatorHarness,
) -> None:
    harness.rights_are_taken = True  # the operator has no rights in the new namespace
    harness.apply()
    apply_audit(harness)
    wait_for_job(harness)
    job = status(harness)["jobName"].partition("/")[2]

    harness.replace_operator("--audit-namespace=elsewhere")
    wait_said(harness, Reason.NOT_ALLOWED, f"audits.namespace to {AUDIT_NAMESPACE}")
    harness.api.kubectl("delete", "dtaudit", "first", f"--namespace={harness.namespace}", "--wait=false")

    def looked_at() -> bool:
        found = audit(harness)
        return found is None or found["status"]["observedGeneration"] == found["metadata"]["generation"]

    harness.wait(looked_at, "the operator has seen that the audit is being deleted")
    assert audit(harness) is not None
    assert harness.api.get("Secret", f"{job}-connection", AUDIT_NAMESPACE) is not None

    harness.replace_operator()
    harness.wait(lambda: audit(harness) is None, "the audit is gone")

    def left() -> list[str]:
        made = child_names(job)
        return [f"{kind} {name}" for kind, name in made if harness.api.get(kind, name, AUDIT_NAMESPACE) is not None]

    harness.wait(lambda: not left(), "no object of the audit is left", seen=left)
