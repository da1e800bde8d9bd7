"""DelayedTopicAudit: observe, reconcile, execute, until nothing is left to do at once."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.reasons import Reason
from delayed_topics_core.registry import Owner
from delayed_topics_crds import DelayedTopic, DelayedTopicAudit
from delayed_topics_kafka.errors import KafkaCallError
from pydantic import ValidationError

from delayed_topics_operator.audits.freeze import freeze
from delayed_topics_operator.audits.reconcile.access import (
    AuditSite,
    mode_disabled,
    most_local_disk_mebibytes,
    most_ttl_seconds,
    no_room,
)
from delayed_topics_operator.audits.reconcile.access import refused as not_allowed
from delayed_topics_operator.audits.reconcile.auditable import early, served_records
from delayed_topics_operator.audits.reconcile.manifests import (
    AUDIT_LABEL,
    audited_uid,
    job_name,
    secret_name,
    window_name,
)
from delayed_topics_operator.audits.reconcile.observation import (
    AuditObservation,
    JobSettings,
    Refused,
    Unauditable,
    Waiting,
)
from delayed_topics_operator.audits.reconcile.plan import AuditAction, AuditPlan, Expire
from delayed_topics_operator.audits.reconcile.steps import reconcile, refused, unseen
from delayed_topics_operator.audits.reservations import Reservations
from delayed_topics_operator.audits.turns import Turns
from delayed_topics_operator.connection.controller import Connections
from delayed_topics_operator.connection.reconcile.grants import LET_IN
from delayed_topics_operator.connection.reconcile.usable import Unusable, Usable
from delayed_topics_operator.connection.usage import Usage, runs, use_of_audit
from delayed_topics_operator.delayed_topic.reconcile.translate import connection_key, wanted
from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.execute import Owned
from delayed_topics_operator.engine.installation import connection_of, installation_of, serves
from delayed_topics_operator.engine.pods import pods_and_warnings
from delayed_topics_operator.engine.status import write_status
from delayed_topics_operator.errors import Forbidden, KubeRefused, NotFound, NotYet, SpecInvalid, reason_of
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.field_managers import AUDITS_FIELD_MANAGER
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import RemoveFinalizer, WriteRegistry
from delayed_topics_operator.values.validation import ignored, in_words, read

STEPS = 8
"""The most plans in one pass. A new audit needs four until its Job runs, and one whose Job has ended needs three."""
SOON_SECONDS = 0.3


class Audits:
    """The controller; see Controller."""

    kind = "DelayedTopicAudit"

    def __init__(
        self, context: ControllerContext, *, connections: Connections, usage: Usage, changed: Callable[[Key], None]
    ) -> None:
        """`changed`: called with a DelayedTopic when a verdict was written into its status, and with an audit that gets its turn."""
        self._context = context
        self._connections = connections
        self._usage = usage
        self._changed = changed
        self._turns = Turns(context.store, gets_turn=changed)
        self._reservations = Reservations(context.kube, usage)

    async def reconcile(self, key: Key) -> float | None:
        for _ in range(STEPS):
            raw = self._context.store.get(*key)
            self._turns.pass_on(key)
            released = await self._reservations.release_former(key, raw)
            if raw is None:
                return None if released else self._context.settings.resync_seconds
            if "verdict" in (raw.get("status") or {}):
                self._reservations.release(raw)
            if self._terminating(key.namespace) and "deletionTimestamp" not in raw["metadata"]:
                return self._context.settings.resync_seconds  # it will be deleted, and nothing can begin any more
            topic = self._context.store.get("DelayedTopic", key.namespace, raw["spec"]["delayedTopicRef"]["name"])
            if not self._is_ours(raw, topic):
                return self._context.settings.resync_seconds
            await self._context.recorder.emit(raw, ignored(raw))
            try:
                o = await self._observe(key, raw)
            except (ValidationError, SpecInvalid) as e:
                await self._report(key, unseen(raw, Reason.SPEC_INVALID, in_words(e), datetime.now(UTC)))
                raise SpecInvalid(f"{key}: {in_words(e)}") from e
            except KubeRefused as e:
                why = f"could not read the objects of this audit: {e}. The operator tries again"
                await self._report(key, unseen(raw, reason_of(e), why, datetime.now(UTC)))
                raise
            plan = reconcile(o)
            try:
                await self._execute(key, plan.actions, o.topic)
            except KubeRefused as e:
                await self._report(key, refused(o, e))
                raise
            written = await self._report(key, plan)
            if any(isinstance(action, RemoveFinalizer) for action in plan.actions):
                self._forget(o)
            if not plan.actions and not written:
                resync_seconds = self._context.settings.resync_seconds
                return min(plan.wake_seconds or resync_seconds, resync_seconds)
        return SOON_SECONDS

    def _is_ours(self, raw: Manifest, topic: Manifest | None) -> bool:
        """Whether this installation handles the audit. If the audit is being deleted, or its DelayedTopic is gone, the installation that
        began it does, as long as that exists. Another one can't look into the namespace of the Job. That namespace counts more than the
        annotation, which anybody may change who may delete the audit."""
        meta, installation = raw["metadata"], self._context.settings.namespace
        began = installation_of(raw) if _is_held(raw) else None
        if began is not None and _home_in_status(raw) == self._context.settings.audit_namespace:
            return True
        if (topic is None or "deletionTimestamp" in meta) and self._context.store.get("Namespace", "", began or ""):
            return began == installation
        return topic is None or serves(self._context.store, connection_of(topic), namespace=installation)

    async def _observe(self, key: Key, raw: Manifest) -> AuditObservation:
        """Raises ValidationError, SpecInvalid, KubeError, KafkaCallError."""
        audit = read(DelayedTopicAudit, raw)
        found = self._context.store.get("DelayedTopic", key.namespace, audit.spec.delayed_topic_ref.name)
        deleting = audit.metadata.deletion_timestamp is not None
        topic = _topic(found, deleting=deleting) if found is not None else None
        name, home = job_name(key.name, audit.metadata.uid or ""), self._home(key, topic)
        config_map = secret = job = None
        pods: tuple[Manifest, ...] = ()
        warnings: tuple[Manifest, ...] = ()
        # If a namespace is being deleted, its objects and the operator's rights on them go with it.
        gone = home == key.namespace and self._terminating(key.namespace)
        if _is_held(raw) and self._context.tenants.may_audit(home) and not gone:
            try:
                config_map = await self._context.kube.find("ConfigMap", home, window_name(name))
                secret = await self._context.kube.find("Secret", home, secret_name(name))
                spark = audit.spec.spark
                if mode_disabled(spark, spark_applications=self._context.settings.audit_spark_applications) is None:
                    job = await self._context.kube.find(spark.mode, home, name)
                if job is not None:
                    self._reservations.runs(raw, job)
                    pods, warnings = await pods_and_warnings(
                        self._context.kube, job, labels=f"{AUDIT_LABEL}={name}", expected=1
                    )
            except Forbidden:
                if not deleting or home != key.namespace:
                    raise
                config_map = secret = job = None  # the audit owns all its objects, so Kubernetes removes them
        moved = topic is not None and (home == key.namespace) != (self._home_of(topic) == key.namespace)
        replaced = moved or (topic is not None and audited_uid(config_map) not in (None, topic.metadata.uid))
        undecided = audit.status.verdict is None and not deleting and not replaced
        begun = config_map is not None or job is not None or audit.status.job_name is not None
        queued = undecided and not begun
        too_early = early(audit.spec.window, datetime.now(UTC)) if queued else None
        ahead = self._turns.ahead(raw) if queued and too_early is None else None
        return AuditObservation(
            now=datetime.now(UTC),
            job_name=name,
            audit=audit,
            topic=topic,
            barred=self._barred(key, raw, home),
            replaced=replaced,
            job_settings=self._job_settings(audit, topic, home, beginning=undecided and not ahead and job is None),
            frozen=await self._begin(raw, audit, topic, home, too_early) if queued and topic and not ahead else None,
            ahead=ahead,
            config_map=config_map,
            secret=secret,
            job=job,
            pods=pods,
            warnings=warnings,
        )

    def _job_settings(
        self, audit: DelayedTopicAudit, topic: DelayedTopic | None, home: str, *, beginning: bool
    ) -> JobSettings:
        files: Mapping[str, str] | Waiting | Refused | None = None
        most_local_disk: int | None = None
        most_ttl: int | None = None
        if topic is not None and beginning:
            state, _ = self._connections.look(connection_key(topic))
            site = self._site(topic, home, state)
            most_local_disk = most_local_disk_mebibytes(site, audit.spec)
            most_ttl = most_ttl_seconds(site, audit.spec)
            # Checked again, and not only when the window was frozen: in a tenant's namespace someone else may have made the window.
            if (refusal := not_allowed(audit.spec, site)) is not None:
                files = Refused(message=refusal)
            elif isinstance(state, Unusable):
                files = Waiting(reason=state.reason, message=state.message)
            else:
                files = state.files
        return JobSettings(
            image=self._context.settings.audit_image,
            image_pull_policy=self._context.settings.image_pull_policy,
            installation=self._context.settings.namespace,
            home=home,
            files=files,
            spark_applications=self._context.settings.audit_spark_applications,
            most_local_disk_mebibytes=most_local_disk,
            most_ttl_seconds=most_ttl,
            fs_group=self._context.settings.audit_fs_group,
            labels=self._context.settings.pod_labels,
            annotations=self._context.settings.pod_annotations,
            defaults=self._context.settings.pod_defaults,
        )

    def _forget(self, o: AuditObservation) -> None:
        """Removes the objects of the audit from the store. Kubernetes deletes them, and no watch reports that."""
        for child in (o.job, o.config_map):
            if child is not None:
                self._context.store.gone(child)

    def _home(self, key: Key, topic: DelayedTopic | None) -> str:
        """Returns the namespace of the Job. Once the audit has objects, it is their namespace, even if the DelayedTopic or the settings
        have changed."""
        known = _home_in_status(self._context.store.get(*key) or {})
        if self._context.store.get("Namespace", "", known) is not None:
            return known
        return self._home_of(topic) if topic is not None else self._context.settings.audit_namespace

    def _home_of(self, topic: DelayedTopic) -> str:
        """Returns the namespace of Jobs that audit this DelayedTopic. A Job elsewhere audits another one, since a DelayedTopic can't change
        its connection."""
        cluster_wide = topic.spec.connection_ref.kind == "ClusterKafkaConnection"
        return self._context.settings.audit_namespace if cluster_wide else topic.metadata.namespace or ""

    def _barred(self, key: Key, raw: Manifest, home: str) -> str | None:
        if not _is_held(raw) or self._context.tenants.may_audit(home):
            return None
        if home != key.namespace:
            return (
                f"the Job, the window and the Kafka credentials of this audit are in namespace {home}, which the operator must not enter "
                f"any more. Either set the chart value audits.namespace to {home} until this audit is gone, or delete that namespace"
            )
        if "deletionTimestamp" in raw["metadata"]:
            return None  # the audit owns all its objects, so Kubernetes removes them
        return f"this audit runs in namespace {home}, which the operator must not enter any more. To admit the namespace, {LET_IN}"

    async def _begin(
        self, raw: Manifest, audit: DelayedTopicAudit, topic: DelayedTopic, home: str, too_early: Waiting | None
    ) -> AuditWindow | Waiting | Unauditable | Refused:
        """Reserves the executors of the audit before its offsets are read, and frees them if it can't begin."""
        frozen = await self._frozen(raw, audit, topic, home, too_early)
        if not isinstance(frozen, AuditWindow):
            self._reservations.release(raw)
        return frozen

    async def _frozen(
        self, raw: Manifest, audit: DelayedTopicAudit, topic: DelayedTopic, home: str, too_early: Waiting | None
    ) -> AuditWindow | Waiting | Unauditable | Refused:
        if not self._context.tenants.may_audit(home):
            message = f"the operator does not run Jobs in namespace {home}. To admit the namespace, {LET_IN}"
            return Waiting(reason=Reason.NOT_ALLOWED, message=message)
        connection = connection_key(topic)
        state, link = self._connections.look(connection)
        site = self._site(topic, home, state)
        if (refusal := not_allowed(audit.spec, site)) is not None:
            return Refused(message=refusal)
        if isinstance(state, Unusable):
            return Waiting(reason=state.reason, message=state.message)
        assert link is not None, "the connection can be used"
        if too_early is not None:
            return too_early
        names, owner, executors = wanted(topic).names, self._owner(topic), audit.spec.spark.executors
        limit_ms, sample = audit.spec.max_lateness_ms, audit.spec.sample
        try:
            registry = await link.registry()
            served = served_records(registry, names, owner)
            if isinstance(served, Waiting):
                return served
            # no await until the executors are reserved: no other audit can get the same ones
            others = self._usage.others(use_of_audit(raw), connection, registry).executors if executors else 0
            if (full := no_room(audit.spec, site, others)) is not None:
                return Waiting(reason=Reason.GRANT_EXCEEDED, message=full)
            self._reservations.reserve(raw, connection, executors)
            return await freeze(
                link,
                names,
                owner,
                asked=audit.spec.window,
                max_lateness_ms=limit_ms,
                now=datetime.now(UTC),
                one_in=sample.one_in if sample else 1,
            )
        except KafkaCallError as e:
            self._connections.doubt(connection, e)
            return Waiting(reason=reason_of(e), message=str(e))

    def _site(self, topic: DelayedTopic, home: str, state: Usable | Unusable) -> AuditSite:
        """Raises SpecInvalid, NotYet."""
        namespace = topic.metadata.namespace or ""
        return AuditSite(
            namespace=namespace,
            namespace_labels=self._context.store.namespace(namespace)["metadata"].get("labels") or {},
            home=home,
            executors=self._context.settings.audit_executors,
            spark_applications=self._context.settings.audit_spark_applications,
            topic=wanted(topic).names.front,
            connection=connection_key(topic),
            grants=state.grants if isinstance(state, Usable) else None,
        )

    def _terminating(self, namespace: str) -> bool:
        known = self._context.store.get("Namespace", "", namespace)
        return known is not None and "deletionTimestamp" in known["metadata"]

    def _owner(self, topic: DelayedTopic) -> Owner:
        return Owner(self._context.cluster, topic.metadata.namespace or "", topic.metadata.name)

    def _link(self, topic: DelayedTopic | None) -> KafkaLink | None:
        return self._connections.look(connection_key(topic))[1] if topic is not None else None

    async def _execute(self, key: Key, actions: Sequence[AuditAction], topic: DelayedTopic | None) -> None:
        """Executes the actions. Raises the first failure; the actions before it stay done."""
        link, owned = self._link(topic), None
        if topic is not None:
            owned = Owned(topic=wanted(topic).names.front, owner=self._owner(topic))
        for action in actions:
            if isinstance(action, Expire):
                await self._expire(action)
                continue
            if isinstance(action, WriteRegistry) and link is None:
                raise NotYet(
                    f"{key} has its verdict, but the operator can't write to the registry because Kafka is not reachable"
                )
            outcome = await self._context.executor.execute(key, (action,), link, owned)
            for failure in outcome.failures:
                raise failure.error

    async def _expire(self, action: Expire) -> None:
        """Gives the Job a time to live, and makes it the owner of the ConfigMap, so that Kubernetes removes both."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": action.job, "uid": action.job_uid}
        owned = {"metadata": {"ownerReferences": [owner]}}
        limited = {"spec": {"ttlSecondsAfterFinished": action.seconds}}
        try:
            if action.config_map is not None:
                await self._context.kube.merge("ConfigMap", action.namespace, action.config_map, owned)
            await self._context.kube.merge("Job", action.namespace, action.job, limited)
        except NotFound:
            return

    async def _report(self, key: Key, plan: AuditPlan) -> bool:
        """Writes the statuses and Events. Returns whether the status of the audit was written."""
        written = False
        raw = self._context.store.get(*key)
        if raw is None:
            return False
        try:
            if plan.status is not None:
                written = await write_status(self._context, raw, plan.status)
            topic = self._context.store.get("DelayedTopic", key.namespace, raw["spec"]["delayedTopicRef"]["name"])
            if plan.topic_status is not None and topic is not None:
                noted = await write_status(
                    self._context,
                    topic,
                    plan.topic_status,
                    field_manager=AUDITS_FIELD_MANAGER,
                )
                if noted:
                    self._changed(Key("DelayedTopic", key.namespace, topic["metadata"]["name"]))
        except NotFound:
            return False
        if written:
            await self._context.recorder.emit(raw, plan.notices)
        return written


def _topic(found: Manifest, *, deleting: bool) -> DelayedTopic | None:
    """Returns the parsed DelayedTopic. An invalid one is None for an audit that is being deleted, and does not hold that up. Raises
    ValidationError, SpecInvalid."""
    try:
        return read(DelayedTopic, found)
    except (ValidationError, SpecInvalid):
        if not deleting:
            raise
        return None


def _home_in_status(raw: Manifest) -> str:
    """Returns the namespace of the Job, once the status says where objects of the audit are; before that, ""."""
    status = raw.get("status") or {}
    home, _, _ = str(status.get("jobName") or status.get("windowConfigMap") or "").partition("/")
    return home


def _is_held(raw: Manifest) -> bool:
    """Whether objects of the audit may exist. If it has its verdict, this depends on the finalizer, without which all of them are gone."""
    return FINALIZER in raw["metadata"].get("finalizers", ()) or runs(raw)
