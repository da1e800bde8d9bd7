"""An audit on a real API server and a real broker; the test plays the kubelet, whose pods end with a verdict."""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.paths import cache_dir
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import CommittedOffset
from delayed_topics_kafka_testing.rights import AUTHORIZER, rule
from delayed_topics_operator_testing.audits import (
    apply_audit,
    child,
    end_pod,
    report,
    status,
    wait_for_job,
    wait_said,
)
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE
from delayed_topics_operator_testing.scene import Scene

from checks.documents import blocks

pytestmark = pytest.mark.api

Manifest = dict[str, Any]


def pipeline(scene: Scene, name: str) -> subprocess.CompletedProcess[str]:
    """What docs/audit-alerts.md has a pipeline do once the audit is applied."""
    document = Path(__file__).parents[2] / "docs" / "audit-alerts.md"
    (block,) = [block for block in blocks(document) if "grep -x Verified" in block.text]
    _, commands = block.text.replace("orders-today", name).split("\n", 1)
    environment = {
        **os.environ,
        "KUBECONFIG": str(scene.api.server.kubeconfig),
        "PATH": f"{cache_dir('bin')}:{os.environ['PATH']}",
    }
    in_namespace = f'kubectl() {{ command kubectl --namespace={scene.namespace} "$@"; }}\n{commands}'
    return subprocess.run(["bash", "-ec", in_namespace], env=environment, capture_output=True, text=True, check=False)


def test_offsets_are_frozen_a_job_runs_and_its_verdict_is_on_both_resources(scene: Scene) -> None:
    scene.apply(partitions=4)
    scene.wait_until_served()
    names = TopicNames.of(scene.topic)
    assert scene.kafka.commit(names.group, {(scene.topic, 1): CommittedOffset(5, "")}) == {(scene.topic, 1): None}
    apply_audit(scene, maxLatenessMs=77, sample={"oneIn": 3})
    wait_for_job(scene)
    config_map = child(scene, "ConfigMap", "windowConfigMap")
    assert config_map is not None
    window = AuditWindow.decode(config_map["data"]["window.json"])
    assert window.topic_ids == scene.topic_ids()
    assert window.from_offsets == {
        names.front: (0,) * 3,
        names.delays: (0,) * 4,
        names.ready: (0,) * 3,
        names.dead_letter: (0,) * 3,
    }
    assert window.committed_offsets == {names.front: (0, 5, 0), names.delays: (0,) * 4}
    assert (window.partition_delays, window.delay_seconds) == ((0, 0, 0, 10), (0, 10))
    assert (window.max_lateness_ms, window.sample_one_in) == (77, 3)

    report(scene, "Violated")
    scene.wait_for("DeliveryVerified", "False", "PromiseBroken")
    found = status(scene)
    assert (found["verdict"], found["account"]) == ("Violated", {"produced": 7, "lost": 1})
    assert found["offenders"] == [{"kind": "overCap", "records": ["f:0:6"]}]
    topic = (scene.resource() or {})["status"]
    assert topic["lastViolation"]["name"] == "first"
    assert "lastAudit" not in topic, "it was a sample"
    where = ("dtaudit/first", f"--namespace={scene.namespace}")
    for condition in ("Complete", "Stalled", "Ready=False"):
        scene.api.kubectl("wait", *where, f"--for=condition={condition}", "--timeout=180s")

    def let_go() -> bool:
        audit, job, window_map = (
            scene.api.get("DelayedTopicAudit", "first", scene.namespace) or {},
            child(scene, "Job", "jobName"),
            child(scene, "ConfigMap", "windowConfigMap"),
        )
        return (
            not audit["metadata"].get("finalizers")
            and job is not None
            and job["spec"]["ttlSecondsAfterFinished"] == 86_400
            and window_map is not None
            and [o["kind"] for o in window_map["metadata"]["ownerReferences"]] == ["Job"]
        )

    scene.wait(let_go, "the Job may go, and its window with it")
    scene.wait_event("Violated")


