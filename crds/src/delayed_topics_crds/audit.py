"""DelayedTopicAudit: one audit and its verdict."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from delayed_topics_crds.base import ListMap, Resource, Rule, Spec, Status, Time, limits
from delayed_topics_crds.common import ObjectName, StatusBase, Verdict
from delayed_topics_crds.output import Output
from delayed_topics_crds.schedule import (
    DEADLINE_SECONDS,
    TTL_SECONDS,
    ActiveDeadlineSeconds,
    MaxLatenessMs,
    Spark,
    TtlSeconds,
)

MAX_OFFENDERS = 10


class DelayedTopicRef(Spec):
    """A DelayedTopic in the same namespace."""

    name: ObjectName
    """The name of the DelayedTopic."""


class Window(Spec):
    """The records that the audit accounts for."""

    rules: ClassVar = (
        Rule(
            cel="!self.sinceLast || !(has(self.from) || has(self.to))",
            message="must be either sinceLast or from and to: an audit with sinceLast begins where the last one ended",
        ),
        # Without this rule, the API server accepts times that no rule can parse, and then refuses every change of the audit and its status.
        Rule(
            cel="(!has(self.from) || self.from == self.from) && (!has(self.to) || self.to == self.to)",
            message="must have times such as 2026-01-02T00:00:00Z",
        ),
        Rule(cel="!has(self.from) || !has(self.to) || self.from < self.to", message="must end after it begins"),
    )

    from_: Annotated[Time | None, Field(alias="from")] = None
    """The audit covers records that arrived at this time or later, by the broker's clock. Unless set, it covers records since serving
    began."""
    to: Time | None = None
    """The audit covers records that arrived before this time, by the broker's clock. If the time is in the future, the audit waits for it.
    Unless set, the audit covers records up to the present."""
    since_last: Annotated[bool, Strict()] = False
    """Continue where the last audit with `sinceLast` ended. Together, these audits account for every record exactly once. The first one
    begins where serving began. An audit without `sinceLast` covers everything since then."""


class Sample(Spec):
    """A share of the records. The audit looks at a record with all of its hops and outcomes, or not at all."""

    one_in: Annotated[int, limits(1, 1_000_000, "records")]
    """The audit looks at one record in this many. A hash of the root decides which one, so every audit looks at the same records."""


class DelayedTopicAuditSpec(Spec):
    """What to audit."""

    rules: ClassVar = (
        Rule(
            cel="self == oldSelf",
            message="must stay as it was created: create a new DelayedTopicAudit for another audit",
        ),
        Rule(
            cel="!has(self.sample) || !self.window.sinceLast",
            message="sample must not go with window.sinceLast: audits in a chain account for every record",
            field_path=".sample",
        ),
    )

    delayed_topic_ref: DelayedTopicRef
    """The DelayedTopic to audit, in the same namespace. Audits of one DelayedTopic run one after the other."""
    window: Window = Window()
    """The records that the audit accounts for."""
    sample: Sample | None = None
    """The share of the records that the audit looks at. Unless set, it looks at all records."""
    max_lateness_ms: MaxLatenessMs = 1000
    """A record counts as late if it is released more than this many milliseconds after its due time."""
    spark: Spark = Spark()
    """Resources and settings of the Spark job."""
    output: Output | None = None
    """Where to keep the full account. Unless set, only the verdict is kept."""
    active_deadline_seconds: ActiveDeadlineSeconds = DEADLINE_SECONDS
    """How long the Job may run, in seconds. This includes all tries, and the time in which its pod waits for a node with room. When the
    time is over, the Job is stopped and the verdict is `Unknown`. Defaults to 1 day."""
    ttl_seconds_after_finished: TtlSeconds = TTL_SECONDS
    """How long the Job and its pod are kept after the audit, in seconds. They are removed earlier if this resource is deleted, or after
    `audits.maxTtlSeconds` of the cluster connection's grant. The verdict stays. Defaults to 1 day."""


