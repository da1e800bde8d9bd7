"""The records of `delayedtopics.events`: what happened to the workers of a delayed topic. Key: the front topic; value: JSON."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final, Literal, get_args

from delayed_topics_core.errors import UnknownEventKind, UnreadableRecord
from delayed_topics_core.layout import format_ranges, parse_ranges
from delayed_topics_core.offsets import TopicPartitionKey

EventKind = Literal["worker-started", "worker-stopped", "assignment", "rebalance", "producers-replaced", "alarm"]

KEPT_MS: Final = 7 * 86_400_000
"""How long Kafka keeps events. Of what was before, nobody knows what happened to the workers."""
TOLD_AGAIN_MS: Final = 86_400_000
"""A worker tells at least that often what it has been assigned."""
MAX_AT_MS: Final = 253_402_300_799_999
"""The end of the year 9999: no later time can be written as a date."""
MAX_PLACES: Final = 20_000
"""Partitions that an event may name: those of two Kafka topics, of 10,000 each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """`at_ms`: the worker's estimate of broker time.

    `detail` of a started worker {template}: names the template of its pod, which others of another version, or for another spec, do not
    have; absent outside Kubernetes.
    Of an assignment {group, generation, places, kept, session_timeout_ms, template, repeated}: what Kafka assigned to the member, in which
    generation of its group, told at once; with `repeated` once more, since events are kept for KEPT_MS only. Places are as
    `format_places` writes them. `kept`: what it has now, and had in the generation before; what it has had and keeps may not be among
    the places. The session timeout is that of the `classic` protocol.
    Of an alarm {reason, message, raised, repeated}: `repeated` is as above.
    Of a rebalance {change, partitions, places, generation, took_ms}: that partitions are served (`assigned`, by all of the topic that was
    assigned with them), or no longer (`revoked`, `lost`; with `kept` as above, and `in_flight`: how many copies of their records were sent
    and not committed, which come twice unless they were part of a transaction), or that what had been due of them before they were served
    has come out (`caught-up`, with `delayed`: how many records that were). The same event comes twice if the first may not have been
    written. Of replaced producers the same without a change: they had copies of these partitions on their way, which new producers send
    again.
    """

    kind: EventKind
    topic: str
    member: str
    at_ms: int
    detail: dict[str, Any]

    @property
    def began_ms(self) -> int:
        """When what took `took_ms` began. Anybody may have written that: what can't be counts as nothing."""
        took_ms = self.detail.get("took_ms")
        return self.at_ms - (took_ms if type(took_ms) is int and 0 <= took_ms <= self.at_ms else 0)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Event":
        """Raises UnreadableRecord, of a kind that is not known here UnknownEventKind."""
        try:
            body = json.loads(value)
            event = cls(**{name: body[name] for name in ("kind", "topic", "member", "at_ms", "detail")})
        except (KeyError, TypeError, ValueError, RecursionError) as e:
            raise UnreadableRecord(f"the event can't be parsed: {e!r}") from e
        texts = (event.kind, event.topic, event.member)
        at_ms_can_be = type(event.at_ms) is int and 0 <= event.at_ms <= MAX_AT_MS
        if not all(isinstance(text, str) for text in texts) or not at_ms_can_be:
            raise UnreadableRecord(
                "an event must have kind, topic and member as text, and at_ms as a time in milliseconds"
            )
        if not isinstance(event.detail, dict):
            raise UnreadableRecord(f"the event of kind {event.kind!r} has no detail")
        if event.kind not in get_args(EventKind):
            raise UnknownEventKind(f"this version does not know events of kind {event.kind!r}")
        return event


def format_places(places: Iterable[TopicPartitionKey]) -> list[str]:
    """By Kafka topic its partitions as ranges, as `orders.delays[0-2,5]`."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    return [f"{topic}[{format_ranges(sorted(numbers))}]" for topic, numbers in sorted(by_topic.items())]


def parse_places(told: object) -> list[TopicPartitionKey]:
    """The inverse of `format_places`, of what anybody may have written: what can't be read counts as nothing, and so does what comes
    after MAX_PLACES of them."""
    return list(islice(_each(told), MAX_PLACES)) if isinstance(told, list) else []


def _each(told: Iterable[object]) -> Iterator[TopicPartitionKey]:
    for one in told:
        topic, _, ranges = str(one).removesuffix("]").rpartition("[")
        try:
            numbers = parse_ranges(ranges) if topic else ()
        except ValueError:
            continue
        yield from ((topic, number) for number in numbers)
