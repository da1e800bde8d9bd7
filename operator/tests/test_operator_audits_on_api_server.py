"""Audits on a real API server and a real broker. The test plays the kubelet, and its pods end with a verdict."""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.paths import cache_dir
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka_testing.rights import AUTHORIZER, rule
from delayed_topics_operator.audits.reconcile.manifests import window_of
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audit_simulation import AuditSimulation, large_window
from delayed_topics_operator_testing.audits import (
    apply_audit,
    child,
    end_pod,
    report,
    status,
    wait_for_job,
    wait_said,
)
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE

from checks.documents import blocks

pytestmark = pytest.mark.api


def pipeline(harness: OperatorHarness, name: str) -> subprocess.CompletedProcess[str]:
    """Runs what docs/audit-alerts.md tells a pipeline to do after it has applied an audit."""
    document = Path(__file__).parents[2] / "docs" / "audit-alerts.md"
    (block,) = [block for block in blocks(document) if "grep -x Verified" in block.text]
    _, commands = block.text.replace("orders-today", name).split("\n", 1)
    environment = {
        **os.environ,
        "KUBECONFIG": str(harness.api.server.kubeconfig),
        "PATH": f"{cache_dir('bin')}:{os.environ['PATH']}",
    }
    in_namespace = f'kubectl() {{ command kubectl --namespace={harness.namespace} "$@"; }}\n{commands}'
    return subprocess.run(["bash", "-ec", in_namespace], env=environment, capture_output=True, text=True, check=False)


def test_offsets_are_frozen_a_job_runs_and_its_verdict_is_on_both_resources(harness: OperatorHarness) -> None:
    harness.apply(partitions=4)
    harness.wait_until_served()
    names = TopicNames.of(harness.topic)
    assert harness.kafka.commit(names.group, {(harness.topic, 1): OffsetAndMetadata(5, "")}) == {
        (harness.topic, 1): None
    }
    apply_audit(harness, maxLatenessMs=77, sample={"oneIn": 3})
    wait_for_job(harness)
    config_map = child(harness, "ConfigMap", "windowConfigMap")
    assert config_map is not None
    window = window_of(config_map)
    assert window is not None
    assert window.topic_ids == harness.topic_ids()
    assert window.from_offsets == {
        names.front: (0,) * 3,
        names.delays: (0,) * 4,
        names.ready: (0,) * 3,
        names.dead_letter: (0,) * 3,
    }
    assert window.committed_offsets == {names.front: (0, 5, 0), names.delays: (0,) * 4}
    assert (window.partition_delays, window.delay_lists[0].delay_seconds) == ((0, 10, 10, 10), (0, 10))
    assert (window.max_lateness_ms, window.sample_one_in) == (77, 3)

    report(harness, "Violated")
    harness.wait_for("DeliveryVerified", "False", "PromiseBroken")
    found = status(harness)
    assert (found["verdict"], found["account"]) == ("Violated", {"produced": 7, "lost": 1})
    assert found["offenders"] == [{"kind": "overCap", "records": ["f:0:6"]}]
    whose = {"resource_namespace": harness.namespace, "resource_name": harness.topic}
    violated = "delayedtopics_operator_delivery_violated"
    harness.wait(lambda: harness.operator.counted(violated, **whose) == 1, "the DelayedTopic has a series of its own")
    topic = (harness.resource() or {})["status"]
    assert topic["lastViolation"]["name"] == "first"
    assert "lastAudit" not in topic, "an audit of a sample is not reported as lastAudit"
    where = ("dtaudit/first", f"--namespace={harness.namespace}")
    for condition in ("Complete", "Stalled", "Ready=False"):
        harness.api.kubectl("wait", *where, f"--for=condition={condition}", "--timeout=180s")

    def let_go() -> bool:
        audit, job, window_map = (
            harness.api.get("DelayedTopicAudit", "first", harness.namespace) or {},
            child(harness, "Job", "jobName"),
            child(harness, "ConfigMap", "windowConfigMap"),
        )
        return (
            not audit["metadata"].get("finalizers")
            and job is not None
            and job["spec"]["ttlSecondsAfterFinished"] == 86_400
            and window_map is not None
            and [o["kind"] for o in window_map["metadata"]["ownerReferences"]] == ["Job"]
        )

    harness.wait(let_go, "Kubernetes may delete the Job, and its window with it")
    harness.wait_event("Violated")


def test_the_window_of_ten_thousand_partitions_fits_into_a_config_map(api: KubeApi) -> None:
    """If the API server refused the window, the audit would retry forever, and all other audits of the DelayedTopic would wait."""
    frozen = large_window(partitions=10_000)
    simulation = AuditSimulation(frozen=frozen, home="default")
    simulation.settle()
    assert simulation.job is not None
    assert simulation.config_map is not None
    del simulation.config_map["metadata"]["uid"]
    api.apply(simulation.config_map)
    assert window_of(api.get("ConfigMap", simulation.config_map["metadata"]["name"], "default")) == frozen