@pytest.mark.slow
def test_a_broken_promise_stays_said_until_somebody_has_acknowledged_it(scene: Scene) -> None:
    scene.apply()
    for name, verdict in (("first", "Violated"), ("second", "Verified")):
        apply_audit(scene, name)
        wait_for_job(scene, name)
        report(scene, verdict, name)

    def said() -> Manifest:
        return scene.condition("DeliveryVerified")

    scene.wait(lambda: "second has found since: Verified" in said().get("message", ""), "the later verdict is known")
    assert (said()["status"], said()["reason"]) == ("False", "PromiseBroken")
    acknowledge = said()["message"].partition("kubectl ")[2].split()
    scene.api.kubectl(*acknowledge)
    scene.wait_for("DeliveryVerified", "True", "EveryRecordAccounted")
    assert "audit second" in said()["message"]
    labels = f'resource_name="{scene.topic}",resource_namespace="{scene.namespace}",verdict="Verified"'
    told = f"delayed_topics_operator_audit_verdict{{{labels}}} 1.0"
    scene.wait(lambda: told in scene.operator.metrics(), "the metrics have the last verdict")
    broken, kept = pipeline(scene, "first"), pipeline(scene, "second")
    assert (broken.returncode, broken.stdout.splitlines()[-1]) == (1, "counted"), broken.stderr
    assert (kept.returncode, kept.stdout.splitlines()[-2:]) == (0, ["counted", "Verified"]), kept.stderr


@pytest.mark.slow
def test_an_audit_waits_for_its_delayed_topic_and_outlives_an_operator(scene: Scene) -> None:
    apply_audit(scene)
    scene.wait(lambda: bool(status(scene).get("conditions")), "the audit says that it waits")
    assert f"DelayedTopic {scene.namespace}/{scene.topic} does not exist" in status(scene)["conditions"][0]["message"]
    scene.apply()
    wait_for_job(scene)
    scene.operator.kill()
    report(scene, "Verified")
    scene.operator.start()
    scene.wait_for("DeliveryVerified", "True", "EveryRecordAccounted")


@pytest.mark.slow
def test_an_audit_deleted_while_it_runs_leaves_nothing(scene: Scene) -> None:
    scene.apply()
    apply_audit(scene)
    wait_for_job(scene)
    job = status(scene)["jobName"].partition("/")[2]
    scene.api.kubectl("delete", "dtaudit", "first", f"--namespace={scene.namespace}", "--timeout=180s")
    scene.wait(lambda: scene.api.get("Job", job, AUDIT_NAMESPACE) is None, "the Job is gone")
    window = f"{job}-window"
    scene.wait(lambda: scene.api.get("ConfigMap", window, AUDIT_NAMESPACE) is None, "its window is gone")
    scene.wait(
        lambda: scene.api.get("Secret", f"{job}-connection", AUDIT_NAMESPACE) is None, "its credentials are gone"
    )


@pytest.mark.slow
def test_an_eviction_is_no_try_of_the_audit_and_a_failure_of_its_own_is_one(scene: Scene) -> None:
    scene.apply()
    apply_audit(scene)
    wait_for_job(scene)
    killed = {"exitCode": 137, "reason": "Error"}
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    end_pod(scene, "Failed", killed, conditions=(disrupted,))
    end_pod(scene, "Failed", {"exitCode": 1, "reason": "Error"})
    report(scene, "Verified")
    scene.wait_for("DeliveryVerified", "True", "EveryRecordAccounted")
    job = child(scene, "Job", "jobName") or {}
    assert job["status"]["failed"] == 1, "two pods ended before, and one of them was evicted"


@pytest.mark.slow
def test_an_audit_that_is_not_done_in_time_ends_and_holds_up_no_other(scene: Scene) -> None:
    scene.apply()
    apply_audit(scene, activeDeadlineSeconds=1)
    wait_said(scene, Reason.AUDIT_FAILED, "was not done in 1 seconds", "spec.activeDeadlineSeconds")
    assert status(scene)["verdict"] == "Unknown"
    apply_audit(scene, "second")
    wait_for_job(scene, "second")


