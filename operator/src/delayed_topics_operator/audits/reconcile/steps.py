"""Decides about an audit: freeze, run, read the verdict, report it, release everything. Pure.

Each step leaves a mark before the next one begins: the ConfigMap, the Job or SparkApplication, the verdict in the status, the verdict on
the DelayedTopic. So an operator that was killed in between goes on where it was, and reads a verdict before Kubernetes removes the Job.
"""

from dataclasses import replace
from datetime import UTC, datetime

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.carried import Carried
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import Account, DelayedTopicAuditStatus, DelayedTopicStatus, LastAudit, LastViolation
from delayed_topics_crds import Condition as StatusCondition
from delayed_topics_crds.audit import MAX_OFFENDERS, Offenders
from delayed_topics_crds.common import Verdict
from pydantic.alias_generators import to_camel

from delayed_topics_operator.audits.reconcile import manifests
from delayed_topics_operator.audits.reconcile.access import mode_disabled
from delayed_topics_operator.audits.reconcile.auditable import wait_seconds
from delayed_topics_operator.audits.reconcile.chain import ended as ended_window
from delayed_topics_operator.audits.reconcile.observation import AuditObservation, Refused, Unauditable, Waiting
from delayed_topics_operator.audits.reconcile.plan import AuditAction, AuditPlan, Expire
from delayed_topics_operator.audits.reconcile.pods import Failed, Reported, Running, outcome
from delayed_topics_operator.audits.reconcile.runner import ended, is_application
from delayed_topics_operator.audits.reconcile.storage import storage
from delayed_topics_operator.errors import KubeRefused, of_quota, reason_of
from delayed_topics_operator.values.annotations import ACKNOWLEDGED_AUDIT, FINALIZER
from delayed_topics_operator.values.conditions import condition, status_of
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import (
    AddFinalizer,
    ApplyChild,
    ConditionState,
    DeleteChild,
    Notice,
    RemoveFinalizer,
    WriteRegistry,
)
from delayed_topics_operator.values.verdicts import REASONS, TRUTH

POLL_SECONDS = 2.0
"""How often a running Job is looked at."""


def reconcile(o: AuditObservation) -> AuditPlan:
    if o.barred is not None:
        return _barred(o, o.barred)
    if o.audit.metadata.deletion_timestamp is not None:
        return _deleted(o)
    if o.audit.status.verdict is not None:
        return _concluded(o)
    if not _has_finalizer(o) and (o.config_map is not None or o.job is not None):
        return AuditPlan(actions=(_finalizer(o),))  # someone has removed the finalizer
    if o.topic is None:
        return _without_topic(o)
    if o.replaced:
        return _conclude(
            o, "Unknown", f"DelayedTopic {_topic_name(o)} was deleted and created again while it was audited"
        )
    if o.job is not None:
        return _running(o, o.job)
    if o.audit.status.job_name is None and o.config_map is None:
        return _begin(o)
    disabled = mode_disabled(o.audit.spec.spark, spark_applications=o.job_settings.spark_applications)
    if disabled is not None:
        return _conclude(o, "Unknown", disabled, reason=Reason.NOT_ALLOWED)
    if o.audit.status.job_name is not None:
        kind, name = o.audit.spec.spark.mode, o.audit.status.job_name
        gone = f"{kind} {name} was removed before it ended. Create a new DelayedTopicAudit"
        return _conclude(o, "Unknown", gone, reason=Reason.AUDIT_FAILED)
    return _run(o)


def refused(o: AuditObservation, error: KubeRefused) -> AuditPlan:
    """Returns what to report when the API server refused an action because of a size, a quota or a missing right. A verdict stays."""
    if o.audit.status.verdict is not None:
        return AuditPlan()
    state = _not_yet(reason_of(error), f"{error}. The operator tries again")
    return AuditPlan(status=_status(o, state), notices=(_warning(state),))


def unseen(raw: Manifest, reason: Reason, why: str, now: datetime) -> AuditPlan:
    """Returns what to report when the audit could not be observed. Only the conditions change, and none if there is a verdict."""
    status = status_of(DelayedTopicAuditStatus, raw)
    if status.verdict is not None:
        return AuditPlan()
    state, generation = _not_yet(reason, why), raw["metadata"].get("generation")
    return _with_conditions(status, state, _conditions(status, state, None, now, generation))


def _barred(o: AuditObservation, why: str) -> AuditPlan:
    """Concludes nothing, because the objects of the audit were not observed. The finalizer stays, and so does a verdict."""
    known, generation, state = o.audit.status, o.audit.metadata.generation, _not_yet(Reason.NOT_ALLOWED, why)
    if known.verdict is not None and o.audit.metadata.deletion_timestamp is None:
        return AuditPlan(topic_status=_on_topic(o))
    conditions = _conditions(known, state, None, o.now, generation)
    if known.verdict is not None:
        others = {c.type: c for c in known.conditions if c.type != Condition.READY}
        conditions = tuple(others.get(c.type, c) for c in conditions)
    return _with_conditions(known, state, conditions)


