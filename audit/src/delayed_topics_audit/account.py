"""From counts to a verdict. Pure: what Spark counted comes in, a sentence goes out."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final, Literal, NamedTuple

from delayed_topics_core import words
from delayed_topics_core.names import EVENTS_TOPIC, TopicNames

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

    def name(self, topic: str) -> str:
        """Kafka topic and partition, by the front topic."""
        names = TopicNames.of(topic)
        return f"{names.front if self.topic_letter == 'f' else names.delays}-{self.partition}"


@dataclass(frozen=True, kw_only=True)
class Flaws:
    """How many places have which flaw (see places.FLAWS), and what goes with them.

    doubled         copies beyond the first
    doubled_beyond_promise   those of them that promise 3 doesn't cover
    unexplained     those of them of which nobody knows, since the workers' events of that time can't be read
    untold          those of them of which nobody knows, since there may have been a takeover that no event tells of, or another one
                    of those that are told may have repeated them
    set_back        those of them of which nobody knows, since one takeover repeated what had come out over a long time
    perhaps_too_many  those of them of which nobody knows, since they are a sample of perhaps more than a takeover may repeat
    out_of_order    neighbours that came out in the other order
    max_late_ms     None if nothing was released
    ended           attempts that were judged by their ends; unread_roots: of these, whose beginning was not read, or has no time
    overdue         pending though they were due, by more than a release may be late
    perhaps_unasked came out at another time than they were to, and it is not known whether anyone had asked for that
    perhaps_forwarded  those of wrong_partition that are none if a release was not seen of which an application made a copy
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
    doubled: int = 0
    doubled_beyond_promise: int = 0
    unexplained: int = 0
    untold: int = 0
    set_back: int = 0
    perhaps_too_many: int = 0
    out_of_order: int = 0
    max_late_ms: int | None = None
    ended: int = 0
    unread_roots: int = 0
    overdue: int = 0
    wrongly_dead_lettered: int = 0
    perhaps_unasked: int = 0
    perhaps_forwarded: int = 0
    rejected: int = 0

    @property
    def doubled_unknown(self) -> int:
        """Those of `doubled` of which nobody knows whether promise 3 covers them."""
        return self.unexplained + self.untold + self.set_back + self.perhaps_too_many


