"""The life of a DelayedTopicAudit: its offsets are frozen, its Job runs, its verdict is reported; and what may happen in between."""

import base64
import json

import pytest
from delayed_topics_core.carried import Carried
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import AuditedRecord
from delayed_topics_operator.audits.reconcile.manifests import window_of
from delayed_topics_operator.audits.reconcile.observation import Unauditable, Waiting
from delayed_topics_operator.audits.reconcile.plan import Expire
from delayed_topics_operator.audits.reconcile.steps import refused, unseen
from delayed_topics_operator.errors import Forbidden
from delayed_topics_operator_testing.audit_simulation import (
    AUDIT_NAMESPACE,
    CHAINABLE,
    ENDS,
    WINDOW,
    AuditSimulation,
    audit_resource,
    topic_resource,
)
from delayed_topics_operator_testing.simulation import Stopped


def running(simulation: AuditSimulation | None = None) -> AuditSimulation:
    simulation = simulation or AuditSimulation()
    simulation.settle()
    assert simulation.job is not None
    return simulation


def test_a_window_is_frozen_and_a_job_reads_it() -> None:
    simulation = running()
    assert simulation.config_map is not None
    assert window_of(simulation.config_map) == WINDOW
    assert simulation.config_map["immutable"] is True
    assert simulation.job is not None
    pod = simulation.job["spec"]["template"]["spec"]
    sources = {volume["name"]: volume for volume in pod["volumes"]}
    assert sources["window"]["configMap"]["name"] == simulation.config_map["metadata"]["name"]
    assert simulation.secret is not None
    assert sources["connection"]["secret"]["secretName"] == simulation.secret["metadata"]["name"]
    assert base64.b64decode(simulation.secret["data"]["password"]) == b"s3cret"
    complete = simulation.condition(Condition.COMPLETE)
    assert (complete.status, complete.reason) == ("False", Reason.AUDIT_RUNNING)
    assert simulation.status["startedAt"] == "2026-01-02T00:00:00Z"
    assert simulation.status["jobName"] == f"{AUDIT_NAMESPACE}/{simulation.job_name}"


