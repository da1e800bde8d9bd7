"""A simulation of one DelayedTopicAudit and its DelayedTopic: executes plans on values, and plays the part of Kubernetes."""

import copy
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, assert_never

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.delay_list import DelayList
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import Condition
from delayed_topics_core.registry import AuditedRecord
from delayed_topics_crds import Condition as StatusCondition
from delayed_topics_crds import DelayedTopic, parse, to_dict
from delayed_topics_operator.audits.reconcile.manifests import audited_uid, job_name, window_name
from delayed_topics_operator.audits.reconcile.observation import (
    AuditObservation,
    JobSettings,
    Refused,
    Unauditable,
    Waiting,
)
from delayed_topics_operator.audits.reconcile.plan import AuditAction, AuditPlan, Expire
from delayed_topics_operator.audits.reconcile.steps import reconcile
from delayed_topics_operator.connection.usage import runs
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import (
    AddFinalizer,
    ApplyChild,
    DeleteChild,
    Notice,
    RemoveFinalizer,
    WriteRegistry,
)

from delayed_topics_operator_testing.simulation import OPERATOR_NAMESPACE, Stopped, resource

AUDIT_NAMESPACE = "delayed-topics-audits"
BEGIN = datetime(2026, 1, 2, tzinfo=UTC)
WINDOW = AuditWindow(
    topic="orders",
    topic_ids={},
    partition_delays=(0, 10),
    delay_lists=(DelayList(delay_seconds=(0, 10), retry_cap=5, from_ms=0),),
    ready_partitions=1,
    least_ready_partitions=1,
    retry_cap=5,
    max_lateness_ms=1000,
    broker_skew_ms=0,
    frozen_at_ms=int(BEGIN.timestamp() * 1000),
    from_offsets={"orders": (0,)},
    roots_from_offsets={},
    committed_offsets={"orders": (10,)},
    end_offsets={"orders": (12,)},
    beginning_offsets={"orders": (0,)},
)
ENDS = {"orders.delays": (5,), "orders.ready": (9,), "orders.dead": (1,)}
CHAINABLE = replace(
    WINDOW,
    from_offsets={"orders": (0,), **dict.fromkeys(ENDS, (0,))},
    committed_offsets={"orders": (10,), "orders.delays": (4,)},
    end_offsets={"orders": (12,), **ENDS},
)
"""A window after which the next audit of its chain can begin."""
ACCOUNT = {"produced": 12, "released": 9, "dead_lettered": 1, "pending": 2, "lost": 0}


def large_window(*, partitions: int, offsets: tuple[int, int] = (900_000, 1_100_000)) -> AuditWindow:
    """Returns the window of a link of a chain. Each topic has this many partitions. `offsets`: the range of all offsets."""
    chance, names = Random(7), TopicNames.of("orders")

    def of_each(*topics: str) -> dict[str, tuple[int, ...]]:
        return {topic: tuple(chance.randint(*offsets) for _ in range(partitions)) for topic in topics}

    sources = (names.front, names.delays)
    return replace(
        WINDOW,
        partition_delays=(0, *(10,) * (partitions - 1)),
        from_offsets=of_each(*names.topics),
        roots_from_offsets=of_each(*sources),
        new_from_offsets=of_each(*names.topics[1:]),
        committed_offsets=of_each(*sources),
        end_offsets=of_each(*names.topics),
        beginning_offsets=of_each(*names.topics),
    )


def audit_resource(name: str = "orders-audit", **spec: Any) -> Manifest:
    return {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopicAudit",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "generation": 1,
            "finalizers": [],
            "creationTimestamp": BEGIN.isoformat(),
        },
        "spec": {"delayedTopicRef": {"name": "orders"}, **spec},
        "status": {},
    }


def topic_resource() -> Manifest:
    made = resource()
    made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return made


