"""Turns the counts of Spark into a verdict and a sentence."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final, Literal

from delayed_topics_core import words
from delayed_topics_core.names import TopicNames

from delayed_topics_audit.flaws import BROKEN_PROMISES, CHECKS, UNKNOWN_DOUBLES, Check

Verdict = Literal["Verified", "Violated", "Unknown"]

MAX_RESULT_BYTES: Final = 4096
"""Kubernetes truncates a container's termination message at this size."""
MAX_OFFENDERS: Final = 10
UNREAD_ROOTS_ONE_IN: Final = 1000
"""A few attempts may have waited longer than the longest delay, because of an outage. If there are more, the audit does not guess."""
MAX_OVERDUE_MS: Final = 600_000
"""A rebalance or the restart of a broker holds up workers for less than this."""
MAX_MESSAGE_CHARS: Final = 1500


@dataclass(frozen=True, kw_only=True)
class PartitionAccount:
    """The terms of the account for one partition of the front ("f") or delays ("d") topic."""

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

    def name(self, topic: str) -> str:
        """Returns the name of the partition in Kafka. `topic` is the front topic."""
        names = TopicNames.of(topic)
        return f"{names.front if self.topic_letter == 'f' else names.delays}-{self.partition}"


@dataclass(frozen=True, kw_only=True)
class BlindSpot:
    """Something that the audit can't see. With `hides_outcomes`, a record that seems lost may have come out there, and a record that seems
    to be in a wrong ready topic may be a copy of one that did. With `only_losses`, no verdict depends on it if no record seems so: then it
    can only hide that a record which came out had come out before, and the message says that."""

    sentence: str
    hides_outcomes: bool
    only_losses: bool = False


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Everything that was counted over one window.

    flaws              by the name of a check, how many places, copies or neighbours it found; a check that is missing here found none
    perhaps_forwarded  those of wrong_partition that are not flaws if an application copied them from a release that was not read
    one_in             one record in so many was counted
    percentiles_ms     of lateness, by name; max_late_ms: None if nothing was released
    ended              the number of attempts that were judged by their ends
    unread_roots       those of `ended` whose beginning was not read, or does not have the broker's time
    overdue_ms         how long the oldest overdue record has been due
    offsets_read       in all topics
    ends_before_now    records that came in after the window, including hops, belong to a later window
    requests_unknown   why the requests in the control topic are not known; None: they are
    known_later        a later audit of the same records may know more of what is unknown
    untimed            by topic, the number of releases without the broker's time
    """

    topic: str
    partitions: Sequence[PartitionAccount]
    flaws: Mapping[str, int] = field(default_factory=dict)
    perhaps_forwarded: int = 0
    one_in: int = 1
    percentiles_ms: Mapping[str, int] = field(default_factory=dict)
    max_late_ms: int | None = None
    ended: int = 0
    unread_roots: int = 0
    pending_since_ms: int | None = None
    overdue_ms: int = 0
    offsets_read: int = 0
    ends_before_now: bool = False
    requests_unknown: str | None = None
    known_later: bool = False
    untimed: Mapping[str, int] = field(default_factory=dict)
    offenders: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of all partitions: produced = released + hopped + dead_lettered + cancelled + pending + lost.

    `offsets_read` is the number of offsets that were read for this account, in all topics.
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
    doubled_unknown: int = 0
    out_of_order: int = 0
    wrong_partition: int = 0
    changed: int = 0
    wrong_attempt: int = 0
    over_cap: int = 0
    forged: int = 0
    overdue: int = 0
    wrongly_dead_lettered: int = 0
    wrongly_released: int = 0
    offsets_read: int = 0

    @property
    def doubled_within_promise(self) -> int:
        return self.doubled - self.doubled_beyond_promise - self.doubled_unknown


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result that the operator writes into the resource. `account` is None if nothing was counted. `unfinished` says that the next
    audit of the chain has to judge the same records again.

    The next audit of the chain needs `pending_since_ms`, the earliest time at which the attempt of a pending record began, and
    `carried_sha256`, the hash of the table that was written for it.
    """

    verdict: Verdict
    message: str
    account: Account | None = None
    unfinished: bool = False
    pending_since_ms: int | None = None
    carried_sha256: str | None = None
    offenders: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def encode(self) -> str:
        """Returns JSON of at most MAX_RESULT_BYTES, with as many offenders as fit."""
        sizes = [(most, MAX_MESSAGE_CHARS) for most in range(MAX_OFFENDERS, -1, -1)]
        for most, chars in (*sizes, (0, MAX_MESSAGE_CHARS // 5)):  # JSON may need twelve bytes for a character
            body = {**asdict(self), "message": self.message[:chars]}
            body["offenders"] = {kind: list(names[:most]) for kind, names in self.offenders.items() if names[:most]}
            text = json.dumps(body)
            if len(text) <= MAX_RESULT_BYTES:
                break
        return text


def judge(counted: Counted, blind_spots: Sequence[BlindSpot] = ()) -> Result:
    """Returns the result. The verdict is Violated if a promise was certainly broken. Otherwise it is Unknown, and never Verified, if the
    audit can't see something."""
    account = _total(counted)
    broken = [
        f"partition {p.name(counted.topic)} doesn't add up: {p.produced:,} produced, but {p.accounted:,} accounted for"
        for p in counted.partitions
        if p.produced != p.accounted
    ]
    unclear = (
        any(getattr(account, check.name) for check in BROKEN_PROMISES if not check.certain)
        or counted.perhaps_forwarded
        or broken
    )
    spots = [spot for spot in blind_spots if unclear or not spot.only_losses]
    spots += [BlindSpot(sentence=sentence, hides_outcomes=False) for sentence in _unsure(counted)]
    hidden = any(spot.hides_outcomes for spot in spots)
    known = replace(account, wrong_partition=account.wrong_partition - counted.perhaps_forwarded)
    certain = any(getattr(known, check.name) for check in BROKEN_PROMISES if check.certain) or (unclear and not hidden)
    verdict: Verdict = "Violated" if certain else "Unknown" if spots else "Verified"
    sentences = [
        *_broken(counted, account),
        *broken[:MAX_OFFENDERS],
        *(spot.sentence for spot in spots),
        _summary(counted, account),
        *_unjudged(counted, account),
        *_perhaps_before(spot for spot in blind_spots if spot.only_losses and not unclear),
    ]
    return Result(
        verdict=verdict,
        message=joined(sentences),
        account=account,
        unfinished=verdict == "Unknown" and counted.known_later,
        pending_since_ms=counted.pending_since_ms,
        offenders=counted.offenders,
    )


def unseen(spots: Sequence[BlindSpot]) -> Result:
    """Returns the result of an audit that counted nothing, because Kafka no longer has what the window describes."""
    return Result(verdict="Unknown", message=joined(spot.sentence for spot in spots))


def joined(sentences: Iterable[str]) -> str:
    """Joins sentences, which come without a capital and a full stop, into one message."""
    return ". ".join(text if at == 0 else text[:1].upper() + text[1:] for at, text in enumerate(sentences))


_TERMS: Final = ("produced", "released", "hopped", "dead_lettered", "cancelled", "pending", "lost")


_PLURALS: Final = {"copy": "copies", "record": "records"}


def _total(counted: Counted) -> Account:
    def total(term: str) -> int:
        return sum(getattr(partition, term) for partition in counted.partitions)

    counts = {
        **counted.flaws,
        "doubled_unknown": sum(counted.flaws.get(name, 0) for name in UNKNOWN_DOUBLES),
        "offsets_read": counted.offsets_read,
        **{term: total(term) for term in _TERMS},
    }
    return Account(**{term.name: counts.get(term.name, 0) for term in fields(Account)})


def _broken(counted: Counted, account: Account) -> Iterator[str]:
    for check in BROKEN_PROMISES:
        if count := getattr(account, check.name):
            yield _sentence(check, count, counted)
    if account.doubled_within_promise:
        doubled = f"{_were(account.doubled_within_promise, 'copy')} doubled within the promise"
        yield f"{doubled} because a worker crashed before it could commit"


def _sentence(check: Check, count: int, counted: Counted) -> str:
    return check.sentence.format(
        records=words.counted(count, "record"),
        records_were=_were(count, "record"),
        copies_were=_were(count, "copy"),
        names=_named(counted, check.offenders_of or check.name),
        ready=TopicNames.of(counted.topic).ready,
        requests_unknown=counted.requests_unknown,
    )


def _named(counted: Counted, kind: str) -> str:
    """Returns the first offenders in brackets, or an empty text if none are known."""
    names = counted.offenders.get(kind, ())[:3]
    return f" ({', '.join(names)})" if names else ""


def _were(count: int, noun: str) -> str:
    return f"{count:,} {noun} was" if count == 1 else f"{count:,} {_PLURALS[noun]} were"


def _unsure(counted: Counted) -> Iterator[str]:
    """Yields a sentence for each thing that the audit can't judge from the records."""
    for check in CHECKS:
        count = counted.flaws.get(check.name, 0)
        if check.sentence and not check.promise and count:
            yield _sentence(check, count, counted)
    if counted.unread_roots * UNREAD_ROOTS_ONE_IN > counted.ended:
        yield (
            f"of {counted.ended:,} attempts that ended, {counted.unread_roots:,} can't be judged, which is more than one in "
            f"{UNREAD_ROOTS_ONE_IN:,}. The record with which such an attempt began is gone, or does not have the broker's time"
        )
    if counted.overdue_ms > MAX_OVERDUE_MS:
        overdue = counted.flaws.get("overdue", 0)
        yield (
            f"{words.counted(overdue, 'record')} {'is' if overdue == 1 else 'are'} overdue{_named(counted, 'overdue')} by up to "
            f"{counted.overdue_ms // 1000:,} s. What is overdue is due and was not released, and it is unknown whether it will be. "
            "See the conditions of the DelayedTopic for what delays the workers"
        )
    for released_into, count in counted.untimed.items():
        yield (
            f"topic {released_into} has {words.counted(count, 'record')} without the broker's time, "
            "so it is unknown whether they were early. The topic's message.timestamp.type must be LogAppendTime"
        )


def _summary(counted: Counted, account: Account) -> str:
    latest, names = counted.max_late_ms, TopicNames.of(counted.topic)
    lateness = "" if latest is None else f", {account.late:,} late, the latest by {max(latest, 0):,} ms"
    percentiles = counted.percentiles_ms
    if percentiles:
        lateness += f" (p50 {percentiles['p50']:,} ms, p99 {percentiles['p99']:,} ms)"
    overdue = f", of which {account.overdue:,} are overdue" if account.overdue else ""
    cancelled = f" {account.cancelled:,} cancelled," if account.cancelled else ""
    sample = "" if counted.one_in == 1 else f"in a sample (one record in {counted.one_in:,}, by a hash of the root), "
    return (
        f"{sample}{account.produced:,} records in {names.front} and {names.delays}: {account.released:,} released, "
        f"{account.hopped:,} hopped, {account.dead_lettered:,} dead-lettered,{cancelled} {account.pending:,} pending{overdue}{lateness}"
    )


def _unjudged(counted: Counted, account: Account) -> Iterator[str]:
    if counted.ends_before_now and account.hopped:
        yield (
            "hops that workers made at or after the end of the window belong to a later window. This account does not say what "
            "became of them"
        )
    if counted.requests_unknown is not None and account.cancelled:
        yield (
            f"it is unknown whether anyone had asked to cancel the {account.cancelled:,} cancelled records: "
            f"{counted.requests_unknown}"
        )


def _perhaps_before(spots: Iterable[BlindSpot]) -> Iterator[str]:
    sentences = [spot.sentence for spot in spots]
    if sentences:
        yield from sentences
        yield "no record is missing, but if one had come out there before, this audit can't tell that it was doubled or early"
