"""From counts to a verdict. Pure: what Spark counted comes in, a sentence goes out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Literal

from delayed_topics_core.names import EVENTS_TOPIC

Verdict = Literal["Verified", "Violated", "Unknown"]

MAX_RESULT_BYTES: Final = 4096
"""Kubernetes cuts a container's termination message there."""
MAX_OFFENDERS: Final = 10
UNREAD_ROOTS_ONE_IN: Final = 1000
"""A few attempts may have waited for longer than the longest delay, through an outage; more than a few are not judged by guess."""
MAX_OVERDUE_MS: Final = 600_000
"""What workers are held up for, by a rebalance or a broker that restarts, is over by then."""
MAX_MESSAGE_CHARS: Final = 1500


@dataclass(frozen=True, kw_only=True)
class PartitionAccount:
    """The terms of the law for one partition of front ("f") or delays ("d")."""

    topic_letter: str
    partition: int
    produced: int
    released: int
    hopped: int
    dead_lettered: int
    cancelled: int
    pending: int
    lost: int

    @property
    def accounted(self) -> int:
        return self.released + self.hopped + self.dead_lettered + self.cancelled + self.pending + self.lost


@dataclass(frozen=True, kw_only=True)
class Flaws:
    """How many places have which flaw (see places.FLAWS), and what goes with them.

    extra, beyond   copies beyond the first; those of them that promise 3 doesn't cover
    unexplained     those of them of which nobody knows, since the workers' events of that time can't be read
    disordered      neighbours that came out in the other order
    max_late_ms     None if nothing was released
    untimed         releases that the broker did not stamp
    ended           attempts that were judged by their ends; unread_roots: of these, whose beginning was not read, or has no time
    overdue         pending though they were due, by more than a release may be late
    rejected        dead letters of consumers
    """

    lost: int = 0
    forged: int = 0
    early: int = 0
    late: int = 0
    changed: int = 0
    wrong_partition: int = 0
    wrong_attempt: int = 0
    over_cap: int = 0
    foreign: int = 0
    extra: int = 0
    beyond: int = 0
    unexplained: int = 0
    disordered: int = 0
    max_late_ms: int | None = None
    untimed: int = 0
    ended: int = 0
    unread_roots: int = 0
    overdue: int = 0
    wrongly_dead_lettered: int = 0
    rejected: int = 0


