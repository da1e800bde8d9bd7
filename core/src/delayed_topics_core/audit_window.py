"""The frozen window of an audit: the offsets that the operator resolves once and the Spark job reads.

Frozen in this order, so that no race makes a false loss: committed offsets (stable) first, then the ends of the outcome topics.
An outcome of a record below its partition's committed offset was acknowledged before the commit, so it lies below those ends.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from delayed_topics_core.carried import Carried, decode_carried
from delayed_topics_core.delay_list import DelayList, decode_list
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.names import TopicNames

MAX_BYTES: Final = 64 * 2**20
"""Of JSON: whoever may write a window can pack a lot of nothing."""

_GZIP: Final = 31
"""Of zlib: with the header of gzip."""

Offsets = Mapping[str, tuple[int, ...]]
"""By topic name, then by partition."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditWindow:
    """All offsets, by topic and partition.

    targets             other ready topics, in the order by which an audit numbers them; their offsets are as those of the ready topic
    ready_partitions    now; least_ready_partitions: when `from` was, they only grow
    retry_cap           the highest since `from`
    delay_lists         all delay lists and caps that there were, as the registry has them
    exactly_once_from_ms  from then on, by the brokers' time, nothing may come out twice; None: no such guarantee
    from_offsets        front and delays: the noted start offsets, or where the last audit ended; ready and dead-letter:
                        where the outcomes of those records begin
    roots_from_offsets  front and delays: read from here on, to see where the attempts began that were pending at `from`
    to_offsets          front and delays: records from here on are a later window's; empty: all up to the end are of this one
    new_from_offsets    delays, ready and dead-letter: what is from here on has come since the last audit of the chain; empty: no
                        audit was before, or it is not known
    committed_offsets   front and delays: the audit judges [from, committed)
    end_offsets         all topics: pending is [committed, end) of front and delays; outcomes are looked for below these ends
    sample_one_in       of so many records one is looked at, by a hash of its root; 1: every one
    beginning_offsets   all topics: above 0 or above `from`: retention has removed records
    carries             of a chain: an audit with an output writes what the next one would read again; carried: what the one before has
                        written, None: nothing
    made_again          targets that were deleted, and perhaps created again, since the chain of audits first read them
    control_id          of the topic by which records are cancelled; "": there never was one; None: it is not the first of its name, so
                        that what was asked for is not known
    unseen              what nobody could see when it was frozen, a sentence each; perhaps_unseen: what can hide a loss, and nothing else
    unserved            which records no worker serves, a sentence each; they are in no list of offsets, and hide nothing
    """

    topic: str
    topic_ids: Mapping[str, str]
    partition_delays: tuple[int, ...]
    delay_lists: tuple[DelayList, ...]
    ready_partitions: int
    least_ready_partitions: int
    retry_cap: int
    max_lateness_ms: int
    broker_skew_ms: int
    frozen_at_ms: int
    from_offsets: Offsets
    roots_from_offsets: Offsets
    committed_offsets: Offsets
    end_offsets: Offsets
    beginning_offsets: Offsets
    targets: tuple[str, ...] = ()
    exactly_once_from_ms: int | None = None
    to_offsets: Offsets = field(default_factory=dict)
    new_from_offsets: Offsets = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    perhaps_unseen: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()
    sample_one_in: int = 1
    carries: bool = False
    carried: Carried | None = None
    control_id: str | None = None
    made_again: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """All that are read."""
        return (*TopicNames.of(self.topic).topics, *self.targets)

    @property
    def offsets(self) -> int:
        """How many an audit reads of all topics, if retention has removed nothing."""
        return sum(sum(ends) - sum(self.read_from(topic)) for topic, ends in self.end_offsets.items())

    def read_from(self, topic: str) -> tuple[int, ...]:
        return self.roots_from_offsets.get(topic, self.from_offsets[topic])

    def encode(self) -> bytes:
        """JSON, compressed by gzip: that of 10,000 partitions would not fit into a ConfigMap."""
        return zlib.compress(json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode(), wbits=_GZIP)

    @classmethod
    def decode(cls, data: bytes) -> "AuditWindow":
        """Raises UnreadableRecord."""
        try:
            body = json.loads(_unpacked(data))
            for name in [name for name in body if name.endswith("_offsets")]:
                body[name] = {topic: tuple(values) for topic, values in body[name].items()}
            body["delay_lists"] = tuple(decode_list(entry) for entry in body["delay_lists"])
            if not body["delay_lists"]:
                raise ValueError("it has no delay list")
            body["carried"] = decode_carried(body["carried"])
            for name in ("partition_delays", "targets", "unseen", "perhaps_unseen", "unserved", "made_again"):
                body[name] = tuple(body[name])
            return cls(**body)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as e:
            raise UnreadableRecord(f"the frozen window of the audit can't be parsed: {e!r}") from e


def _unpacked(data: bytes) -> bytes:
    packed = zlib.decompressobj(wbits=_GZIP)
    text = packed.decompress(data, MAX_BYTES)
    if not packed.eof:
        raise ValueError(f"it is cut off, or has more than {MAX_BYTES:,} bytes")
    return text
