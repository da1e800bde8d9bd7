"""DelayedTopicAudit: one audit and its verdict."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from delayed_topics_crds.base import Limits, ListMap, Resource, Rule, Spec, Status, Time
from delayed_topics_crds.common import ObjectName, StatusBase, Verdict
from delayed_topics_crds.output import Output
from delayed_topics_crds.schedule import DEADLINE_SECONDS, ActiveDeadlineSeconds, MaxLatenessMs, Spark

MAX_OFFENDERS = 10


class DelayedTopicRef(Spec):
    """A DelayedTopic of the same namespace."""

    name: ObjectName
    """Its name."""


class Window(Spec):
    """Which records are accounted for."""

    rules: ClassVar = (
        Rule(
            cel="!self.sinceLast || !(has(self.from) || has(self.to))",
            message="must be either sinceLast or from and to: an audit that goes on begins where the last one ended",
        ),
        Rule(cel="!has(self.from) || !has(self.to) || self.from < self.to", message="must end after it begins"),
    )

    from_: Annotated[Time | None, Field(alias="from")] = None
    """Records that came in from this time on, by the broker's clock; since serving began unless set."""
    to: Time | None = None
    """Records that came in before this time, by the broker's clock; up to now unless set. The audit waits for it."""
    since_last: Annotated[bool, Strict()] = False
    """Go on where the last audit with `sinceLast` ended, so that all of them together account for every record exactly once;
    the first begins where serving began. Without it an audit covers everything since then."""


class Sample(Spec):
    """A share of the records. A record is looked at with all of its hops and outcomes, or not at all."""

    one_in: Annotated[int, Limits(1, 1_000_000, "records")]
    """Of so many records one, chosen by a hash of where it was first seen; the same ones each time."""


class DelayedTopicAuditSpec(Spec):
    """What is to be audited."""

    rules: ClassVar = (
        Rule(
            cel="self == oldSelf", message="must stay as it was created, it is one audit: make a new DelayedTopicAudit"
        ),
        Rule(
            cel="!has(self.sample) || !self.window.sinceLast",
            message="sample must not go with window.sinceLast: audits that chain account for every record",
            field_path=".sample",
        ),
    )

    delayed_topic_ref: DelayedTopicRef
    """The DelayedTopic, of the same namespace. Its audits run one after the other."""
    window: Window = Window()
    """Which records are accounted for."""
    sample: Sample | None = None
    """Look at a share of the records only; at all of them unless set."""
    max_lateness_ms: MaxLatenessMs = 1000
    """A record that is released later than this after its due time is counted as late, in milliseconds."""
    spark: Spark = Spark()
    """What the Spark job gets."""
    output: Output | None = None
    """Where the whole account is kept; nowhere unless set."""
    active_deadline_seconds: ActiveDeadlineSeconds = DEADLINE_SECONDS
    """For how long the Job may run, in seconds, all its tries and the time in which its pod waits for room included; 1 day unless set.
    Then it is ended, and the verdict is `Unknown`."""
    ttl_seconds_after_finished: Annotated[int, Limits(0, 31_536_000, "seconds (365 days)")] = 86_400
    """For how long the Job and its pod are kept after the audit, in seconds; 1 day unless set. The verdict stays."""


class Account(Status):
    """Where the records of the window went: produced = released + hopped + deadLettered + cancelled + pending + lost."""

    produced: int | None = None
    """Records that came in."""
    released: int | None = None
    """Came out in the ready topic."""
    hopped: int | None = None
    """Went on to a partition of another delay, where they are counted anew."""
    dead_lettered: int | None = None
    """Ended in the dead-letter topic, for another reason than that they were cancelled."""
    cancelled: int | None = None
    """Were cancelled before they were released."""
    pending: int | None = None
    """Still wait, or were taken in and not yet committed."""
    overdue: int | None = None
    """Of the pending: due for more than `maxLatenessMs` when the offsets were frozen, and not released. The verdict is `Unknown` when the
    oldest has been due for more than 10 minutes."""
    lost: int | None = None
    """Were committed and came out nowhere."""
    early: int | None = None
    """Of the released: before their due time."""
    late: int | None = None
    """Of the released: more than `maxLatenessMs` after their due time."""
    doubled: int | None = None
    """Copies beyond the first with the same root and attempt."""
    doubled_beyond_promise: int | None = None
    """Of the doubled: those that no crash of a worker explains."""
    out_of_order: int | None = None
    """Neighbours of one partition and delay that came out in the other order."""
    wrong_partition: int | None = None
    """Of the released: in another ready topic than they asked for, or in another partition than their front partition's."""
    changed: int | None = None
    """Of the released and the dead-lettered: key, value or a header is not what was produced."""
    wrong_attempt: int | None = None
    """Of the released: `dt-attempt` is not what it has to be."""
    over_cap: int | None = None
    """Of the released: retried more often than `retryCap` allows."""
    wrongly_dead_lettered: int | None = None
    """Of the dead-lettered: their own headers, their size, `retryCap` or the control topic contradict the reason in `dt-reason`."""
    forged: int | None = None
    """Outcomes that name a record as their origin which they were not made from."""
    offsets_read: int | None = None
    """Offsets of all topics that were read for this account."""


class Offenders(Status):
    """Records of which the same is wrong."""

    kind: str
    """What is wrong, as the account counts it."""
    records: Annotated[tuple[str, ...], Field(max_length=MAX_OFFENDERS)]
    """The first of them, as `dt-root` has it: `f:<partition>:<offset>` is of the front topic, `d:…` of the delays topic."""


class DelayedTopicAuditStatus(StatusBase):
    """How it went, written by the operator."""

    verdict: Verdict | None = None
    """`Verified`: every record is accounted for. `Violated`: a promise was broken, `message` says which. `Unknown`: not
    everything could be seen."""
    message: str | None = None
    """The verdict in a sentence."""
    started_at: Time | None = None
    """When the offsets were frozen."""
    finished_at: Time | None = None
    """When the verdict was known."""
    window_config_map: str | None = None
    """The ConfigMap with the frozen offsets."""
    job_name: str | None = None
    """The Job."""
    report: str | None = None
    """Where the report is, as claim:folder/file or s3://bucket/folder/file."""
    account: Account | None = None
    """Where the records went."""
    offenders: Annotated[tuple[Offenders, ...], ListMap("kind")] = ()
    """By what is wrong with them the first 10 records, or fewer where a container's message has no room for all of them."""


class DelayedTopicAudit(Resource):
    """Reads the records of a DelayedTopic once and accounts for every one of them."""

    kind: Literal["DelayedTopicAudit"]
    spec: DelayedTopicAuditSpec
    """What is to be audited."""
    status: DelayedTopicAuditStatus = Field(default_factory=DelayedTopicAuditStatus)
    """How it went, written by the operator."""