@dataclass(frozen=True, kw_only=True)
class BlindSpot:
    """What the audit can't see. `hides_outcomes`: a record that seems lost may have come out there. `only_losses`: where none
    seems lost, nothing was hidden."""

    sentence: str
    hides_outcomes: bool
    only_losses: bool = False


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Everything that was counted over one window. `percentiles_ms`: of lateness, by name. `one_in`: of so many records one.
    `overdue_ms`: for how long what is overdue has been due, at the most. `offsets_read`: of all topics."""

    topic: str
    partitions: Sequence[PartitionAccount]
    flaws: Flaws
    one_in: int = 1
    percentiles_ms: Mapping[str, int] = field(default_factory=dict)
    pending_since_ms: int | None = None
    overdue_ms: int = 0
    offsets_read: int = 0
    offenders: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Account:
    """Over all partitions: produced = released + hopped + dead_lettered + cancelled + pending + lost.

    offsets_read: of all topics, for this account.
    """

    produced: int = 0
    released: int = 0
    hopped: int = 0
    dead_lettered: int = 0
    cancelled: int = 0
    pending: int = 0
    lost: int = 0
    early: int = 0
    late: int = 0
    doubled: int = 0
    doubled_beyond_promise: int = 0
    out_of_order: int = 0
    wrong_partition: int = 0
    changed: int = 0
    wrong_attempt: int = 0
    over_cap: int = 0
    forged: int = 0
    overdue: int = 0
    wrongly_dead_lettered: int = 0
    offsets_read: int = 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """What goes to the resource. `account` is None if nothing was counted.

    `pending_since_ms`: when the attempts of what is pending began, at the earliest; `carried_sha256`: the hash of what was written for
    it; both for the audit that comes after this one.
    """

    verdict: Verdict
    message: str
    account: Account | None = None
    pending_since_ms: int | None = None
    carried_sha256: str | None = None
    offenders: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def encode(self) -> str:
        """JSON of at most MAX_RESULT_BYTES; of the offenders as many as fit."""
        sizes = [(most, MAX_MESSAGE_CHARS) for most in range(MAX_OFFENDERS, -1, -1)]
        for most, chars in (*sizes, (0, MAX_MESSAGE_CHARS // 5)):  # a character may take twelve bytes of JSON
            body = {**asdict(self), "message": self.message[:chars]}
            body["offenders"] = {kind: list(names[:most]) for kind, names in self.offenders.items() if names[:most]}
            text = json.dumps(body)
            if len(text) <= MAX_RESULT_BYTES:
                break
        return text


def judge(counted: Counted, blind_spots: Sequence[BlindSpot] = ()) -> Result:
    """Broken promises that are seen for certain make it Violated; what isn't seen makes it Unknown, never Verified."""
    account = _total(counted)
    broken = [
        f"partition {_name(counted.topic, p)} doesn't add up: {p.produced:,} produced, {p.accounted:,} accounted for"
        for p in counted.partitions
        if p.produced != p.accounted
    ]
    unclear = account.lost or account.forged or broken
    spots = [*(spot for spot in blind_spots if unclear or not spot.only_losses), *_spots_in_records(counted)]
    hidden = any(spot.hides_outcomes for spot in spots)
    certain = any(getattr(account, term) for term in _CERTAIN) or (unclear and not hidden)
    verdict: Verdict = "Violated" if certain else "Unknown" if spots else "Verified"
    sentences = [
        *_findings(account, counted.flaws.unexplained, counted.offenders),
        *broken[:MAX_OFFENDERS],
        *(spot.sentence for spot in spots),
        _summary(counted, account),
    ]
    return Result(
        verdict=verdict,
        message="; ".join(sentences),
        account=account,
        pending_since_ms=counted.pending_since_ms,
        offenders=counted.offenders,
    )


def unseen(spots: Sequence[BlindSpot]) -> Result:
    """Nothing was read: it would not be what the window means."""
    return Result(verdict="Unknown", message="; ".join(spot.sentence for spot in spots))


_LAW: Final = ("produced", "released", "hopped", "dead_lettered", "cancelled", "pending", "lost")
_CERTAIN: Final = (
    "early", "doubled_beyond_promise", "out_of_order", "wrong_partition", "changed", "wrong_attempt", "over_cap",
    "wrongly_dead_lettered",
)  # fmt: skip
"""What retention or a missing right can't make up."""

_SAID: Final = {
    "lost": ("lost", "committed, and found in no other topic"),
    "forged": ("forged", "they name a record as their origin that they were not made from"),
    "early": ("released before the due time", ""),
    "doubled_beyond_promise": ("doubled", "same root and attempt again, and no crash of a worker explains it"),
    "out_of_order": ("out of order", ""),
    "wrong_partition": ("in the wrong ready topic or partition", ""),
    "changed": ("changed", "key, value or a header is not what was produced"),
    "wrong_attempt": ("of the wrong attempt", ""),
    "over_cap": ("retried beyond the cap", "they belong into the dead-letter topic"),
    "wrongly_dead_lettered": (
        "dead-lettered without a reason",
        "their own headers, their size, the retry cap or the control topic contradict what dt-reason says",
    ),
}
BROKEN_PROMISES: Final = tuple(_SAID)
"""The terms of an account that count what must not be."""
_OFFENDERS_OF: Final = {"doubled_beyond_promise": "doubled"}


def _total(counted: Counted) -> Account:
    def total(term: str) -> int:
        return sum(getattr(partition, term) for partition in counted.partitions)

    flaws = counted.flaws
    return Account(
        **{term: total(term) for term in _LAW},
        early=flaws.early,
        late=flaws.late,
        doubled=flaws.extra,
        doubled_beyond_promise=flaws.beyond,
        out_of_order=flaws.disordered,
        wrong_partition=flaws.wrong_partition,
        changed=flaws.changed,
        wrong_attempt=flaws.wrong_attempt,
        over_cap=flaws.over_cap,
        forged=flaws.forged,
        overdue=flaws.overdue,
        wrongly_dead_lettered=flaws.wrongly_dead_lettered,
        offsets_read=counted.offsets_read,
    )


