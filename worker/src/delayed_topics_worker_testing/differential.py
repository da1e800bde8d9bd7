"""The engine's decisions beside Python's: the same record, policy and time through both, and what comes out compared.

Python decides as the worker does, with `copies`. Whatever differs is raised as a Difference that shows the case.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import delayed_topics_engine as engine
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from delayed_topics_core.headers import Header
from delayed_topics_core.layout import Layout
from delayed_topics_core.registry import LayoutRecord, Owner
from delayed_topics_core.routing import DeadLetter, Decision, Policy, Wait, hop_on
from delayed_topics_worker.copies import MOST_CUTS, copy_of, cut, decide
from delayed_topics_worker.owned import Held, Owned
from delayed_topics_worker.served import Served

TOPIC_ID = "uT1eKVuTQ2--Rhh9b73dqg"


class Difference(AssertionError):
    """The engine and Python don't do the same with a record."""


class StubMessage:
    """A message, which only the client library can make."""

    def __init__(self, key: bytes | None, value: bytes | None, appended_at_ms: int | None) -> None:
        self._key, self._value, self._appended_at_ms = key, value, appended_at_ms

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        if self._appended_at_ms is None:
            return TIMESTAMP_CREATE_TIME, 1
        return TIMESTAMP_LOG_APPEND_TIME, self._appended_at_ms

    def __len__(self) -> int:
        return len(self._value or b"")


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
        self._served = Served.of("orders")
        self._served.layout = LayoutRecord(
            topic="orders",
            owner=Owner("c", "n", "o"),
            state="serving",
            layout=layout,
            retry_cap=retry_cap,
            front_partitions=1,
            ready_partitions=ready_partitions,
            group="g",
        )
        self._served.policy = self.policy
        self._served.dead_letter_partitions = 3
        self._owned: dict[tuple[str, int], Owned] = {}

    def __repr__(self) -> str:
        return repr(self.policy)

    def owned(self, door: Literal["f", "d"], partition: int) -> Owned:
        found = self._owned.get((door, partition))
        if found is None:
            names = self._served.names
            topic = names.front if door == "f" else names.delays
            found = Owned(self._served, topic, partition, generation=1, assigned_at=0)
            found.topic_id = TOPIC_ID
            self._owned[door, partition] = found
        return found


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

    def held(self) -> Held:
        stub = StubMessage(self.key, self.value, self.appended_at_ms)
        return Held(self.setting.owned(self.door, self.partition), self.offset, cast(Message, stub), self.headers)

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


def compare(case: Case) -> Iterator[str]:
    """What became of the record: when it was read, when it was looked at again, and when Kafka refused its copies.

    Raises Difference.
    """
    held, record, setting = case.held(), case.record(), case.setting
    decision = decide(held, setting.policy, case.now_ms)
    made = engine.decide(record, setting.engines, case.now_ms)
    yield _same(case, "when read", _outcome(held, decision, case.now_ms, waits=True), made)
    if isinstance(decision, Wait) and isinstance(made, engine.Wait):
        _refuses_early(case, record, made)
        turned = decision
        again: Decision = turned
        if turned.due_at_ms > case.later_ms:
            hop = hop_on(turned, setting.policy, case.later_ms)
            again = hop if hop is not None else turned._replace(turn_at_ms=turned.due_at_ms)
        waits = again is not turned and isinstance(again, Wait)
        now = engine.take_turn(record, made, setting.engines, case.later_ms)
        yield "then " + _same(case, "when its turn came", _outcome(held, again, case.later_ms, waits=waits), now)
    held.decision = decision
    while cut(held, held.decision):
        assert isinstance(held.decision, DeadLetter)
        foreign = held.cuts < MOST_CUTS
        smaller = engine.too_large(record, value_bytes=len(held.message), foreign_headers=foreign)
        _same(case, "when refused", _outcome(held, held.decision, case.now_ms, waits=False), smaller)


def _refuses_early(case: Case, record: engine.Record, wait: engine.Wait) -> None:
    for at_ms in (wait.due_at_ms - 1, wait.due_at_ms):
        try:
            engine.release(record, wait, at_ms)
            released = True
        except ValueError:
            released = False
        if released != (at_ms >= wait.due_at_ms):
            raise Difference(f"released at {at_ms}: {released}, though due at {wait.due_at_ms}: {case}")


def _outcome(held: Held, decision: Decision, now_ms: int, *, waits: bool) -> tuple[object, ...]:
    """As `_engines_outcome`, of what Python decided; `waits`: a Wait is held and not released."""
    root = decision.root.encode()
    if isinstance(decision, Wait) and waits:
        turn = decision.due_at_ms, decision.turn_at_ms
        return "wait", root, *turn, decision.ready_partition, decision.misrouted
    copy = copy_of(held, decision, now_ms)
    names = held.owned.served.names
    target = {names.ready: "ready", names.delays: "delays", names.dead_letter: "dead-letter"}[copy.topic]
    reason = decision.reason.value if isinstance(decision, DeadLetter) else None
    due_at_ms = None if isinstance(decision, DeadLetter) else decision.due_at_ms
    headers = [(name.encode(), value) for name, value in copy.headers]
    return target, root, copy.partition, due_at_ms, reason, headers


def _engines_outcome(case: Case, made: engine.Wait | engine.Copy) -> tuple[object, ...]:
    if isinstance(made, engine.Wait):
        return "wait", made.root, made.due_at_ms, made.turn_at_ms, made.ready_partition, made.misrouted
    partition = made.partition
    if made.target == "dead-letter":
        partition %= case.setting.owned(case.door, case.partition).served.dead_letter_partitions
    return made.target, made.root, partition, made.due_at_ms, made.reason, made.headers


def _same(case: Case, when: str, outcome: tuple[object, ...], made: engine.Wait | engine.Copy) -> str:
    engines = _engines_outcome(case, made)
    if outcome != engines:
        raise Difference(f"{when}, Python: {outcome}, the engine: {engines}: {case}")
    if isinstance(made, engine.Wait):
        return "wait"
    return made.target if made.reason is None else made.reason
