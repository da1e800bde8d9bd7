"""What becomes of a record: released when it is due, hopped into a delays partition, or dead-lettered. Pure: time is passed in."""

from collections.abc import Sequence
from typing import NamedTuple

from delayed_topics_core.errors import UnreadableHeader
from delayed_topics_core.headers import Header, OwnHeaders, Root, has_own, read_delays, read_front
from delayed_topics_core.layout import Layout
from delayed_topics_core.partitioner import partition_for_key
from delayed_topics_core.reasons import DeadLetterReason

HELD_IN_MEMORY_MS = 1000
"""A remainder below this is waited out in the window: no kind is shorter than one second."""


class Policy(NamedTuple):
    """What routing needs of a layout record."""

    layout: Layout
    retry_cap: int
    ready_partitions: int


class Source(NamedTuple):
    """A record's place. `appended_at_ms` is the broker's append time (or the time it was read, if the topic isn't LogAppendTime)."""

    partition: int
    offset: int
    topic_id: str
    appended_at_ms: int


class Wait(NamedTuple):
    """Hold in the window until `turn_at_ms`; then it is released, if it is due, or hops on."""

    own: OwnHeaders
    root: Root
    delay_seconds: int
    due_at_ms: int
    turn_at_ms: int
    ready_partition: int
    misrouted: bool = False


class Hop(NamedTuple):
    """Copy to `partition` of the delays topic."""

    own: OwnHeaders
    root: Root
    due_at_ms: int
    partition: int


class DeadLetter(NamedTuple):
    """Copy to the dead-letter topic, partition of the root modulo the topic's partitions."""

    own: OwnHeaders
    root: Root
    reason: DeadLetterReason
    error: str


Decision = Wait | Hop | DeadLetter


def decide_front(headers: Sequence[Header], source: Source, policy: Policy, now_ms: int) -> Decision:
    """A record of a front partition. Due now (or within a second) → wait in the window, otherwise → hop."""
    root = Root("f", source.partition, source.offset, source.topic_id)
    try:
        own = read_front(headers)
    except UnreadableHeader as e:
        return DeadLetter(OwnHeaders(), root, e.reason, str(e))
    refused = _refused(own, root, policy.retry_cap)
    if refused is not None:
        return refused
    delay_seconds = _delay(own, policy.layout)
    due_at_ms = source.appended_at_ms + delay_seconds * 1000
    kind = next_kind(policy.layout, delay_seconds, due_at_ms - now_ms)
    if kind is None:
        ready_partition = source.partition % policy.ready_partitions
        return Wait(own, root, delay_seconds, due_at_ms, due_at_ms, ready_partition)
    return Hop(own, root, due_at_ms, policy.layout.partition_for(kind, source.partition))


def decide_delays(headers: Sequence[Header], key: bytes | None, source: Source, policy: Policy) -> Decision:
    """A record of a delays partition: first in, first out, its turn is when the partition's delay, or its own wait, is over."""
    delay_seconds = policy.layout.partition_delays[source.partition]
    root = Root("d", source.partition, source.offset, source.topic_id)
    served_at_ms = source.appended_at_ms + delay_seconds * 1000
    try:
        own = read_delays(headers)
    except UnreadableHeader as e:
        return DeadLetter(OwnHeaders(), root, e.reason, str(e))
    if own.root is not None and own.due_at_ms is not None:
        due_at_ms = own.due_at_ms
        # one that isn't due when this partition's delay is over hops on, unless less than a second remains
        turn_at_ms = due_at_ms if due_at_ms < served_at_ms + HELD_IN_MEMORY_MS else served_at_ms
        ready_partition = own.root.partition % policy.ready_partitions
        return Wait(own, own.root, delay_seconds, due_at_ms, turn_at_ms, ready_partition)
    refused = _refused(own, root, policy.retry_cap)
    if refused is not None:
        return refused
    ready_partition = (
        partition_for_key(key, policy.ready_partitions) if key else source.partition % policy.ready_partitions
    )
    misrouted = own.generation is None and not has_own(headers)
    return Wait(own, root, delay_seconds, served_at_ms, served_at_ms, ready_partition, misrouted)


def hop_on(wait: Wait, policy: Policy, now_ms: int) -> Hop | None:
    """The next hop of a record whose turn has come and that isn't due at `now_ms`; None: hold it until it is."""
    kind = next_kind(policy.layout, None, wait.due_at_ms - now_ms)
    if kind is None:
        return None
    return Hop(wait.own, wait.root, wait.due_at_ms, policy.layout.partition_for(kind, wait.root.partition))


def next_kind(layout: Layout, own_kind: int | None, remaining_ms: int) -> int | None:
    """The delay, in seconds, of the kind that a record with `remaining_ms` to wait hops to; None: hold it in the window.

    The normal case is its own kind. A hop made late goes to the longest kind that fits, so that it isn't served behind
    records that wait longer; if none fits, to the shortest: what is behind its due time there is the least.
    """
    if remaining_ms <= 0 or own_kind == 0:
        return None
    if own_kind is not None and remaining_ms >= own_kind * 1000 - HELD_IN_MEMORY_MS:
        return own_kind
    if remaining_ms < HELD_IN_MEMORY_MS:
        return None
    return layout.longest_kind_within(remaining_ms) or layout.shortest_kind()


def _delay(own: OwnHeaders, layout: Layout) -> int:
    return layout.delay_for_attempt(own.attempt) if own.delay_level is None else layout.delay_for_level(own.delay_level)


def _refused(own: OwnHeaders, root: Root, retry_cap: int) -> DeadLetter | None:
    if own.deliver_at_ms is not None:
        return DeadLetter(
            own, root, DeadLetterReason.DELIVER_AT_UNSUPPORTED, "dt-deliver-at is not supported by this version"
        )
    if own.target is not None:
        return DeadLetter(own, root, DeadLetterReason.TARGET_UNSUPPORTED, "dt-target is not supported by this version")
    if own.attempt > retry_cap:
        return DeadLetter(
            own,
            root,
            DeadLetterReason.RETRY_CAP_EXCEEDED,
            f"attempt {own.attempt} is above the retry cap of {retry_cap}",
        )
    return None