@dataclass
class AuditSimulation:
    """`job`: the Job or SparkApplication. `home`: its namespace. `fs_group`: the group that may write to a claim. `now`: the time
    of the API server. `operator_ahead`: by how much the operator's clock is ahead of it. `expired`: the time to live that the Job was
    given, in seconds."""

    raw: Manifest = field(default_factory=audit_resource)
    topic: Manifest | None = field(default_factory=topic_resource)
    frozen: AuditWindow | Waiting | Unauditable | Refused = WINDOW
    ahead: str | None = None
    home: str = AUDIT_NAMESPACE
    files: dict[str, str] | Waiting | Refused = field(default_factory=lambda: {"password": "s3cret"})
    spark_applications: bool = True
    most_local_disk_mebibytes: int | None = None
    most_ttl_seconds: int | None = None
    fs_group: int | None = 10001
    config_map: Manifest | None = None
    secret: Manifest | None = None
    job: Manifest | None = None
    pods: list[Manifest] = field(default_factory=list)
    now: datetime = BEGIN
    operator_ahead: timedelta = timedelta()
    expired: int | None = None
    audited: AuditedRecord | None = None
    done: list[AuditAction] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    @property
    def job_name(self) -> str:
        return job_name(self.raw["metadata"]["name"], self.raw["metadata"]["uid"])

    @property
    def status(self) -> Manifest:
        return dict(self.raw["status"])

    def condition(self, kind: Condition) -> StatusCondition:
        found = parse("DelayedTopicAudit", self.raw).status.conditions
        return next(c for c in found if c.type == kind)

    def topic_model(self) -> DelayedTopic:
        assert self.topic is not None
        return parse("DelayedTopic", self.topic)

    def observe(self) -> AuditObservation:
        audit = parse("DelayedTopicAudit", copy.deepcopy(self.raw))
        seen = FINALIZER in audit.metadata.finalizers or runs(self.raw)
        topic = self.topic_model() if self.topic else None
        return AuditObservation(
            now=self.now + self.operator_ahead,
            job_name=self.job_name,
            audit=audit,
            topic=topic,
            replaced=topic is not None and audited_uid(self.config_map) not in (None, topic.metadata.uid),
            job_settings=JobSettings(
                image="audit:1",
                image_pull_policy="Never",
                installation=OPERATOR_NAMESPACE,
                home=self.home,
                files=self.files,
                spark_applications=self.spark_applications,
                most_local_disk_mebibytes=self.most_local_disk_mebibytes,
                most_ttl_seconds=self.most_ttl_seconds,
                fs_group=self.fs_group,
            ),
            frozen=self.frozen,
            ahead=self.ahead,
            config_map=self.config_map if seen else None,
            secret=self.secret if seen else None,
            job=self.job if seen and self._is_looked_at(self.job) else None,
            pods=tuple(self.pods) if seen else (),
        )

    def _is_looked_at(self, job: Manifest | None) -> bool:
        return job is None or job["kind"] == "Job" or self.spark_applications

    def settle(self, *, actions: int | None = None) -> AuditPlan:
        """Runs passes until nothing is left to do. Raises Stopped after this many actions, as if the operator was killed just then."""
        for _ in range(10):
            plan = reconcile(self.observe())
            for action in plan.actions:
                if actions is not None and len(self.done) >= actions:
                    raise Stopped
                self.execute(action)
                self.done.append(action)
            if not self._say(plan) and not plan.actions:
                return plan
            self.later(1)
        raise AssertionError(f"still something to do: {plan}")

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _say(self, plan: AuditPlan) -> bool:
        if plan.topic_status is not None and self.topic is not None:
            self.topic["status"] = {**self.topic["status"], **to_dict(plan.topic_status)}
        if plan.status is None or to_dict(plan.status) == self.raw["status"]:
            return False
        self.raw["status"] = to_dict(plan.status)
        self.notices.extend(plan.notices)
        return True

    def execute(self, action: AuditAction) -> None:
        match action:
            case AddFinalizer():
                self.raw["metadata"]["finalizers"] = [FINALIZER]
            case RemoveFinalizer():
                self.raw["metadata"]["finalizers"] = []
            case ApplyChild(manifest=manifest):
                live = copy.deepcopy(manifest)
                live["metadata"]["uid"] = f"uid-{live['metadata']['name']}"
                live["metadata"]["creationTimestamp"] = self.now.isoformat()
                match action.kind:
                    case "Job" | "SparkApplication":
                        self.job = live
                    case "Secret":
                        self.secret = live
                    case _:
                        self.config_map = live
            case DeleteChild(kind="Job"):
                self.job = None
            case DeleteChild(kind="Secret"):
                self.secret = None
            case DeleteChild():
                self.config_map = None
                self.job = None if self.job is not None and self._goes_with_the_window(self.job) else self.job
            case WriteRegistry(record=record):
                assert isinstance(record, AuditedRecord)
                self.audited = record
            case Expire():
                assert self.job is not None
                assert (action.job, action.job_uid) == (self.job["metadata"]["name"], self.job["metadata"]["uid"])
                assert action.config_map == window_name(self.job_name)
                self.expired = action.seconds
            case _:
                assert_never(action)

    def _goes_with_the_window(self, child: Manifest) -> bool:
        """Whether Kubernetes would remove the object with the window."""
        owners = child["metadata"].get("ownerReferences", ())
        return any(owner["uid"] == f"uid-{window_name(self.job_name)}" for owner in owners)

    def pod(self, state: Manifest, *, container: str = "audit", **status: Any) -> None:
        """Adds the newest pod of the Job, with its container in this state."""
        name = f"{self.job_name}-{len(self.pods)}"
        at = f"2026-01-02T00:00:0{len(self.pods)}Z"
        known = {"name": container, "state": state}
        self.pods.append(
            {
                "metadata": {"name": name, "creationTimestamp": at},
                "status": {"containerStatuses": [known], **status},
            }
        )

    def job_ends(self, kind: str = "Complete", message: str = "", **condition_fields: str) -> None:
        assert self.job is not None
        condition = {"type": kind, "status": "True", "message": message, "lastTransitionTime": "2026-01-02T01:00:00Z"}
        condition |= condition_fields
        done = {"completionTime": "2026-01-02T01:00:00Z"} if kind == "Complete" else {}
        self.job["status"] = {"conditions": [condition], **done}

    def job_reports(self, verdict: str, message: str = "a sentence", **told: Any) -> None:
        self.container_reports(verdict, message, **told)
        self.job_ends()

    def container_reports(
        self,
        verdict: str,
        message: str = "a sentence",
        *,
        container: str = "audit",
        pending_since_ms: int | None = None,
        carried_sha256: str | None = None,
        unfinished: bool = False,
    ) -> None:
        body = {
            "verdict": verdict,
            "message": message,
            "account": ACCOUNT,
            "pending_since_ms": pending_since_ms,
            "carried_sha256": carried_sha256,
            "unfinished": unfinished,
            "offenders": {"over_cap": ["f:0:1"]},
        }
        ended = {"exitCode": 0, "reason": "Completed", "message": json.dumps(body)}
        self.pod({"terminated": ended}, container=container)

    def application_is(self, state: str, **told: str) -> None:
        """Sets the status of the SparkApplication, as the Spark Operator would do now."""
        assert self.job is not None
        ended = {"terminationTime": self.now.isoformat()} if state in ("COMPLETED", "FAILED") else {}
        self.job["status"] = {"applicationState": {"state": state, **told}, **ended}
