"""The engine's decisions beside Python's: the same record, policy and time through both, and what comes out compared.

Python decides with `delayed_topics_core.routing` and writes with `delayed_topics_core.headers`, by `Oracle`. Whatever differs is
raised as a Difference that shows the case.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import delayed_topics_engine as engine
from delayed_topics_core.headers import Header, OwnHeaders, Root, origin, write_dead_letter, write_hop, write_release
from delayed_topics_core.layout import Layout
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core.routing import (
    DeadLetter,
    Decision,
    Hop,
    Policy,
    Source,
    Wait,
    decide_delays,
    decide_front,
    hop_on,
)

TOPIC_ID = "uT1eKVuTQ2--Rhh9b73dqg"
DEAD_LETTER_PARTITIONS = 3


class Difference(AssertionError):
    """The engine and Python don't do the same with a record."""


class Setting:
    """A policy, as both know it."""

    def __init__(self, layout: Layout, *, retry_cap: int, ready_partitions: int) -> None:
        self.policy = Policy(layout, retry_cap, ready_partitions)
        self.engines = engine.Policy(
            delay_seconds=layout.delay_seconds,
            partition_delays=layout.partition_delays,
            retry_cap=retry_cap,
            ready_partitions=ready_partitions,
        )

    def __repr__(self) -> str:
        return repr(self.policy)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A record, what is known when it is read, and a time at which it is looked at again.

    `appended_at_ms` None: the topic has producers' times. `headers` None: a name can't be read.
    """

    setting: Setting = field(repr=False)
    door: Literal["f", "d"]
    partition: int
    offset: int
    appended_at_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] | None
    now_ms: int
    later_ms: int

    def __str__(self) -> str:
        return f"{self!r} under {self.setting!r}"

    def record(self) -> engine.Record:
        delays = self.setting.policy.layout.partition_delays
        return engine.Record(
            delay_seconds=delays[self.partition] if self.door == "d" else None,
            partition=self.partition,
            offset=self.offset,
            topic_id=TOPIC_ID,
            appended_at_ms=self.appended_at_ms,
            key=self.key,
            headers=None if self.headers is None else [(name.encode(), value) for name, value in self.headers],
        )


class Oracle:
    """What Python makes of a case."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def decide(self) -> Decision:
        """When the record was read."""
        case, policy = self._case, self._case.setting.policy
        # a producer's clock decides nothing
        appended_at_ms = case.now_ms if case.appended_at_ms is None else case.appended_at_ms
        source = Source(case.partition, case.offset, TOPIC_ID, appended_at_ms)
        if case.headers is None:
            root = Root(case.door, case.partition, case.offset, TOPIC_ID)
            error = "a header key is not UTF-8; the headers are left out"
            return DeadLetter(OwnHeaders(), root, DeadLetterReason.HEADER_UNREADABLE, error)
        if case.door == "f":
            return decide_front(case.headers, source, policy, case.now_ms)
        return decide_delays(case.headers, case.key, source, policy)

    def copy_of(self, decision: Decision, now_ms: int, *, foreign_headers: bool = True) -> tuple[object, ...]:
        """Target, root, partition, due time, reason and headers."""
        read = self._case
        made_from = origin(read.door, read.partition, read.offset)
        headers = read.headers or ()
        own, root = decision.own, decision.root
        due_at_ms: int | None = None
        reason: str | None = None
        match decision:
            case Wait():
                due_at_ms = decision.due_at_ms
                target, partition = "ready", decision.ready_partition
                written = write_release(
                    headers, own, root=root, origin=made_from, due_at_ms=due_at_ms, released_at_ms=now_ms
                )
            case Hop():
                due_at_ms = decision.due_at_ms
                target, partition = "delays", decision.partition
                written = write_hop(headers, own, root=root, origin=made_from, due_at_ms=due_at_ms)
            case DeadLetter(reason=why, error=error):
                target, partition, reason = "dead-letter", root.partition % DEAD_LETTER_PARTITIONS, why.value
                kept = headers if foreign_headers else ()
                written = write_dead_letter(kept, own, root=root, origin=made_from, reason=why, error=error)
        return target, root.encode(), partition, due_at_ms, reason, [(name.encode(), value) for name, value in written]

    def too_large(self, decision: Decision) -> DeadLetter:
        """After the copy was refused."""
        error = f"the copy of {len(self._case.value or b'')} bytes was refused as too large"
        return DeadLetter(decision.own, decision.root, DeadLetterReason.TOO_LARGE, error)


def compare(case: Case) -> Iterator[str]:
    """What became of the record: when it was read, when it was looked at again, and when Kafka refused its copies.

    Raises Difference.
    """
    oracle, record, setting = Oracle(case), case.record(), case.setting
    decision = oracle.decide()
    made = engine.decide(record, setting.engines, case.now_ms)
    waits = isinstance(decision, Wait)
    yield _same(case, "when read", _held(decision) if waits else oracle.copy_of(decision, case.now_ms), made)
    if isinstance(decision, Wait) and isinstance(made, engine.Wait):
        _refuses_early(case, record, made)
        again: Decision = decision
        if decision.due_at_ms > case.later_ms:
            hop = hop_on(decision, setting.policy, case.later_ms)
            again = hop if hop is not None else decision._replace(turn_at_ms=decision.due_at_ms)
        waits = again is not decision and isinstance(again, Wait)
        now = engine.take_turn(record, made, setting.engines, case.later_ms)
        outcome = _held(again) if waits else oracle.copy_of(again, case.later_ms)
        yield "then " + _same(case, "when its turn came", outcome, now)
    cut = oracle.too_large(decision)
    for foreign_headers in (True, False):
        smaller = engine.too_large(record, value_bytes=len(case.value or b""), foreign_headers=foreign_headers)
        outcome = oracle.copy_of(cut, case.now_ms, foreign_headers=foreign_headers)
        _same(case, "when refused", outcome, smaller)


def _held(decision: Decision) -> tuple[object, ...]:
    assert isinstance(decision, Wait)
    turn = decision.due_at_ms, decision.turn_at_ms
    return "wait", decision.root.encode(), *turn, decision.ready_partition, decision.misrouted


def _refuses_early(case: Case, record: engine.Record, wait: engine.Wait) -> None:
    for at_ms in (wait.due_at_ms - 1, wait.due_at_ms):
        try:
            engine.release(record, wait, at_ms)
            released = True
        except ValueError:
            released = False
        if released != (at_ms >= wait.due_at_ms):
            raise Difference(f"released at {at_ms}: {released}, though due at {wait.due_at_ms}: {case}")


def _engines_outcome(made: engine.Wait | engine.Copy) -> tuple[object, ...]:
    """As `Oracle.copy_of`, or `_held`, of what the engine decided."""
    if isinstance(made, engine.Wait):
        return "wait", made.root, made.due_at_ms, made.turn_at_ms, made.ready_partition, made.misrouted
    partition = made.partition
    if made.target == "dead-letter":
        partition %= DEAD_LETTER_PARTITIONS
    return made.target, made.root, partition, made.due_at_ms, made.reason, made.headers


def _same(case: Case, when: str, outcome: tuple[object, ...], made: engine.Wait | engine.Copy) -> str:
    engines = _engines_outcome(made)
    if outcome != engines:
        raise Difference(f"{when}, Python: {outcome}, the engine: {engines}: {case}")
    if isinstance(made, engine.Wait):
        return "wait"
    return made.target if made.reason is None else made.reason