@pytest.mark.slow
def test_a_broken_promise_stays_said_until_somebody_has_acknowledged_it(harness: OperatorHarness) -> None:
    harness.apply()
    for name, verdict in (("first", "Violated"), ("second", "Verified")):
        apply_audit(harness, name)
        wait_for_job(harness, name)
        report(harness, verdict, name)

    def delivery_verified() -> Manifest:
        return harness.condition("DeliveryVerified")

    harness.wait(
        lambda: "the later audit second is Verified" in delivery_verified().get("message", ""),
        "the later verdict is known",
    )
    assert (delivery_verified()["status"], delivery_verified()["reason"]) == ("False", "PromiseBroken")

    def acknowledge() -> None:
        harness.api.kubectl(*delivery_verified()["message"].partition("kubectl ")[2].split())

    acknowledge()
    harness.wait_for("DeliveryVerified", "True", "EveryRecordAccounted")
    assert "audit second" in delivery_verified()["message"]
    labels = f'resource_name="{harness.topic}",resource_namespace="{harness.namespace}",verdict="Verified"'
    series = f"delayedtopics_operator_audit_verdict{{{labels}}} 1.0"
    harness.wait(lambda: series in harness.operator.metrics(), "the metrics have the last verdict")
    broken, kept = pipeline(harness, "first"), pipeline(harness, "second")
    assert (broken.returncode, broken.stdout.splitlines()[-1]) == (1, "counted"), broken.stderr
    assert (kept.returncode, kept.stdout.splitlines()[-2:]) == (0, ["counted", "Verified"]), kept.stderr

    harness.api.kubectl("delete", "dtaudit", "first", f"--namespace={harness.namespace}", "--timeout=180s")
    apply_audit(harness, "first")
    wait_for_job(harness, "first")
    report(harness, "Violated", "first")
    harness.wait_for("DeliveryVerified", "False", "PromiseBroken")
    acknowledge()
    harness.wait_for("DeliveryVerified", "Unknown", "ViolationAcknowledged")


@pytest.mark.slow
def test_an_audit_waits_for_its_delayed_topic_and_outlives_an_operator(harness: OperatorHarness) -> None:
    apply_audit(harness)
    harness.wait(lambda: bool(status(harness).get("conditions")), "the audit says that it waits")
    assert (
        f"DelayedTopic {harness.namespace}/{harness.topic} does not exist"
        in status(harness)["conditions"][0]["message"]
    )
    harness.apply()
    wait_for_job(harness)
    harness.operator.kill()
    report(harness, "Verified")
    harness.operator.start()
    harness.wait_for("DeliveryVerified", "True", "EveryRecordAccounted")


@pytest.mark.slow
def test_a_delayed_topic_is_followed_although_somebody_has_made_an_audit_with_the_name_of_the_next_scheduled_one(
    harness: OperatorHarness,
) -> None:
    harness.apply()
    harness.wait_until_served()
    made = datetime.fromisoformat((harness.resource() or {})["metadata"]["creationTimestamp"])
    minute = int(made.timestamp()) // 60 + 1
    apply_audit(harness, f"{harness.topic}-{minute}", delayedTopicRef={"name": "another"})
    harness.apply(audit={"schedule": "* * * * *"})
    harness.wait(lambda: datetime.now(UTC).timestamp() > 60 * minute + 1, "the time of the schedule has come")
    harness.apply(audit={"schedule": "* * * * *"}, retryCap=7)

    def followed() -> bool:
        found = harness.resource() or {}
        return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

    harness.wait(followed, "the edit is followed")
    harness.wait(
        lambda: harness.api.get("DelayedTopicAudit", f"{harness.topic}-{minute + 1}", harness.namespace) is not None,
        "the schedule goes on",
    )
    harness.wait_event("AuditWaiting", f"{harness.topic}-{minute} ")


@pytest.mark.slow
def test_an_audit_deleted_while_it_runs_leaves_nothing(harness: OperatorHarness) -> None:
    harness.apply()
    apply_audit(harness)
    wait_for_job(harness)
    job = status(harness)["jobName"].partition("/")[2]
    harness.api.kubectl("delete", "dtaudit", "first", f"--namespace={harness.namespace}", "--timeout=180s")
    harness.wait(lambda: harness.api.get("Job", job, AUDIT_NAMESPACE) is None, "the Job is gone")
    window = f"{job}-window"
    harness.wait(lambda: harness.api.get("ConfigMap", window, AUDIT_NAMESPACE) is None, "its window is gone")
    harness.wait(
        lambda: harness.api.get("Secret", f"{job}-connection", AUDIT_NAMESPACE) is None, "its Secret is deleted"
    )


@pytest.mark.slow
def test_an_eviction_is_no_try_of_the_audit_and_a_failure_of_its_own_is_one(harness: OperatorHarness) -> None:
    harness.apply()
    apply_audit(harness)
    wait_for_job(harness)
    killed = {"exitCode": 137, "reason": "Error"}
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    end_pod(harness, "Failed", killed, conditions=(disrupted,))
    end_pod(harness, "Failed", {"exitCode": 1, "reason": "Error"})
    report(harness, "Verified")
    harness.wait_for("DeliveryVerified", "True", "EveryRecordAccounted")
    job = child(harness, "Job", "jobName") or {}
    assert job["status"]["failed"] == 1, "of the two pods that ended before, the evicted one does not count"


