"""The records of `delayedtopics.events`, in which workers report what happened to them. The key is the front topic, the value is JSON."""

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
"""How long Kafka keeps events. What happened to workers earlier is not known."""
TOLD_AGAIN_MS: Final = 86_400_000
"""A worker repeats at least this often which partitions are assigned to it."""
MAX_AT_MS: Final = 253_402_300_799_999
"""The end of the year 9999, because later times can't be represented as a date."""
MAX_PLACES: Final = 20_000
"""The number of partitions that an event may name: two Kafka topics of 10,000 partitions each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """An event of a worker. `at_ms` is the worker's estimate of broker time. The fields of `detail` depend on the kind:

    `worker-started` {template}: the template of the worker's pod. Workers of another version or for another spec have another template. It
    is absent outside Kubernetes.
    `assignment` {group, generation, places, kept, session_timeout_ms, template, repeated}: what Kafka assigned to the member in which
    generation of its group, reported at once. With `repeated`, the event repeats an earlier one, because Kafka keeps events for KEPT_MS
    only. Places are written by `format_places`. `kept` is what the member had in the previous generation and still has; these partitions
    may be missing from the places. The session timeout is that of the `classic` protocol.
    `alarm` {reason, message, raised, repeated}: with `repeated` as above.
    `rebalance` {change, partitions, places, generation, took_ms}: with `assigned`, the member serves all partitions of the topic that were
    assigned together. With `revoked` or `lost`, it no longer serves them; `kept` is as above, and `in_flight` is how many copies of their
    records were sent and not committed, which come out twice unless they were part of a transaction. With `caught-up`, all records have
    come out that were due before the partitions were served; `delayed` is the number of these records. The same event comes twice if the
    first one may not have been written.
    `producers-replaced`: as `rebalance`, without `change`. The old producers had copies of these partitions in flight, which the new ones
    send again.
    """

    kind: EventKind
    topic: str
    member: str
    at_ms: int
    detail: dict[str, Any]

    @property
    def began_ms(self) -> int:
        """When the change that took `took_ms` began. An impossible `took_ms` counts as 0, because anybody may have written the event."""
        took_ms = self.detail.get("took_ms")
        return self.at_ms - (took_ms if type(took_ms) is int and 0 <= took_ms <= self.at_ms else 0)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Event":
        """Raises UnreadableRecord, and UnknownEventKind for a kind that this version does not know."""
        try:
            body = json.loads(value)
            event = cls(**{name: body[name] for name in ("kind", "topic", "member", "at_ms", "detail")})
        except (KeyError, TypeError, ValueError, RecursionError) as e:
            raise UnreadableRecord(f"the event can't be parsed: {e!r}") from e
        texts = (event.kind, event.topic, event.member)
        at_ms_is_valid = type(event.at_ms) is int and 0 <= event.at_ms <= MAX_AT_MS
        if not all(isinstance(text, str) for text in texts) or not at_ms_is_valid:
            raise UnreadableRecord(
                "an event must have kind, topic and member as text, and at_ms as a time in milliseconds"
            )
        if not isinstance(event.detail, dict):
            raise UnreadableRecord(f"the event of kind {event.kind!r} has no detail")
        if event.kind not in get_args(EventKind):
            raise UnknownEventKind(f"this version does not know events of kind {event.kind!r}")
        return event


def format_places(places: Iterable[TopicPartitionKey]) -> list[str]:
    """Returns one text for each Kafka topic, with its partitions as ranges, such as `orders.delays[0-2,5]`."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    return [f"{topic}[{format_ranges(sorted(numbers))}]" for topic, numbers in sorted(by_topic.items())]


def parse_places(texts: object) -> list[TopicPartitionKey]:
    """The inverse of `format_places`. Anybody may have written the text, so the function skips what it can't read, and everything after the
    first MAX_PLACES partitions."""
    return list(islice(_each(texts), MAX_PLACES)) if isinstance(texts, list) else []


def _each(texts: Iterable[object]) -> Iterator[TopicPartitionKey]:
    for text in texts:
        topic, _, ranges = str(text).removesuffix("]").rpartition("[")
        try:
            numbers = parse_ranges(ranges) if topic else ()
        except ValueError:
            continue
        yield from ((topic, number) for number in numbers)
