"""The checks of the audit. CHECKS has a row for each: which places have the flaw, which promise it breaks, and what the message says.

The counts, the verdict, the report and the names of the offenders are derived from these rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Final

from delayed_topics_core.audit_table import FLAW_NAMES
from delayed_topics_core.names import EVENTS_TOPIC
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import Column
from pyspark.sql import functions as sf

from delayed_topics_audit import facts, refusals
from delayed_topics_audit import header_columns as headers
from delayed_topics_audit.facts import has
from delayed_topics_audit.fates import has_fate
from delayed_topics_audit.promise import Promise


@dataclass(frozen=True, kw_only=True)
class Check:
    """Something that must not happen, or that the audit can't judge.

    name          the name of its count in the account and the tables, and of its offenders
    promise       the promise that it breaks, as the report names it. Empty: none; then, if there is a sentence, the verdict is Unknown
    certain       of a broken promise: neither retention nor a missing right can make it appear broken
    sentence      what the message says if the count is not 0, with placeholders that account fills in. Empty: account words it
    offenders_of  the check whose offenders the sentence names; None: its own
    """

    name: str
    promise: str = ""
    certain: bool = True
    sentence: str = ""
    offenders_of: str | None = None


@dataclass(frozen=True, kw_only=True)
class Flaw(Check):
    """A check of each place by itself. Its name is in FLAW_MEANINGS of core, for readers of the table, which also gives its bit.

    found  returns the condition for a place to have the flaw, over the columns that `places` gathers
    named  the parts of an offender's name, see checks.offenders; with `late_ms`, the offenders are sorted by it, the greatest first
    """

    found: Callable[[Promise], Column]
    named: Sequence[str] = ("place", "came_out_at")

    @property
    def bit(self) -> int:
        return FLAW_NAMES.index(self.name)


def _lost(_: Promise) -> Column:
    return has_fate("lost")


def _early(_: Promise) -> Column:
    """By a millisecond: workers wait for longer, by as much as the clocks of the brokers may differ."""
    return sf.col("late_ms") < 0


def _forged(_: Promise) -> Column:
    other_root = (sf.col("least_root") != sf.col("record_root")) | (sf.col("most_root") != sf.col("record_root"))
    return has(facts.UNFOUNDED) | (has(facts.OUTCOMES) & (~has(facts.RECORD) | other_root))


def _wrong_partition(_: Promise) -> Column:
    return in_wrong_place() | (has(facts.ELSEWHERE) & ~_forwarded())


@cache
def in_wrong_place() -> Column:
    """A worker's release is in another ready topic or partition than it should be, and no application can have put it there."""
    return (sf.col("judged_ends") > 0) & has(facts.MISPLACED)


@cache
def _forwarded() -> Column:
    """Whether each release outside the requested topic has the same time of writing as a release that is where it should be. Then it is an
    application's copy of that release. A worker that releases a record again writes the new time."""
    written = [
        sf.col(f"{name}_elsewhere_ms").between(sf.col("wrote_ms"), sf.col("last_wrote_ms"))
        for name in ("least", "most")
    ]
    return headers.or_false(written[0] & written[1])


def _changed(_: Promise) -> Column:
    changed = (sf.col("least_content") != sf.col("record_content")) | (
        sf.col("most_content") != sf.col("record_content")
    )
    # A dead letter that calls a readable record unreadable has another content hash. It is not compared, as its reason is wrong anyway.
    unread = refusals.one_of("least_reason", refusals.UNREADABLE) | refusals.one_of("most_reason", refusals.UNREADABLE)
    comparable = ~headers.or_false(unread) | headers.or_false(refusals.one_of("record_reason", refusals.UNREADABLE))
    return _seen() & changed & comparable


def _wrong_attempt(_: Promise) -> Column:
    unread = sf.col("least_reason").isNotNull() & refusals.one_of("record_reason", refusals.UNREADABLE)
    perhaps = sf.col("least_reason").isNotNull() & has(facts.GARBLED)
    # the attempt that a worker derives; null: it is not known
    attempt = sf.when(~headers.or_false(unread | perhaps), sf.col("attempt"))
    return _seen() & ((sf.col("least_attempt") != attempt) | (sf.col("most_attempt") != attempt))


def _over_cap(promise: Promise) -> Column:
    """Above every retry cap that may have applied at its time. The release itself is checked against the highest cap of all times."""
    above = has(facts.END_RELEASED) & (sf.col("most_attempt") > promise.cap(sf.greatest))
    return _judged() & (has(facts.OVER_CAP) | sf.coalesce(above, sf.lit(False)))


def _wrongly_dead_lettered(promise: Promise) -> Column:
    return _seen() & (_without_reason("least_reason", promise) | _without_reason("most_reason", promise))