def _with_conditions(
    known: DelayedTopicAuditStatus, state: ConditionState, conditions: tuple[StatusCondition, ...]
) -> AuditPlan:
    generation = conditions[0].observed_generation
    status = known.model_copy(update={"observed_generation": generation, "conditions": conditions})
    return AuditPlan(status=status, notices=(_warning(state),))


def _begin(o: AuditObservation) -> AuditPlan:
    if o.ahead is not None:
        waiting = _not_yet(
            Reason.AUDIT_WAITING, f"this audit waits until audit {o.ahead} of the same DelayedTopic has its verdict"
        )
        return AuditPlan(status=_status(o, waiting))  # woken when it gets its turn
    match o.frozen:
        case AuditWindow() as window:
            add = () if _has_finalizer(o) else (_finalizer(o),)
            config_map = manifests.config_map(o, window)
            if (why := manifests.too_large(config_map)) is not None:
                return _conclude(o, "Unknown", why)
            made = ApplyChild(manifest=config_map, change="created")
            return AuditPlan(actions=(*add, made), wake_seconds=POLL_SECONDS)
        case Unauditable(message=message):
            return _conclude(o, "Unknown", message)
        case Refused(message=message):
            return _conclude(o, "Unknown", message, reason=Reason.NOT_ALLOWED)
        case Waiting(reason=reason, message=message):
            return AuditPlan(status=_status(o, _not_yet(reason, message)), wake_seconds=wait_seconds(o.audit, o.now))
        case None:
            raise AssertionError("without a ConfigMap a window is looked for")


def _run(o: AuditObservation) -> AuditPlan:
    started = ApplyChild(manifest=manifests.runner(o, manifests.window_of(o.config_map)), change="created")
    match o.job_settings.files:
        case None:
            raise AssertionError("a Job is to begin")
        case Waiting(reason=reason, message=message):
            return AuditPlan(status=_status(o, _not_yet(reason, message)), wake_seconds=wait_seconds(o.audit, o.now))
        case Refused(message=message):
            return _conclude(o, "Unknown", message, reason=Reason.NOT_ALLOWED)
        case files:
            secret = manifests.secret(o, files)
            if o.secret is not None and o.secret.get("data") == secret["data"]:
                return AuditPlan(actions=(started,), wake_seconds=POLL_SECONDS)
            copied = ApplyChild(manifest=secret, change="created" if o.secret is None else "changed")
            return AuditPlan(actions=(copied, started), wake_seconds=POLL_SECONDS)


def _without_topic(o: AuditObservation) -> AuditPlan:
    """A DelayedTopic that does not exist yet may still be created. One that was audited and deleted will not come back as the same."""
    name = _topic_name(o)
    if o.config_map is None and o.job is None:
        waiting = _not_yet(
            Reason.AUDIT_WAITING, f"DelayedTopic {name} does not exist. Either create it, or delete this audit"
        )
        return AuditPlan(status=_status(o, waiting), wake_seconds=wait_seconds(o.audit, o.now))
    return _conclude(o, "Unknown", f"DelayedTopic {name} was deleted while it was audited")


def _topic_name(o: AuditObservation) -> str:
    return f"{o.namespace}/{o.audit.spec.delayed_topic_ref.name}"


def _running(o: AuditObservation, job: Manifest) -> AuditPlan:
    match outcome(job, o.pods, o.now, o.warnings):
        case Reported(verdict=verdict, message=message, account=account) as reported:
            plan = _conclude(o, verdict, message, account=account, offenders=_offenders(reported), at=_ended_at(o))
            return replace(plan, actions=_extend_chain(o, reported))
        case Failed(message=message, out_of_time=out_of_time):
            message += _waited_for(o) if out_of_time else ""
            return _conclude(o, "Unknown", message, reason=Reason.AUDIT_FAILED, at=_ended_at(o))
        case Running(obstacle=None):
            message = f"{job['kind']} {_place(job)} accounts for the records"
            state = ConditionState(status="False", reason=Reason.AUDIT_RUNNING, message=message)
            return AuditPlan(
                status=_status(o, state),
                notices=(Notice(type="Normal", reason="AuditStarted", message=message),),
                wake_seconds=POLL_SECONDS,
            )
        case Running(obstacle=obstacle):
            message = obstacle or ""
            stuck = _not_yet(Reason.QUOTA_EXCEEDED if of_quota(message) else Reason.AUDIT_WAITING, message)
            return AuditPlan(status=_status(o, stuck), notices=(_warning(stuck),), wake_seconds=POLL_SECONDS)