class Account(Status):
    """What became of the records in the window: `produced = released + hopped + deadLettered + cancelled + pending + lost`."""

    produced: int | None = None
    """Records that arrived in the front topic and in the delays topic."""
    released: int | None = None
    """Records that were released into a ready topic."""
    hopped: int | None = None
    """Records that hopped to a partition of another delay. They are counted anew there."""
    dead_lettered: int | None = None
    """Records that ended in the dead-letter topic. Cancelled records do not count here."""
    cancelled: int | None = None
    """Records that were cancelled before they were released."""
    pending: int | None = None
    """Records that still wait, or that a worker has read and not yet committed."""
    overdue: int | None = None
    """Pending records that had been due for more than `maxLatenessMs` when the offsets were frozen. The verdict is `Unknown` if the oldest
    of them had been due for more than 10 minutes."""
    lost: int | None = None
    """Records whose offset is committed although no topic has a copy of them."""
    early: int | None = None
    """Released records that came out before their due time."""
    late: int | None = None
    """Released records that came out more than `maxLatenessMs` after their due time."""
    doubled: int | None = None
    """Copies that have the same root and attempt as an earlier copy."""
    doubled_beyond_promise: int | None = None
    """Doubled copies that no crash of a worker explains."""
    doubled_unknown: int | None = None
    """Doubled copies of which it is unknown whether a crash of a worker explains them."""
    out_of_order: int | None = None
    """Neighbouring records of one partition and delay that came out in the wrong order."""
    wrong_partition: int | None = None
    """Released records in another ready topic than they asked for, or in another partition than the one that belongs to their front
    partition."""
    changed: int | None = None
    """Released and dead-lettered records whose key, value or headers differ from what was produced."""
    wrong_attempt: int | None = None
    """Released records whose header `dt-attempt` has a wrong value."""
    over_cap: int | None = None
    """Released records that were retried more often than `retryCap` allows."""
    wrongly_dead_lettered: int | None = None
    """Dead-lettered records whose `dt-reason` is contradicted by their headers, their size, `retryCap` or the control topic."""
    wrongly_released: int | None = None
    """Released records that a worker has to refuse because of their headers. An example is a due time beyond `maxDelaySeconds`."""
    forged: int | None = None
    """Copies that name an origin which they were not made from."""
    offsets_read: int | None = None
    """How many offsets the audit read for this account, in all topics."""


class Offenders(Status):
    """Records that have the same flaw."""

    kind: str
    """The flaw, under its name in the account."""
    records: Annotated[tuple[str, ...], Field(max_length=MAX_OFFENDERS)]
    """The first of these records, in the form of `dt-root`. `f:<partition>:<offset>` is in the front topic, `d:…` in the delays topic."""


class DelayedTopicAuditStatus(StatusBase):
    """The progress and the result of the audit. The operator writes it."""

    verdict: Verdict | None = None
    """`Verified` means that every record is accounted for. `Violated` means that a promise was broken, and `message` says which. `Unknown`
    means that the audit could not see everything."""
    message: str | None = None
    """The verdict in a sentence."""
    started_at: Time | None = None
    """When the operator froze the offsets."""
    finished_at: Time | None = None
    """When the audit reached its verdict."""
    window_config_map: str | None = None
    """The ConfigMap with the frozen offsets."""
    job_name: str | None = None
    """The name of the Job."""
    report: str | None = None
    """Where the report is, in the form `claim:folder/file` or `s3://bucket/folder/file`."""
    account: Account | None = None
    """What became of the records."""
    offenders: Annotated[tuple[Offenders, ...], ListMap("kind")] = ()
    """The first 10 records of each flaw. The list has fewer if they do not all fit into the termination message of a container."""


class DelayedTopicAudit(Resource):
    """An audit reads the records of a DelayedTopic once and accounts for every one of them."""

    kind: Literal["DelayedTopicAudit"]
    spec: DelayedTopicAuditSpec
    """What to audit."""
    status: DelayedTopicAuditStatus = Field(default_factory=DelayedTopicAuditStatus)
    """The progress and the result of the audit. The operator writes it."""