@dataclass(frozen=True, kw_only=True)
class BlindSpot:
    """What the audit can't see. `hides_outcomes`: a record that seems lost may have come out there, and what seems to be in a wrong ready
    topic may be a copy of what did. `only_losses`: where nothing seems so, nothing was hidden."""

    sentence: str
    hides_outcomes: bool
    only_losses: bool = False


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Everything that was counted over one window. `percentiles_ms`: of lateness, by name. `one_in`: of so many records one.
    `overdue_ms`: for how long what is overdue has been due, at the most. `offsets_read`: of all topics. `requests_unknown`: why it is not
    known what was asked for in the control topic; None: it is. `untimed`: by topic, releases that the broker did not stamp."""

    topic: str
    partitions: Sequence[PartitionAccount]
    flaws: Flaws
    one_in: int = 1
    percentiles_ms: Mapping[str, int] = field(default_factory=dict)
    pending_since_ms: int | None = None
    overdue_ms: int = 0
    offsets_read: int = 0
    requests_unknown: str | None = None
    untimed: Mapping[str, int] = field(default_factory=dict)
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
    doubled_unknown: int = 0
    out_of_order: int = 0
    wrong_partition: int = 0
    changed: int = 0
    wrong_attempt: int = 0
    over_cap: int = 0
    forged: int = 0
    overdue: int = 0
    wrongly_dead_lettered: int = 0
    offsets_read: int = 0

    @property
    def doubled_within_promise(self) -> int:
        return self.doubled - self.doubled_beyond_promise - self.doubled_unknown


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
        f"partition {p.name(counted.topic)} doesn't add up: {p.produced:,} produced, but {p.accounted:,} accounted for"
        for p in counted.partitions
        if p.produced != p.accounted
    ]
    unclear = account.lost or account.forged or counted.flaws.perhaps_forwarded or broken
    spots = [spot for spot in blind_spots if unclear or not spot.only_losses]
    spots += [BlindSpot(sentence=sentence, hides_outcomes=False) for sentence in _unsure(counted)]
    hidden = any(spot.hides_outcomes for spot in spots)
    known = replace(account, wrong_partition=account.wrong_partition - counted.flaws.perhaps_forwarded)
    certain = any(getattr(known, term) for term, promise in PROMISES.items() if promise.certain) or (
        unclear and not hidden
    )
    verdict: Verdict = "Violated" if certain else "Unknown" if spots else "Verified"
    sentences = [
        *_findings(account, counted.offenders),
        *broken[:MAX_OFFENDERS],
        *(spot.sentence for spot in spots),
        _summary(counted, account),
        *_unjudged(counted, account),
    ]
    return Result(
        verdict=verdict,
        message=joined(sentences),
        account=account,
        pending_since_ms=counted.pending_since_ms,
        offenders=counted.offenders,
    )


def unseen(spots: Sequence[BlindSpot]) -> Result:
    """Nothing was read: it would not be what the window means."""
    return Result(verdict="Unknown", message=joined(spot.sentence for spot in spots))


def joined(sentences: Iterable[str]) -> str:
    """One message of several sentences, which have neither a capital nor a full stop."""
    return ". ".join(said if at == 0 else said[:1].upper() + said[1:] for at, said in enumerate(sentences))


_LAW: Final = ("produced", "released", "hopped", "dead_lettered", "cancelled", "pending", "lost")


class Broken(NamedTuple):
    """A promise, what is said of a record that breaks it, and why that is wrong. `certain`: neither retention nor a missing right can
    make it up."""

    promise: str
    what: str
    why: str = ""
    certain: bool = True


PROMISES: Final[Mapping[str, Broken]] = {
    "lost": Broken("Never lost", "lost", "the offset is committed, but no other topic has a copy", certain=False),
    "early": Broken("Never early", "released before the due time"),
    "forged": Broken(
        "Nothing forged",
        "forged",
        "such a copy was not made from the record that it names as its origin",
        certain=False,
    ),
    "doubled_beyond_promise": Broken(
        "No doubles beyond the promise",
        "doubled",
        "the same root and attempt came out before, and no crash of a worker explains it",
    ),
    "out_of_order": Broken("In order", "released out of order"),
    "wrong_partition": Broken("In the right partition", "released into the wrong ready topic or partition"),
    "changed": Broken(
        "Key, value and headers unchanged", "changed", "the key, the value or a header is not as it was produced"
    ),
    "wrong_attempt": Broken("The right attempt", "copied with the wrong dt-attempt"),
    "over_cap": Broken(
        "No more retries than the retry cap",
        "retried beyond the retry cap",
        "such a record belongs in the dead-letter topic",
    ),
    "wrongly_dead_lettered": Broken(
        "Dead-lettered only for a reason",
        "dead-lettered without a reason",
        "the record's headers, its size, the retry cap or the control topic contradict dt-reason",
    ),
}
BROKEN_PROMISES: Final = tuple(PROMISES)
"""The terms of an account that count what must not be."""
_OFFENDERS_OF: Final = {"doubled_beyond_promise": "doubled"}
_COPIES: Final = ("forged", "doubled_beyond_promise")
"""The terms that count copies and not records."""
_PLURALS: Final = {"copy": "copies", "record": "records"}


def _total(counted: Counted) -> Account:
    def total(term: str) -> int:
        return sum(getattr(partition, term) for partition in counted.partitions)

    of_flaws = {term.name for term in fields(Account)} - {*_LAW, "offsets_read"}
    return Account(
        **{term: total(term) for term in _LAW},
        **{term: getattr(counted.flaws, term) for term in of_flaws},
        offsets_read=counted.offsets_read,
    )


def _findings(account: Account, offenders: Mapping[str, Sequence[str]]) -> list[str]:
    said = []
    for term, (_, what, why, _) in PROMISES.items():
        count = getattr(account, term)
        if count:
            names = offenders.get(_OFFENDERS_OF.get(term, term), ())
            first = f" ({', '.join(names[:3])})" if names else ""
            said.append(
                f"{_were(count, 'copy' if term in _COPIES else 'record')} {what}{first}" + (f": {why}" if why else "")
            )
    if account.doubled_within_promise:
        doubled = f"{_were(account.doubled_within_promise, 'copy')} doubled within the promise"
        said.append(f"{doubled} because a worker crashed before it could commit")
    return said


def _were(count: int, noun: str) -> str:
    return f"{count:,} {noun} was" if count == 1 else f"{count:,} {_PLURALS[noun]} were"


def _unsure(counted: Counted) -> Iterator[str]:
    """What records show that can't be judged, each in a sentence."""
    flaws, topic = counted.flaws, TopicNames.of(counted.topic).ready
    if flaws.foreign:
        yield (
            f"topic {topic} has {words.counted(flaws.foreign, 'record')} that no worker wrote. "
            "Only workers may write to this topic. Check its ACLs"
        )
    if flaws.unexplained:
        yield (
            f"{_were(flaws.unexplained, 'copy')} doubled at a time for which there are no events of the workers. It is unknown "
            f"whether a worker ended just then. Allow the workers to write to topic {EVENTS_TOPIC} and the audit to read it. It keeps "
            "events for seven days"
        )
    if flaws.untold:
        yield (
            f"{_were(flaws.untold, 'copy')} doubled around takeovers, but no takeover that is known explains all of them. It is unknown "
            "whether another worker took over as well, and was killed before it could tell, or which takeover repeated which of them"
        )
    if flaws.set_back:
        yield (
            f"{_were(flaws.set_back, 'copy')} doubled after a worker took over, though the first copies came out over more than a minute. "
            "It is unknown whether Kafka had refused the commits of their partition since, which is within the promise, or someone set "
            "the offsets of the consumer group back"
        )
    if flaws.perhaps_too_many:
        yield (
            f"{_were(flaws.perhaps_too_many, 'copy')} doubled around takeovers, of so many records of the sample that one takeover may "
            "have repeated more of all records than the promise allows. An audit without a sample tells"
        )
    if flaws.perhaps_unasked:
        names = ", ".join(counted.offenders.get("perhaps_unasked", ())[:3])
        yield (
            f"{words.counted(flaws.perhaps_unasked, 'record')} came out at another time than the delay list or dt-deliver-at says "
            f"({names}). It is unknown whether anyone had asked for that time: {counted.requests_unknown}"
        )
    if flaws.unread_roots * UNREAD_ROOTS_ONE_IN > flaws.ended:
        yield (
            f"of {flaws.ended:,} attempts that ended, {flaws.unread_roots:,} can't be judged, which is more than one in "
            f"{UNREAD_ROOTS_ONE_IN:,}. The record with which such an attempt began is gone, or does not have the broker's time"
        )
    if counted.overdue_ms > MAX_OVERDUE_MS:
        names = ", ".join(counted.offenders.get("overdue", ())[:3])
        yield (
            f"{words.counted(flaws.overdue, 'record')} {'is' if flaws.overdue == 1 else 'are'} overdue ({names}) by up to "
            f"{counted.overdue_ms // 1000:,} s. What is overdue is due and was not released, and it is unknown whether it will be. "
            "See the conditions of the DelayedTopic for what delays the workers"
        )
    for released_into, count in counted.untimed.items():
        yield (
            f"topic {released_into} has {words.counted(count, 'record')} without the broker's time, "
            "so it is unknown whether they were early. The topic's message.timestamp.type must be LogAppendTime"
        )


def _summary(counted: Counted, account: Account) -> str:
    latest, names = counted.flaws.max_late_ms, TopicNames.of(counted.topic)
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


def _unjudged(counted: Counted, account: Account) -> list[str]:
    if counted.requests_unknown is None or not account.cancelled:
        return []
    return [
        f"it is unknown whether anyone had asked to cancel the {account.cancelled:,} cancelled records: {counted.requests_unknown}"
    ]