@pytest.mark.slow
def test_an_audit_that_is_not_done_in_time_ends_and_holds_up_no_other(harness: OperatorHarness) -> None:
    harness.apply()
    apply_audit(harness, activeDeadlineSeconds=1)
    wait_said(harness, Reason.AUDIT_FAILED, "did not finish within 1 seconds", "spec.activeDeadlineSeconds")
    assert status(harness)["verdict"] == "Unknown"
    apply_audit(harness, "second")
    wait_for_job(harness, "second")


@pytest.mark.slow
def test_topics_made_again_and_offsets_that_are_gone_can_not_be_judged(harness: OperatorHarness) -> None:
    harness.apply()
    harness.wait_until_served()
    names = TopicNames.of(harness.topic)
    former = harness.topic_ids()[names.ready]
    harness.kafka.delete_groups([names.group])
    apply_audit(harness)
    harness.wait(lambda: status(harness).get("verdict") == "Unknown", "the first audit has its verdict")
    assert f"{names.group} has lost its committed offsets of {names.front} [0]" in status(harness)["message"]

    harness.kafka.delete_topics([names.ready])
    harness.wait(lambda: harness.topic_ids().get(names.ready) not in (None, former), "the ready topic is created again")
    harness.wait(
        lambda: bool(harness.registry().topics[harness.topic].made_again),
        "the registry records that the topic was created again",
    )
    apply_audit(harness, "second")
    harness.wait(lambda: status(harness, "second").get("verdict") == "Unknown", "the second audit has its verdict")
    assert f"{names.ready} was deleted and created again" in status(harness, "second")["message"]


def test_a_window_that_ends_in_the_future_is_waited_for_and_one_that_only_begins_there_is_none(
    harness: OperatorHarness,
) -> None:
    harness.apply()
    harness.wait_until_served()
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    apply_audit(harness, window={"to": later})
    wait_said(harness, Reason.AUDIT_WAITING, "spec.window.to is", "The audit waits until then")
    apply_audit(harness, "second", window={"from": later})
    wait_said(
        harness, Reason.CANNOT_SEE_EVERYTHING, "which is in the future", "an earlier spec.window.from", name="second"
    )
    assert status(harness)["conditions"][0]["status"] == "False", "the first audit holds up no other, and still waits"


@pytest.mark.slow
def test_a_quota_that_refuses_the_job_is_waited_for_and_a_deleted_delayed_topic_ends_the_audit(
    harness: OperatorHarness,
) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": AUDIT_NAMESPACE}}
    harness.api.kubectl("apply", "-f", "-", text_in=json.dumps({**quota, "spec": {"hard": {"count/jobs.batch": "0"}}}))
    where = ("quota", "none", f"--namespace={AUDIT_NAMESPACE}")
    try:
        harness.api.kubectl("wait", *where, "--for=jsonpath={.status.hard}", "--timeout=180s")
        harness.apply(deletionPolicy="Delete")
        apply_audit(harness)
        wait_said(harness, Reason.QUOTA_EXCEEDED, "exceeded quota: none", "The operator tries again")
        harness.wait_event("QuotaExceeded", "exceeded quota: none")
    finally:
        harness.api.kubectl("delete", *where)
    wait_for_job(harness)

    job = status(harness)["jobName"].partition("/")[2]
    harness.api.kubectl("delete", "dtopic", harness.topic, f"--namespace={harness.namespace}", "--timeout=180s")
    name = f"{harness.namespace}/{harness.topic}"
    wait_said(harness, Reason.CANNOT_SEE_EVERYTHING, f"DelayedTopic {name} was deleted while it was audited")
    harness.wait(lambda: harness.api.get("Job", job, AUDIT_NAMESPACE) is None, "the Job is gone")
    apply_audit(harness, "second")
    wait_said(harness, Reason.AUDIT_WAITING, f"DelayedTopic {name} does not exist. Either create it", name="second")


@pytest.mark.slow
def test_what_kafka_forbids_and_that_it_is_away_is_waited_for_under_its_own_name(harness: OperatorHarness) -> None:
    with Broker(settings=AUTHORIZER) as broker:
        harness.api.apply(harness.cluster_connection("guarded", bootstrap=broker.bootstrap))
        harness.apply(connectionRef={"name": "guarded"})
        harness.wait_until_served()
        group = TopicNames.of(harness.topic).group
        guarded = Connection(bootstrap_servers=broker.bootstrap)
        rule(guarded, ResourceType.GROUP, group, [AclOperation.DESCRIBE])
        apply_audit(harness)
        wait_said(
            harness, Reason.KAFKA_REFUSED, f"reading the offsets of group {group}", "Either grant this to the user"
        )
    wait_said(harness, Reason.KAFKA_UNREACHABLE, f"Kafka at {broker.bootstrap} did not answer in time")