def test_the_pod_is_restricted_and_has_what_spec_spark_says() -> None:
    simulation = running(AuditSimulation(raw=audit_resource(spark={"cores": 4, "memory": "2g"})))
    assert simulation.job is not None
    assert simulation.job["spec"]["backoffLimit"] == 2
    assert "ttlSecondsAfterFinished" not in simulation.job["spec"]
    pod = simulation.job["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["resources"]["limits"] == {"memory": "2560Mi"}
    assert container["resources"]["requests"] == {"cpu": "400m", "memory": "2560Mi", "ephemeral-storage": "1024Mi"}
    assert {"--master=local[4]", "--memory=2g", "--result=/dev/termination-log"} <= set(container["args"])
    assert all("value" not in variable or variable["value"] == "/tmp" for variable in container["env"])


@pytest.mark.parametrize(
    ("verdict", "truth", "reason"),
    [
        ("Verified", "True", Reason.EVERY_RECORD_ACCOUNTED),
        ("Violated", "False", Reason.PROMISE_BROKEN),
        ("Unknown", "Unknown", Reason.CANNOT_SEE_EVERYTHING),
    ],
)
def test_the_verdict_goes_to_the_audit_and_to_its_delayed_topic(verdict: str, truth: str, reason: Reason) -> None:
    simulation = running(AuditSimulation(raw=audit_resource(ttlSecondsAfterFinished=0)))
    simulation.job_reports(verdict)
    simulation.settle()
    assert (simulation.status["verdict"], simulation.status["message"]) == (verdict, "a sentence")
    assert simulation.status["account"] == {"produced": 12, "released": 9, "deadLettered": 1, "pending": 2, "lost": 0}
    assert simulation.status["finishedAt"] == "2026-01-02T01:00:00Z"
    verified = simulation.condition(Condition.VERIFIED)
    assert (verified.status, verified.reason) == (truth, reason)
    assert simulation.condition(Condition.COMPLETE).status == "True"
    assert simulation.status["offenders"] == [{"kind": "overCap", "records": ["f:0:1"]}]
    topic = simulation.topic_model().status
    last = topic.last_audit
    assert last is not None
    assert (last.name, last.verdict, last.reason, last.message) == ("orders-audit", verdict, reason, "a sentence")
    assert (topic.last_violation is not None) == (verdict == "Violated")
    event_type = "Normal" if verdict == "Verified" else "Warning"
    assert [n.type for n in simulation.notices if n.reason == verdict] == [event_type]


def test_the_job_may_go_only_after_its_verdict_was_read() -> None:
    simulation = running(AuditSimulation(raw=audit_resource(ttlSecondsAfterFinished=60)))
    assert not any(isinstance(action, Expire) for action in simulation.done)
    simulation.job_reports("Verified")
    simulation.settle()
    assert (simulation.expired, simulation.secret) == (60, None), "the Job is kept, and its Secret is deleted"
    assert simulation.raw["metadata"]["finalizers"] == []
    done = len(simulation.done)
    simulation.settle()
    assert len(simulation.done) == done


@pytest.mark.parametrize("boundary", range(8))
def test_an_operator_killed_between_any_two_steps_ends_where_an_undisturbed_one_does(boundary: int) -> None:
    undisturbed = running()
    undisturbed.job_reports("Verified")
    undisturbed.settle()
    assert len(undisturbed.done) == 7
    simulation = AuditSimulation()
    try:
        simulation.settle(actions=boundary)
        simulation.job_reports("Verified")
        simulation.settle(actions=boundary)
    except Stopped:
        simulation.settle()
        if not simulation.pods:
            simulation.job_reports("Verified")
        simulation.settle()
    assert (simulation.status["verdict"], simulation.expired) == ("Verified", undisturbed.expired)
    assert simulation.raw["metadata"]["finalizers"] == []
    assert simulation.topic_model().status.last_audit is not None


def test_an_audit_that_goes_on_from_the_last_notes_where_it_ended_before_it_says_its_verdict() -> None:
    simulation = running(AuditSimulation(raw=audit_resource(window={"sinceLast": True}), frozen=CHAINABLE))
    simulation.job_reports("Violated", pending_since_ms=77, carried_sha256="ab")
    with pytest.raises(Stopped):
        simulation.settle(actions=len(simulation.done))
    assert "verdict" not in simulation.status, "the registry must have the link before people see its verdict"
    simulation.settle()
    assert simulation.audited == AuditedRecord(
        topic="orders",
        ids={},
        offsets={"orders": (10,), "orders.delays": (4,)},
        since_ms=77,
        ready_partitions=1,
        ends=ENDS,
        carried=Carried(folder=simulation.job_name, sha256="ab"),
    )


def test_records_that_a_later_audit_can_judge_better_stay_in_the_window_of_the_next_link() -> None:
    """The next link once began behind them, and said `Verified`."""
    simulation = running(AuditSimulation(raw=audit_resource(window={"sinceLast": True}), frozen=CHAINABLE))
    simulation.job_reports("Unknown", unfinished=True)
    simulation.settle()
    assert (simulation.status["verdict"], simulation.audited) == ("Unknown", None)


def test_an_audit_of_everything_is_no_link_of_the_chain() -> None:
    simulation = running(AuditSimulation(frozen=CHAINABLE))
    simulation.job_reports("Verified")
    simulation.settle()
    assert simulation.audited is None


def test_the_verdict_on_a_deleted_delayed_topic_is_not_said_of_its_successor() -> None:
    simulation = running()
    simulation.job_reports("Verified")
    successor = topic_resource()
    successor["metadata"]["creationTimestamp"] = "2026-01-02T00:30:00Z"
    simulation.topic = successor
    simulation.settle()
    assert simulation.status["verdict"] == "Verified"
    assert simulation.topic_model().status.last_audit is None


def test_an_audit_waits_for_what_it_needs_and_says_so() -> None:
    message = "Kafka does not answer"
    simulation = AuditSimulation(frozen=Waiting(reason=Reason.KAFKA_UNREACHABLE, message=message))
    plan = simulation.settle()
    complete = simulation.condition(Condition.COMPLETE)
    assert (complete.status, complete.reason, complete.message) == ("False", Reason.KAFKA_UNREACHABLE, message)
    assert plan.wake_seconds is not None
    assert simulation.done == []
    simulation.frozen = WINDOW
    running(simulation)


def test_a_connection_that_is_lost_before_the_job_begins_is_waited_for() -> None:
    lost = Waiting(reason=Reason.CREDENTIALS_MISSING, message="Secret kafka does not exist")
    simulation = AuditSimulation(files=lost)
    simulation.settle()
    assert simulation.condition(Condition.COMPLETE).message == "Secret kafka does not exist"
    assert (simulation.job, simulation.secret) == (None, None)
    simulation.files = {"password": "s3cret"}
    assert running(simulation).secret is not None


def test_an_audit_of_nothing_waits_for_it_to_come() -> None:
    simulation = AuditSimulation(topic=None)
    simulation.settle()
    assert "DelayedTopic shop/orders does not exist" in simulation.condition(Condition.COMPLETE).message
    simulation.topic = topic_resource()
    running(simulation)


def test_what_no_audit_can_see_is_unknown_at_once() -> None:
    simulation = AuditSimulation(frozen=Unauditable(message="topic orders.ready was deleted and created again"))
    simulation.settle()
    assert simulation.status["verdict"] == "Unknown"
    assert simulation.done == []
    last = simulation.topic_model().status.last_audit
    assert last is not None
    assert last.verdict == "Unknown"


def failed(simulation: AuditSimulation) -> str:
    simulation.job_ends("Failed", "Job has reached the specified backoff limit")
    simulation.settle()
    assert simulation.status["verdict"] == "Unknown"
    assert simulation.condition(Condition.VERIFIED).reason == Reason.AUDIT_FAILED
    assert simulation.expired is not None
    return str(simulation.status["message"])


def test_a_job_that_is_out_of_memory_says_what_to_do() -> None:
    simulation = running()
    simulation.pod({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    assert "with a higher spec.spark.memory" in failed(simulation)


def test_a_job_that_found_no_verdict_says_why() -> None:
    simulation = running()
    body = json.dumps({"verdict": "Unknown", "message": "Kafka at k:9092 did not answer in time"})
    simulation.pod({"terminated": {"exitCode": 1, "reason": "Error", "message": body}})
    assert failed(simulation) == "Kafka at k:9092 did not answer in time"


def test_a_job_that_crashed_names_the_pod_with_the_logs() -> None:
    simulation = running()
    simulation.pod({"terminated": {"exitCode": 2, "reason": "Error", "message": "not JSON"}})
    assert failed(simulation) == f"the container ended with exit code 2. See the logs of pod {simulation.job_name}-0"


def test_an_evicted_pod_is_told() -> None:
    simulation = running()
    simulation.pod({}, reason="Evicted", message="The node was low on resource: ephemeral-storage.")
    assert "low on resource: ephemeral-storage" in failed(simulation)


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        ({"running": {}}, "spec.spark.cores or spec.spark.executors"),
        ({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, "over, it was waiting: pod"),
    ],
)
def test_a_job_that_ran_out_of_time_says_how_much_it_had_and_whether_it_only_waited(
    pod: dict[str, dict[str, str]], words: str
) -> None:
    simulation = running(AuditSimulation(raw=audit_resource(activeDeadlineSeconds=60)))
    simulation.pod(pod)
    simulation.settle()
    simulation.pods.clear()
    simulation.job_ends("Failed", "Job was active longer than specified deadline", reason="DeadlineExceeded")
    simulation.settle()
    message = str(simulation.status["message"])
    assert "did not finish within 60 seconds. Create a new DelayedTopicAudit" in message
    assert words in message
    assert ("no such image" in message) == ("waiting" in pod)


def test_a_job_without_pods_says_what_kubernetes_says() -> None:
    assert failed(running()) == "Job has reached the specified backoff limit"


def test_a_verdict_that_is_gone_with_its_pod_is_unknown() -> None:
    simulation = running()
    simulation.job_ends()
    simulation.settle()
    assert (simulation.status["verdict"], "its pod was removed" in simulation.status["message"]) == ("Unknown", True)


def test_a_later_pod_counts() -> None:
    simulation = running()
    simulation.pod({"terminated": {"exitCode": 1, "reason": "Error", "message": ""}})
    simulation.job_reports("Verified")
    simulation.settle()
    assert simulation.status["verdict"] == "Verified"


def test_a_pod_that_waits_for_somebody_says_what_for_and_goes_on() -> None:
    simulation = running()
    simulation.pod({"waiting": {"reason": "ErrImageNeverPull", "message": "image audit:1 is not present"}})
    simulation.settle()
    complete = simulation.condition(Condition.COMPLETE)
    assert (complete.status, complete.reason) == ("False", Reason.AUDIT_WAITING)
    assert "ErrImageNeverPull: image audit:1 is not present. Correct the chart values images.audit" in complete.message
    simulation.pods.clear()
    simulation.pod({}, conditions=[{"type": "PodScheduled", "status": "False", "message": "Insufficient memory."}])
    simulation.settle()
    complete = simulation.condition(Condition.COMPLETE)
    assert "Insufficient memory. Either lower spec.spark in a new DelayedTopicAudit, or add room" in complete.message
    simulation.pods.clear()
    simulation.job_reports("Verified")
    simulation.settle()
    assert simulation.status["verdict"] == "Verified"


def test_a_job_that_gets_no_pod_points_to_its_events() -> None:
    simulation = running()
    assert simulation.job is not None
    simulation.job["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    simulation.later(60)
    simulation.settle()
    advice = f"kubectl describe job {simulation.job_name} -n {AUDIT_NAMESPACE}"
    assert advice in simulation.condition(Condition.COMPLETE).message


def test_a_job_that_somebody_removed_is_no_verdict() -> None:
    simulation = running()
    simulation.job = None
    simulation.settle()
    assert "was removed before it ended" in simulation.status["message"]
    assert simulation.config_map is None
    assert simulation.raw["metadata"]["finalizers"] == []


def test_deleted_while_it_runs_it_takes_its_job_along() -> None:
    simulation = running()
    simulation.raw["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    simulation.settle()
    assert (simulation.job, simulation.config_map, simulation.raw["metadata"]["finalizers"]) == (None, None, [])


def test_a_delayed_topic_that_is_deleted_meanwhile_ends_the_audit() -> None:
    simulation = running()
    simulation.topic = None
    simulation.settle()
    assert "was deleted while it was audited" in simulation.status["message"]
    assert simulation.job is None


def test_in_a_tenants_own_namespace_kubernetes_cleans_up_by_itself() -> None:
    simulation = running(AuditSimulation(home="shop"))
    assert simulation.job is not None
    (owner,) = simulation.job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("DelayedTopicAudit", "orders-audit")
    assert "serviceAccountName" not in simulation.job["spec"]["template"]["spec"]
    elsewhere = running().job
    assert elsewhere is not None
    assert "ownerReferences" not in elsewhere["metadata"]


def test_an_audit_made_again_under_its_name_gets_a_job_of_its_own() -> None:
    again = audit_resource()
    again["metadata"]["uid"] = "another"
    assert AuditSimulation(raw=again).job_name != AuditSimulation().job_name


@pytest.mark.parametrize("name", ["a" * 253, "9.lives", "with.dots-" + "x" * 60])
def test_any_name_makes_a_legal_job_name(name: str) -> None:
    made = AuditSimulation(raw=audit_resource(name)).job_name
    assert len(made) <= 54
    assert made[0].isalpha()
    assert made.replace("-", "").isalnum()


def test_what_the_api_server_refuses_is_said_in_the_condition() -> None:
    simulation = AuditSimulation()
    plan = refused(simulation.observe(), Forbidden("the API server refused APPLY Job x (403): not for you", status=403))
    assert plan.status is not None
    condition = plan.status.conditions[0]
    assert condition.reason == Reason.KUBERNETES_REFUSED
    assert condition.message == "the API server refused APPLY Job x (403): not for you. The operator tries again"
    assert [(n.type, n.reason) for n in plan.notices] == [("Warning", Reason.KUBERNETES_REFUSED)]


def test_a_refusal_after_the_verdict_takes_nothing_of_it_back() -> None:
    simulation = running()
    simulation.job_reports("Verified")
    with pytest.raises(Stopped):
        simulation.settle(actions=len(simulation.done))
    error = Forbidden("the API server refused MERGE Job x (403)", status=403)
    assert simulation.status["verdict"] == "Verified"
    not_made = refused(simulation.observe(), error)
    not_seen = unseen(simulation.raw, Reason.KUBERNETES_REFUSED, "no", simulation.now)
    for plan in (not_made, not_seen):
        assert plan.status is None


def test_an_audit_that_could_not_be_looked_at_says_so_and_keeps_what_was_known_of_it() -> None:
    simulation = running()
    plan = unseen(simulation.raw, Reason.KUBERNETES_REFUSED, "the API server refused GET Job x (403)", simulation.now)
    assert plan.status is not None
    assert plan.status.job_name == f"{AUDIT_NAMESPACE}/{simulation.job_name}"
    assert {(c.type, c.status, c.reason) for c in plan.status.conditions} == {
        (Condition.READY, "False", Reason.KUBERNETES_REFUSED),
        (Condition.COMPLETE, "False", Reason.KUBERNETES_REFUSED),
        (Condition.VERIFIED, "Unknown", Reason.KUBERNETES_REFUSED),
    }