def _waited_for(o: AuditObservation) -> str:
    """Returns what the audit waited for at its deadline, in which case more time would not have helped."""
    last = next((c for c in o.audit.status.conditions if c.type == Condition.COMPLETE), None)
    return (
        f". When its time was over, it was waiting: {last.message}"
        if last is not None and last.reason != Reason.AUDIT_RUNNING
        else ""
    )


def _conclude(
    o: AuditObservation,
    verdict: Verdict,
    message: str,
    *,
    reason: Reason | None = None,
    account: Account | None = None,
    offenders: tuple[Offenders, ...] = (),
    at: datetime | None = None,
) -> AuditPlan:
    reason = reason or REASONS[verdict]
    complete = ConditionState(status="True", reason=reason, message=message)
    verified = ConditionState(status=TRUTH[verdict], reason=reason, message=message)
    status = _status(o, complete, verified).model_copy(
        update={
            "verdict": verdict,
            "message": message,
            "account": account,
            "offenders": offenders,
            "finished_at": at or o.now,
        }
    )
    notice = Notice(type="Normal" if verdict == "Verified" else "Warning", reason=verdict, message=message)
    return AuditPlan(status=status, notices=(notice,), wake_seconds=0.0)


def _offenders(reported: Reported) -> tuple[Offenders, ...]:
    return tuple(
        Offenders(kind=to_camel(kind), records=records[:MAX_OFFENDERS]) for kind, records in reported.offenders.items()
    )


def _extend_chain(o: AuditObservation, reported: Reported) -> tuple[AuditAction, ...]:
    """Records where the next audit of the chain goes on, before the verdict is reported, so that people see no link that the chain lacks.
    If nothing was counted, or a later audit may know more, nothing is recorded, and the next audit judges the same records."""
    window = manifests.window_of(o.config_map)
    if not o.audit.spec.window.since_last or not reported.settles or window is None:
        return ()
    sha256 = reported.carried_sha256
    record = ended_window(
        window, reported.pending_since_ms, Carried(folder=o.job_name, sha256=sha256) if sha256 else None
    )
    return (WriteRegistry(record=record, why=f"note where audit {o.namespace}/{o.name} ended"),)


def _concluded(o: AuditObservation) -> AuditPlan:
    """The verdict is final. The DelayedTopic gets it too, unless it has a later one, or is not the one that was audited."""
    if not _has_finalizer(o):
        actions: tuple[AuditAction, ...] = ()
    elif _is_kept(o):
        actions = tuple(_delete(child) for child in (o.secret,) if child)
    else:
        actions = (*_let_go(o), RemoveFinalizer())
    return AuditPlan(actions=actions, topic_status=_on_topic(o))


def _is_kept(o: AuditObservation) -> bool:
    """Whether an ended SparkApplication is kept for people to look at. This operator has to remove it, because the Spark Operator (until
    2.5) runs an application again if its time to live is changed."""
    if o.job is None or not is_application(o.job) or o.audit.status.finished_at is None:
        return False
    how = ended(o.job, o.now)
    seconds = (o.now - o.audit.status.finished_at).total_seconds()
    return how is not None and not how.out_of_time and seconds < manifests.kept_seconds(o)


def _deleted(o: AuditObservation) -> AuditPlan:
    let_go = (RemoveFinalizer(),) if _has_finalizer(o) else ()
    return AuditPlan(actions=(*(_delete(child) for child in _children(o)), *let_go))


def _let_go(o: AuditObservation) -> tuple[AuditAction, ...]:
    """Returns actions that remove all objects, but keep an ended Job and its window for a while, for people to look at."""
    if o.job is None or is_application(o.job) or ended(o.job, o.now) is None:
        return tuple(_delete(child) for child in _children(o))
    meta = o.job["metadata"]
    return (
        *(_delete(child) for child in (o.secret,) if child),
        Expire(
            namespace=meta["namespace"],
            job=meta["name"],
            job_uid=meta["uid"],
            config_map=o.config_map["metadata"]["name"] if o.config_map else None,
            seconds=manifests.kept_seconds(o),
        ),
    )


