"""The state of the registry: the result of applying its records in the order of their offsets."""

from dataclasses import dataclass, field

from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.names import TopicNames, collision_key
from delayed_topics_core.registry import (
    AuditedRecord,
    Claim,
    LayoutRecord,
    RegistryRecord,
    TopicsRecord,
    decode,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimEntry:
    """A claim and its offset in the registry."""

    offset: int
    claim: Claim


@dataclass
class _Holders:
    """The claims that hold their names, by collision key."""

    by_name: dict[str, Claim] = field(default_factory=dict)

    def add(self, claim: Claim) -> None:
        """`claim` holds its names, unless a claim that was added before conflicts with it."""
        keys = _collision_keys(claim.topic)
        if not keys & self.by_name.keys():
            self.by_name.update(dict.fromkeys(keys, claim))

    def copy(self) -> "_Holders":
        return _Holders(by_name=dict(self.by_name))


@dataclass
class RegistryState:
    """The registry as read so far. Call `apply` for each record in offset order. `next_offset` is the next offset to read.

    Looking up a holder takes the same time however many claims there are. Only the first lookup, and the first one after a claim was
    removed, looks at all claims.
    """

    claims: dict[str, ClaimEntry] = field(default_factory=dict)
    layouts: dict[str, LayoutRecord] = field(default_factory=dict)
    topics: dict[str, TopicsRecord] = field(default_factory=dict)
    audited: dict[str, AuditedRecord] = field(default_factory=dict)
    next_offset: int = 0
    _known_holders: _Holders | None = field(default=None, repr=False, compare=False)
    """None if there was no lookup since a claim was removed."""

    def apply(self, offset: int, key: str, value: bytes | None) -> RegistryRecord | None:
        """Returns the record, or None for a removal. Raises UnreadableRecord; even then the offset counts as read."""
        self.next_offset = offset + 1
        kind, _, rest = key.partition("/")
        if value is None:
            self._remove(kind, key, rest)
            return None
        record = decode(key, value)
        match record:
            case Claim():
                if key not in self.claims:
                    self.claims[key] = ClaimEntry(offset=offset, claim=record)
                    if self._known_holders is not None:
                        self._known_holders.add(record)
            case LayoutRecord():
                self.layouts[record.topic] = record
            case TopicsRecord():
                self.topics[record.topic] = record
            case AuditedRecord():
                self.audited[record.topic] = record
        return record

    def holder(self, topic: str) -> Claim | None:
        """Returns the claim that holds any of the names of `topic`: the first by offset that conflicts with no earlier holder."""
        by_name = self._holders().by_name
        return next((by_name[key] for key in sorted(_collision_keys(topic)) if key in by_name), None)

    def copy(self) -> "RegistryState":
        """Returns an independent copy."""
        return RegistryState(
            claims=dict(self.claims),
            layouts=dict(self.layouts),
            topics=dict(self.topics),
            audited=dict(self.audited),
            next_offset=self.next_offset,
            _known_holders=self._holders().copy(),
        )

    def _holders(self) -> _Holders:
        if self._known_holders is None:
            self._known_holders = _Holders()
            for entry in sorted(self.claims.values(), key=lambda e: e.offset):
                self._known_holders.add(entry.claim)
        return self._known_holders

    def _remove(self, kind: str, key: str, topic: str) -> None:
        match kind:
            case "claim":
                if self.claims.pop(key, None) is not None:
                    self._known_holders = None
            case "layout":
                self.layouts.pop(topic, None)
            case "topics":
                self.topics.pop(topic, None)
            case "audited":
                self.audited.pop(topic, None)
            case _:
                raise UnreadableRecord(f"registry key {key!r} is of an unknown kind")


def _collision_keys(topic: str) -> set[str]:
    return {collision_key(name) for name in TopicNames.of(topic).possible}
