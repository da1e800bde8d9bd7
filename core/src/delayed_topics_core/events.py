"""The records of `delayedtopics.events`: what happened to the workers of a delayed topic. Key: the front topic; value: JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from delayed_topics_core.errors import UnreadableRecord

EventKind = Literal["worker-started", "worker-stopped", "rebalance", "alarm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """`at_ms`: the worker's estimate of broker time. `detail`: of a rebalance {change, partitions, places, generation, took_ms}; its
    places as `orders.delays[0-2,5]`, without which an older version wrote it."""

    kind: EventKind
    topic: str
    member: str
    at_ms: int
    detail: dict[str, Any]

    def encode(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Event":
        """Raises UnreadableRecord."""
        try:
            body = json.loads(value)
            event = cls(**{name: body[name] for name in ("kind", "topic", "member", "at_ms", "detail")})
        except (KeyError, TypeError, ValueError) as e:
            raise UnreadableRecord(f"an event doesn't parse: {e!r}") from e
        if event.kind not in get_args(EventKind) or not isinstance(event.detail, dict):
            raise UnreadableRecord(f"an event of kind {event.kind!r} is of no known kind, or has no detail")
        if not (isinstance(event.topic, str) and isinstance(event.member, str) and type(event.at_ms) is int):
            raise UnreadableRecord("an event must have a topic and a member as text, and at_ms as a number")
        return event