def _findings(account: Account, unexplained: int, offenders: Mapping[str, Sequence[str]]) -> list[str]:
    said = []
    for term, (what, why) in _SAID.items():
        count = getattr(account, term)
        if count:
            names = offenders.get(_OFFENDERS_OF.get(term, term), ())
            first = f" ({', '.join(names[:3])})" if names else ""
            said.append(f"{count:,} {what}{first}" + (f": {why}" if why else ""))
    within = account.doubled - account.doubled_beyond_promise - unexplained
    if within:
        said.append(f"{within:,} doubled within the promise: a worker crashed before it could commit them")
    return said


def _spots_in_records(counted: Counted) -> list[BlindSpot]:
    flaws, topic = counted.flaws, f"{counted.topic}.ready"
    spots = []
    if flaws.foreign:
        sentence = (
            f"{flaws.foreign:,} records of {topic} are not a worker's: only workers may write there, see its ACLs"
        )
        spots.append(BlindSpot(sentence=sentence, hides_outcomes=False))
    if flaws.unexplained:
        sentence = (
            f"{flaws.unexplained:,} were doubled at a time of which there are no events of the workers: whether one of them ended "
            f"just then is not known; the audit has to be allowed to read {EVENTS_TOPIC}, which keeps seven days"
        )
        spots.append(BlindSpot(sentence=sentence, hides_outcomes=False))
    if flaws.unread_roots * UNREAD_ROOTS_ONE_IN > flaws.ended:
        sentence = (
            f"of {flaws.ended:,} attempts that ended, {flaws.unread_roots:,} can't be judged by the record that they began with, "
            f"more than one in {UNREAD_ROOTS_ONE_IN:,}: it was not there any more, or doesn't have the broker's time"
        )
        spots.append(BlindSpot(sentence=sentence, hides_outcomes=False))
    if counted.overdue_ms > MAX_OVERDUE_MS:
        names = ", ".join(counted.offenders.get("overdue", ())[:3])
        sentence = (
            f"{flaws.overdue:,} are overdue ({names}), for up to {counted.overdue_ms // 1000:,} s: they are due and were not released, "
            "and whether they will be is not known; the DelayedTopic's conditions say what holds the workers up"
        )
        spots.append(BlindSpot(sentence=sentence, hides_outcomes=False))
    if flaws.untimed:
        sentence = (
            f"{flaws.untimed:,} records of {topic} don't have the broker's time, so nobody can say whether they were early: "
            "message.timestamp.type must be LogAppendTime"
        )
        spots.append(BlindSpot(sentence=sentence, hides_outcomes=False))
    return spots


def _summary(counted: Counted, account: Account) -> str:
    latest = counted.flaws.max_late_ms
    lateness = "" if latest is None else f", {account.late:,} late, the latest by {max(latest, 0):,} ms"
    percentiles = counted.percentiles_ms
    if percentiles:
        lateness += f" (p50 {percentiles['p50']:,} ms, p99 {percentiles['p99']:,} ms)"
    overdue = f", of which {account.overdue:,} are overdue" if account.overdue else ""
    cancelled = f" {account.cancelled:,} cancelled," if account.cancelled else ""
    sample = "" if counted.one_in == 1 else f"of a sample, one in {counted.one_in:,} by a hash of its root: "
    return (
        f"{sample}{account.produced:,} records in {counted.topic} and {counted.topic}.delays: {account.released:,} released, "
        f"{account.hopped:,} hopped, {account.dead_lettered:,} dead-lettered,{cancelled} {account.pending:,} pending{overdue}{lateness}"
    )


def _name(topic: str, partition: PartitionAccount) -> str:
    return f"{topic if partition.topic_letter == 'f' else topic + '.delays'}-{partition.partition}"
