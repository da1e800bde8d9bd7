"""The operator with CRDs of a newer and of an older version, on a real API server: what does not fit is named, with what to do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
from delayed_topics_crds import KINDS
from delayed_topics_operator_testing.audits import apply_audit, wait_for_job
from delayed_topics_operator_testing.operator_harness import OperatorHarness

pytestmark = pytest.mark.api


@contextmanager
def crds_with(
    harness: OperatorHarness, change: Callable[[dict[str, Any]], object], *, of: tuple[str, ...]
) -> Iterator[None]:
    """Changes the schemas of these kinds: `change` gets the properties of the whole object."""
    before = {}
    for kind in of:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{KINDS[kind].plural}.delayedtopics.io"
        crd = harness.api.server.call("GET", path)
        before[path] = crd["spec"]
        changed = deepcopy(crd)
        change(changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])
        harness.api.server.call("PUT", path, changed)
    try:
        yield
    finally:
        for path, spec in before.items():
            harness.api.server.call("PUT", path, {**harness.api.server.call("GET", path), "spec": spec})


def test_fields_of_newer_crds_are_named_and_every_resource_is_served_without_them(harness: OperatorHarness) -> None:
    def add(properties: dict[str, Any]) -> None:
        properties["spec"]["properties"]["shiny"] = {"type": "boolean", "default": True}

    kinds = ("ClusterKafkaConnection", "DelayedTopic", "DelayedTopicAudit")
    harness.operator.stop()
    harness.apply()
    apply_audit(harness)
    with crds_with(harness, add, of=kinds):
        harness.wait(
            lambda: all("shiny" in found["spec"] for kind in kinds for found in harness.api.list_all(kind)),
            "every resource has the new field",
        )
        harness.operator.start()
        harness.wait_until_served()
        wait_for_job(harness)
        for namespace in (harness.namespace, "default"):
            harness.wait_event("FieldsIgnored", "spec.shiny", "Upgrade the operator", namespace=namespace)


def test_with_older_crds_it_is_said_that_they_must_be_applied_first(harness: OperatorHarness) -> None:
    def remove(properties: dict[str, Any]) -> None:
        del properties["status"]["properties"]["produceTo"]

    with crds_with(harness, remove, of=("DelayedTopic",)):
        harness.apply()
        harness.wait_event("KubernetesRefused", ".status.produceTo", "Apply the CRDs of this version")
    harness.wait_until_served()
