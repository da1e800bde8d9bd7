"""Where the audits of a cluster connection run, and what a grant allows them, on a real API server."""

from typing import Any

import pytest
from delayed_topics_core.reasons import Reason
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audits import apply_audit, child, report, status, wait_for_job, wait_said
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, SYSTEM_NAMESPACE, OperatorProcess

pytestmark = pytest.mark.api


def grant(**audits: Any) -> Manifest:
    return {"namespaceSelector": {}, "topicPrefixes": [""], "audits": audits}


def test_an_audit_runs_away_from_the_platforms_secrets_with_the_one_it_needs_for_as_long_as_it_needs_it(
    harness: OperatorHarness,
) -> None:
    harness.apply()
    harness.wait_until_served()  # otherwise the audit's Job can exist before the workers' Secret
    apply_audit(harness)
    wait_for_job(harness)
    assert harness.api.list_all("Job", SYSTEM_NAMESPACE) == []
    job = child(harness, "Job", "jobName") or {}
    assert job["metadata"]["namespace"] == AUDIT_NAMESPACE
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == "delayed-topics-audit"

    def secrets() -> list[Manifest]:
        found = harness.api.list_all("Secret", AUDIT_NAMESPACE)
        return [s for s in found if s["metadata"]["labels"]["delayedtopics.io/audit"] == job["metadata"]["name"]]

    (secret,) = secrets()
    mounted = [v["secret"]["secretName"] for v in job["spec"]["template"]["spec"]["volumes"] if "secret" in v]
    assert mounted == [secret["metadata"]["name"]]
    workers = next(
        s
        for s in harness.api.list_all("Secret", SYSTEM_NAMESPACE)
        if s["metadata"]["labels"]["delayedtopics.io/name"] == harness.topic
    )
    assert secret["data"] == workers["data"]
    assert [owner["kind"] for owner in secret["metadata"]["ownerReferences"]] == ["ConfigMap"], (
        "Kubernetes deletes the Secret with the ConfigMap if the operator cannot"
    )
    report(harness, "Verified")
    harness.wait(lambda: not secrets(), "the audit has its verdict and its Secret is deleted")
    assert child(harness, "Job", "jobName") is not None


@pytest.fixture
def with_executors(harness: OperatorHarness) -> OperatorProcess:
    """Replaces the operator by one of an installation that has enabled executors."""
    harness.operator.stop()
    harness.operator = OperatorProcess(harness.api, "--resync-seconds=3", "--audit-executors")
    harness.operator.start()
    return harness.operator


def test_executors_are_off_unless_whoever_runs_the_operator_has_turned_them_on(harness: OperatorHarness) -> None:
    harness.api.apply(harness.cluster_connection(allow=[grant(maxExecutors=4)]))
    harness.apply()
    apply_audit(harness, spark={"executors": 1})
    wait_said(harness, Reason.NOT_ALLOWED, "spec.spark.executors", "audits.executors.enabled")
    assert (status(harness)["verdict"], status(harness).get("jobName")) == ("Unknown", None)


def test_no_audit_of_a_cluster_connection_writes_to_storage_of_the_platform(harness: OperatorHarness) -> None:
    harness.apply()
    apply_audit(harness, output={"claimName": "accounts"})
    wait_said(harness, Reason.NOT_ALLOWED, f"must come with a KafkaConnection of namespace {harness.namespace}")
    assert (status(harness)["verdict"], status(harness).get("jobName")) == ("Unknown", None)


@pytest.mark.slow
def test_an_audit_takes_no_more_of_the_platform_than_the_connection_grants(
    harness: OperatorHarness, with_executors: OperatorProcess
) -> None:
    nodes = {"nodeSelectors": ["disk"], "tolerations": ["batch"]}
    harness.api.apply(harness.cluster_connection(allow=[grant(maxExecutors=1, maxCores=2, maxMemory="2g", **nodes)]))
    harness.apply()
    asked = {
        "many": ({"executors": 2}, "spec.spark.executors (2, at most 1)"),
        "wide": ({"cores": 3}, "spec.spark.cores (3, at most 2)"),
        "large": ({"memory": "2049m"}, "spec.spark.memory (2049m, at most 2g)"),
        "elsewhere": ({"nodeSelector": {"disk": "ssd", "zone": "a"}}, "spec.spark.nodeSelector[zone]"),
        "anywhere": ({"tolerations": [{"operator": "Exists"}]}, "spec.spark.tolerations[0] (every taint)"),
    }
    for name, (spark, words) in asked.items():
        apply_audit(harness, name, spark=spark)
        wait_said(
            harness, Reason.NOT_ALLOWED, "ClusterKafkaConnection default", words, "spec.allow[].audits", name=name
        )
        assert status(harness, name).get("jobName") is None
    there = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "batch", "operator": "Exists"}]}
    apply_audit(harness, spark={"executors": 1, "cores": 2, "memory": "2g", **there})
    wait_for_job(harness)
    pod = (child(harness, "Job", "jobName") or {})["spec"]["template"]["spec"]
    assert there.items() <= pod.items()
    assert pod["serviceAccountName"] == "delayed-topics-audit-driver"

    harness.api.apply(harness.cluster_connection(allow=[{**grant(), "topicPrefixes": ["other."]}]))
    apply_audit(harness, "revoked")
    report(harness, "Verified")
    wait_said(harness, Reason.NOT_ALLOWED, f"topic {harness.topic}", name="revoked")


def test_the_pod_of_an_audit_stays_on_the_platform_no_longer_than_the_connection_grants(
    harness: OperatorHarness,
) -> None:
    harness.api.apply(harness.cluster_connection(allow=[grant(maxTtlSeconds=3_600)]))
    harness.apply()
    asked: dict[str, dict[str, int]] = {"by-default": {}, "short": {"ttlSecondsAfterFinished": 60}}
    for name, kept_seconds in (("by-default", 3_600), ("short", 60)):
        apply_audit(harness, name, **asked[name])
        wait_for_job(harness, name)
        report(harness, "Verified", name)

        def granted(name: str = name, seconds: int = kept_seconds) -> bool:
            job = child(harness, "Job", "jobName", name) or {}
            return bool(job["spec"].get("ttlSecondsAfterFinished") == seconds)

        harness.wait(granted, f"Kubernetes removes the Job after {kept_seconds} seconds")
        assert status(harness, name)["verdict"] == "Verified"


@pytest.mark.slow
def test_executors_of_running_audits_are_bounded_in_sum_and_who_finds_no_room_waits(
    harness: OperatorHarness, with_executors: OperatorProcess
) -> None:
    limited = {**grant(maxExecutors=9), "quota": {"executors": 3}}
    harness.api.apply(harness.cluster_connection(allow=[limited]))
    second = f"{harness.topic}-second"
    harness.api.apply(harness.delayed_topic(), harness.delayed_topic(second))
    harness.wait_until_served()
    harness.wait_until_served(second)
    apply_audit(harness, "alone", spark={"executors": 4})
    wait_said(harness, Reason.NOT_ALLOWED, "at most 3 executors in total", "this audit alone asks for 4", name="alone")
    apply_audit(harness, spark={"executors": 2})
    wait_for_job(harness)
    apply_audit(harness, "waits", spark={"executors": 2}, delayedTopicRef={"name": second})
    wait_said(harness, Reason.GRANT_EXCEEDED, "other audits have 2 of them", "waits until 2 are free", name="waits")
    assert child(harness, "Job", "jobName", "waits") is None
    report(harness, "Verified")
    wait_for_job(harness, "waits")