@pytest.mark.slow
def test_topics_made_again_and_offsets_that_are_gone_can_not_be_judged(scene: Scene) -> None:
    scene.apply()
    scene.wait_until_served()
    names = TopicNames.of(scene.topic)
    former = scene.topic_ids()[names.ready]
    scene.kafka.delete_groups([names.group])
    apply_audit(scene)
    scene.wait(lambda: status(scene).get("verdict") == "Unknown", "the first audit has its verdict")
    assert f"{names.group} has lost its committed offsets of {names.front} [0]" in status(scene)["message"]

    scene.kafka.delete_topics([names.ready])
    scene.wait(lambda: scene.topic_ids().get(names.ready) not in (None, former), "the ready topic is made again")
    scene.wait(lambda: bool(scene.registry().topics[scene.topic].made_again), "that it was made again is noted")
    apply_audit(scene, "second")
    scene.wait(lambda: status(scene, "second").get("verdict") == "Unknown", "the second audit has its verdict")
    assert f"{names.ready} was deleted and made again" in status(scene, "second")["message"]


def test_a_window_that_ends_in_the_future_is_waited_for_and_one_that_only_begins_there_is_none(scene: Scene) -> None:
    scene.apply()
    scene.wait_until_served()
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    apply_audit(scene, window={"to": later})
    wait_said(scene, Reason.AUDIT_WAITING, "spec.window.to is", "it begins then")
    apply_audit(scene, "second", window={"from": later})
    wait_said(scene, Reason.CANNOT_SEE_EVERYTHING, "which is still to come", "begins earlier", name="second")
    assert status(scene)["conditions"][0]["status"] == "False", "the first holds up no other, and waits on"


@pytest.mark.slow
def test_a_quota_that_refuses_the_job_is_waited_for_and_a_deleted_delayed_topic_ends_the_audit(scene: Scene) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": AUDIT_NAMESPACE}}
    scene.api.kubectl("apply", "-f", "-", text_in=json.dumps({**quota, "spec": {"hard": {"count/jobs.batch": "0"}}}))
    where = ("quota", "none", f"--namespace={AUDIT_NAMESPACE}")
    try:
        scene.api.kubectl("wait", *where, "--for=jsonpath={.status.hard}", "--timeout=180s")
        scene.apply(deletionPolicy="Delete")
        apply_audit(scene)
        wait_said(scene, Reason.QUOTA_EXCEEDED, "exceeded quota: none", "tried again")
        scene.wait_event("QuotaExceeded", "exceeded quota: none")
    finally:
        scene.api.kubectl("delete", *where)
    wait_for_job(scene)

    job = status(scene)["jobName"].partition("/")[2]
    scene.api.kubectl("delete", "dtopic", scene.topic, f"--namespace={scene.namespace}", "--timeout=180s")
    name = f"{scene.namespace}/{scene.topic}"
    wait_said(scene, Reason.CANNOT_SEE_EVERYTHING, f"DelayedTopic {name} was deleted while it was audited")
    scene.wait(lambda: scene.api.get("Job", job, AUDIT_NAMESPACE) is None, "the Job is gone")
    apply_audit(scene, "second")
    wait_said(scene, Reason.AUDIT_WAITING, f"DelayedTopic {name} does not exist: make it", name="second")


@pytest.mark.slow
def test_what_kafka_forbids_and_that_it_is_away_is_waited_for_under_its_own_name(scene: Scene) -> None:
    with Broker(settings=AUTHORIZER) as broker:
        scene.api.apply(scene.cluster_connection("guarded", bootstrap=broker.bootstrap))
        scene.apply(connectionRef={"name": "guarded"})
        scene.wait_until_served()
        group = TopicNames.of(scene.topic).group
        guarded = Connection(bootstrap_servers=broker.bootstrap)
        rule(guarded, ResourceType.GROUP, group, [AclOperation.DESCRIBE])
        apply_audit(scene)
        wait_said(scene, Reason.KAFKA_REFUSED, f"reading the offsets of group {group}", "grant it to the user")
    wait_said(scene, Reason.KAFKA_UNREACHABLE, f"Kafka at {broker.bootstrap} did not answer in time")
