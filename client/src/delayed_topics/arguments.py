"""Checks the arguments of `send`, `cancel`, `reschedule` and `records`. Each function raises ValueError for an invalid value."""

import time
from collections.abc import Collection, Iterable

from delayed_topics_core.headers import MAX_ID_BYTES, MAX_NUMBER, OWN_HEADERS, Header, Target
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord


def foreign_headers(headers: Iterable[Header]) -> list[Header]:
    given = list(headers)
    own = [name for name, _ in given if name in OWN_HEADERS]
    if own:
        raise ValueError(f"header {own[0]} is reserved for delayed topics. Use the arguments of send instead")
    return given


def level(delay_level: int) -> int:
    if delay_level < 1:
        raise ValueError(
            f"delay_level must be 1 or more, but it is {delay_level}. Level 1 is the first entry of the delay list"
        )
    return delay_level


def time_ms(name: str, at_ms: int) -> int:
    if not 0 <= at_ms <= MAX_NUMBER:
        raise ValueError(f"{name} must be milliseconds since the epoch, but it is {at_ms}")
    return at_ms


def record_id(text: str) -> bytes:
    if not text.isascii() or not 0 < len(text) <= MAX_ID_BYTES:
        raise ValueError(f"id must be 1 to {MAX_ID_BYTES} ASCII characters, but it is {text[:32]!r}")
    return text.encode()


def due_time_ms(layout: LayoutRecord, deliver_at_ms: int) -> int:
    """Checks a due time by the clock of this machine. A worker may still find it too far ahead by the broker's clock."""
    if not layout.layout.ladder_seconds:
        raise ValueError(
            f"{layout.topic} does not take records with their own due time. Set spec.ladder of its DelayedTopic"
        )
    ahead_seconds = (time_ms("deliver_at_ms", deliver_at_ms) - time.time() * 1000) / 1000
    if ahead_seconds > layout.max_delay_seconds:
        raise ValueError(
            f"deliver_at_ms must be at most {layout.max_delay_seconds} s ahead (spec.maxDelaySeconds), "
            f"but it is {ahead_seconds:.0f} s ahead"
        )
    return deliver_at_ms


def target_header(layout: LayoutRecord, target: str) -> bytes:
    try:
        topic = Target.decode(target.encode()).topic
    except ValueError:
        raise ValueError(f"target must be a topic or topic:partition, but it is {target!r}") from None
    _check_allowed(layout, "target", topic, layout.targets)
    return target.encode()


def check_ready_topic(layout: LayoutRecord, topic: str) -> None:
    """Accepts also a topic that was allowed formerly, because it may still have records."""
    _check_allowed(layout, "ready_topic", topic, (TopicNames.of(layout.topic).ready, *layout.all_targets))


def _check_allowed(layout: LayoutRecord, argument: str, topic: str, allowed: Collection[str]) -> None:
    if topic not in allowed:
        owner = layout.owner
        allowed_by = f"allowed by spec.ready.allowedTopics of the DelayedTopic {owner.namespace}/{owner.name}"
        which = f". The allowed topics are {', '.join(layout.targets)}" if layout.targets else ""
        raise ValueError(f"{argument} must be {allowed_by}, but it is {topic!r}{which}")