_OF_TARGETS: Final = (DeadLetterReason.TARGET_NOT_ALLOWED, DeadLetterReason.TARGET_UNAVAILABLE)


def _without_reason(stated: str, promise: Promise) -> Column:
    """Whether the reason that a dead letter states is wrong. A record that is refused for another reason may also be too large for the
    dead-letter topic."""
    refused = sf.col("record_reason").eqNullSafe(sf.col(stated))
    # by the record's own headers, the attempt is within every cap that may have applied
    within_cap = sf.col("attempt") <= promise.cap(sf.least)
    allowed = sf.col("record_reason").isNotNull() | headers.or_false(within_cap)
    wrong = (
        sf.when(refusals.one_of(stated, [DeadLetterReason.TOO_LARGE]), ~has(facts.LARGE))
        .when(refusals.one_of(stated, [DeadLetterReason.INVALID_RECORD]), sf.lit(False))  # the topic decides that
        .when(refusals.one_of(stated, [DeadLetterReason.RETRY_CAP_EXCEEDED]), allowed)
        .when(refusals.one_of(stated, [DeadLetterReason.CANCELLED]), sf.col("record_reason").isNotNull())
        .when(refusals.one_of(stated, [DeadLetterReason.HEADER_UNREADABLE]), ~refused & ~has(facts.GARBLED))
        .when(refusals.one_of(stated, [DeadLetterReason.NO_LADDER]), ~_asks_too_much(promise, ladder=False))
        .when(refusals.one_of(stated, [DeadLetterReason.MAX_DELAY_EXCEEDED]), ~_asks_too_much(promise, ladder=True))
        .when(refusals.one_of(stated, _OF_TARGETS), ~has(facts.ASKS_TARGET) | sf.col("record_reason").isNotNull())
        .otherwise(~refused)
    )
    return sf.col(stated).isNotNull() & wrong


def _asks_too_much(promise: Promise, *, ladder: bool) -> Column:
    """Whether the record requests a due time that may have been refused: without a ladder, or with `ladder` because it was too far ahead.
    Every list that may have applied at its time counts. If one is not known, any due time may have been refused."""
    asks = sf.col("said_due_ms").isNotNull() & sf.col("record_reason").isNull()
    ahead_ms = sf.col("said_due_ms") - sf.col("appended_ms")
    refused = [
        declared.applied() & (ahead_ms > declared.max_delay_ms if declared.max_delay_ms is not None else sf.lit(True))
        for declared in promise.lists
        if ladder is (declared.max_delay_ms is not None)
    ]
    return asks & (~promise.is_known() | headers.or_false(reduce(Column.__or__, refused, sf.lit(False))))


def _wrongly_released(promise: Promise) -> Column:
    """Its own headers, or each ladder that it may have met, had a worker refuse the record. The retry cap is checked elsewhere."""
    unreadable = sf.col("record_reason").isNotNull() & ~has(facts.GARBLED)
    return _seen() & has(facts.END_RELEASED) & (unreadable | _asks_beyond_all(promise))


def _asks_beyond_all(promise: Promise) -> Column:
    """Whether the record requests a due time that none of the lists allowed which may have applied at its time."""
    asks = sf.col("said_due_ms").isNotNull() & sf.col("record_reason").isNull() & promise.is_known()
    ahead_ms = sf.col("said_due_ms") - sf.col("appended_ms")
    allowed = [
        declared.applied() & (ahead_ms <= declared.max_delay_ms)
        for declared in promise.lists
        if declared.max_delay_ms is not None
    ]
    return asks & ~headers.or_false(reduce(Column.__or__, allowed, sf.lit(False)))


def _late(promise: Promise) -> Column:
    return sf.col("late_ms") > promise.max_lateness_ms


def _doubled(_: Promise) -> Column:
    return sf.col("extra") > 0


def _overdue(promise: Promise) -> Column:
    waits = has_fate("pending") & ~has(facts.DONE)
    return waits & (sf.col("due_ms") < sf.lit(promise.overdue_before_ms))


def _foreign(_: Promise) -> Column:
    return has(facts.FOREIGN)


def _perhaps_unasked(_: Promise) -> Column:
    return _judged() & sf.col("moved") & ~has(facts.ASKED_TIME)


@cache
def _judged() -> Column:
    return sf.col("judged_ends") > 0


@cache
def _seen() -> Column:
    return _judged() & has(facts.ROOT)