def _on_topic(o: AuditObservation) -> DelayedTopicStatus | None:
    """Returns what the status of the DelayedTopic says about this audit: its verdict, if the audit is of all records or part of a chain,
    and a broken promise in any case. None: the status says nothing about it."""
    status, topic = o.audit.status, o.topic
    verdict, at = status.verdict, status.finished_at
    if topic is None or o.replaced or topic.metadata.deletion_timestamp is not None or verdict is None or at is None:
        return None
    # all by the API server's clock, because that of an operator may have been ahead
    made, asked = topic.metadata.creation_timestamp or at, o.audit.metadata.creation_timestamp or at
    looked_at = status.started_at or max(asked, made)
    if looked_at < made:
        return None
    message, last, violation = status.message or "", topic.status.last_audit, topic.status.last_violation
    if _is_of_all(o) and (_is_later(looked_at, last) or (last is not None and last.name == o.name)):
        reason = next((c.reason for c in status.conditions if c.type == Condition.VERIFIED), REASONS[verdict])
        last = LastAudit(name=o.name, verdict=verdict, started_at=looked_at, time=at, reason=reason, message=message)
    if verdict == "Violated" and _is_later(looked_at, violation):
        annotated = (topic.metadata.annotations or {}).get(ACKNOWLEDGED_AUDIT)
        known = {annotated, violation.name if violation is not None else None}
        value = f"{o.name}/{looked_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if o.name in known else o.name
        violation = LastViolation(name=o.name, started_at=looked_at, time=at, message=message, acknowledge_as=value)
    return DelayedTopicStatus(last_audit=last, last_violation=violation)


def _is_later(looked_at: datetime, known: LastAudit | LastViolation | None) -> bool:
    """Whether this audit is later than the known one. That depends on when its offsets were frozen, and not on when it ended."""
    return known is None or known.started_at < looked_at


def _is_of_all(o: AuditObservation) -> bool:
    window = o.audit.spec.window
    return o.audit.spec.sample is None and window.from_ is None and window.to is None


def _status(
    o: AuditObservation, complete: ConditionState, verified: ConditionState | None = None
) -> DelayedTopicAuditStatus:
    """`verified`: given only with a verdict."""
    generation = o.audit.metadata.generation
    return DelayedTopicAuditStatus(
        observed_generation=generation,
        conditions=_conditions(o.audit.status, complete, verified, o.now, generation),
        started_at=_frozen_at(o),
        window_config_map=_place(o.config_map),
        report=_report(o),
        job_name=_place(o.job),
    )


def _conditions(
    known: DelayedTopicAuditStatus,
    complete: ConditionState,
    verified: ConditionState | None,
    now: datetime,
    generation: int | None,
) -> tuple[StatusCondition, ...]:
    if verified is None:
        verified = ConditionState(status="Unknown", reason=complete.reason, message=complete.message)
    ready = replace(verified, status="True" if verified.status == "True" else "False")
    # A verdict is final, so no one need wait for another.
    stalled = {Condition.STALLED: complete} if complete.status == "True" and ready.status == "False" else {}
    states = {Condition.READY: ready, Condition.COMPLETE: complete, Condition.VERIFIED: verified, **stalled}
    return tuple(
        condition(kind, what, known=known.conditions, now=now, generation=generation) for kind, what in states.items()
    )


def _not_yet(reason: Reason, message: str) -> ConditionState:
    return ConditionState(status="False", reason=reason, message=message)


def _warning(state: ConditionState) -> Notice:
    return Notice(type="Warning", reason=state.reason, message=state.message)


def _report(o: AuditObservation) -> str | None:
    kept = storage(o)
    return f"{kept.shown}/report.html" if kept is not None and o.job is not None else None


def _frozen_at(o: AuditObservation) -> datetime | None:
    """Returns when the window was created, by the API server's clock. That is right after the offsets were frozen."""
    if o.config_map is None:
        return o.audit.status.started_at
    return datetime.fromisoformat(o.config_map["metadata"]["creationTimestamp"])


def _ended_at(o: AuditObservation) -> datetime | None:
    return how.at if o.job is not None and (how := ended(o.job, o.now)) is not None else None


def _children(o: AuditObservation) -> tuple[Manifest, ...]:
    """Returns the objects that have to be removed and are not being deleted yet. A SparkApplication is removed with its window."""
    found = (child for child in (o.job, o.secret, o.config_map) if child is not None and not is_application(child))
    return tuple(child for child in found if "deletionTimestamp" not in child["metadata"])


def _delete(child: Manifest) -> DeleteChild:
    meta = child["metadata"]
    return DeleteChild(kind=child["kind"], namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])


def _place(child: Manifest | None) -> str | None:
    return f"{child['metadata']['namespace']}/{child['metadata']['name']}" if child else None


def _finalizer(o: AuditObservation) -> AddFinalizer:
    return AddFinalizer(uid=o.audit.metadata.uid or "", installation=o.job_settings.installation)


def _has_finalizer(o: AuditObservation) -> bool:
    return FINALIZER in o.audit.metadata.finalizers