CHECKS: Final[Sequence[Check]] = (
    Flaw(
        name="lost",
        found=_lost,
        promise="Never lost",
        certain=False,
        sentence="{records_were} lost{names}: the offset is committed, but no other topic has a copy",
        named=("place",),
    ),
    Flaw(
        name="early",
        found=_early,
        promise="Never early",
        sentence="{records_were} released before the due time{names}",
        named=("first_at", "late_ms"),
    ),
    Flaw(
        name="forged",
        found=_forged,
        promise="Nothing forged",
        certain=False,
        sentence="{copies_were} forged{names}: such a copy was not made from the record that it names as its origin",
    ),
    Check(  # counted by repeats
        name="doubled_beyond_promise",
        promise="No doubles beyond the promise",
        sentence="{copies_were} doubled{names}: the same root and attempt came out before, and no crash of a worker explains it",
        offenders_of="doubled",
    ),
    Check(  # counted by checks.disorder
        name="out_of_order",
        promise="In order",
        sentence="{records_were} released out of order{names}",
    ),
    Flaw(
        name="wrong_partition",
        found=_wrong_partition,
        promise="In the right partition",
        sentence="{records_were} released into the wrong ready topic or partition{names}",
    ),
    Flaw(
        name="changed",
        found=_changed,
        promise="Key, value and headers unchanged",
        sentence="{records_were} changed{names}: the key, the value or a header is not as it was produced",
    ),
    Flaw(
        name="wrong_attempt",
        found=_wrong_attempt,
        promise="The right attempt",
        sentence="{records_were} copied with the wrong dt-attempt{names}",
    ),
    Flaw(
        name="over_cap",
        found=_over_cap,
        promise="No more retries than the retry cap",
        sentence="{records_were} retried beyond the retry cap{names}: such a record belongs in the dead-letter topic",
    ),
    Flaw(
        name="wrongly_dead_lettered",
        found=_wrongly_dead_lettered,
        promise="Dead-lettered only for a reason",
        sentence="{records_were} dead-lettered without a reason{names}: "
        "the record's headers, its size, the retry cap or the control topic contradict dt-reason",
    ),
    Flaw(
        name="wrongly_released",
        found=_wrongly_released,
        promise="Dead-lettered if it must be",
        sentence="{records_were} released{names}, although a worker has to refuse such headers or such a due time",
    ),
    Flaw(name="late", found=_late, named=("first_at", "late_ms")),
    Flaw(name="doubled", found=_doubled, named=("place", "first_at", "last_at")),
    Flaw(name="overdue", found=_overdue),
    Flaw(
        name="foreign",
        found=_foreign,
        sentence="topic {ready} has {records} that no worker wrote. Only workers may write to this topic. Check its ACLs",
        named=("place",),
    ),
    Check(
        name="unexplained",
        sentence="{copies_were} doubled at a time for which there are no events of the workers. It is unknown whether a worker "
        f"ended just then. Allow the workers to write to topic {EVENTS_TOPIC} and the audit to read it. It keeps events for seven days",
    ),
    Check(
        name="untold",
        sentence="{copies_were} doubled, but no takeover that is known explains all of them. It is unknown whether another worker "
        "took over as well, and has not told yet or was killed before it could tell, or which takeover repeated which of them",
    ),
    Check(
        name="set_back",
        sentence="{copies_were} doubled after a worker took over, though the first copies came out over more than a minute or more than "
        "seven minutes before that, or an earlier audit had settled them. It is unknown whether Kafka had refused the commits of their "
        "partition since, no worker ran after a crash, or Kafka took the copies of a worker that ended, which is within the promise, or "
        "someone set the offsets of the consumer group back",
    ),
    Check(
        name="perhaps_too_many",
        sentence="{copies_were} doubled around takeovers, of so many records of the sample that one takeover may have repeated "
        "more of all records than the promise allows. An audit without a sample tells",
    ),
    Flaw(
        name="perhaps_unasked",
        found=_perhaps_unasked,
        sentence="{records} came out at another time than the delay list or dt-deliver-at says{names}. "
        "It is unknown whether anyone had asked for that time: {requests_unknown}",
    ),
)
"""The checks, in the order in which the message and the report have them."""
FLAWS: Final[Mapping[str, Flaw]] = {
    flaw.name: flaw for flaw in sorted((c for c in CHECKS if isinstance(c, Flaw)), key=lambda flaw: flaw.bit)
}
"""The flaws by name, in the order of their bits."""
BROKEN_PROMISES: Final = tuple(check for check in CHECKS if check.promise)
"""The checks that break a promise."""
UNKNOWN_DOUBLES: Final = ("unexplained", "untold", "set_back", "perhaps_too_many")
"""The checks that count doubles for which it is not known whether promise 3 covers them, see repeats."""


@cache
def has_flaw(flaw: str) -> Column:
    return sf.col("flaws").bitwiseAND(sf.lit(1 << FLAWS[flaw].bit)) != 0


def flaws_of(promise: Promise) -> Column:
    """Returns the bits of all flaws of a place."""
    bits = [sf.when(flaw.found(promise), 1 << flaw.bit).otherwise(0) for flaw in FLAWS.values()]
    return reduce(Column.bitwiseOR, bits)
