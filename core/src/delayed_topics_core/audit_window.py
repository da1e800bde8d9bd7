"""The frozen window of an audit: the offsets that the operator resolves once and the Spark job reads.

The operator freezes the committed offsets (stable) first, and then the ends of the outcome topics, so that no race makes a record look
lost. An outcome of a record below its partition's committed offset was acknowledged before the commit, so it lies below those ends.
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
"""The maximum size of the JSON. Without it, a small window written in bad faith could decompress to any size."""

_GZIP: Final = 31
"""The `wbits` of zlib that select the format of gzip."""

Offsets = Mapping[str, tuple[int, ...]]
"""Offsets by topic name, then by partition."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditWindow:
    """The frozen window. All offsets are by topic and partition; `from` below stands for `from_offsets`.

    targets             other ready topics, in the order by which an audit numbers them; their offsets have the same meaning as those of the
                        ready topic
    ready_partitions    the number of partitions of the ready topic now; least_ready_partitions: the number at `from`, as it only grows
    retry_cap           the highest retry cap since `from`
    delay_lists         all delay lists and caps that there ever were, as the registry has them
    exactly_once_from_ms  since when, by the brokers' time, no record may come out twice; None: there is no such guarantee
    from_offsets        front and delays: the recorded start offsets, or where the last audit ended; ready and dead-letter:
                        where the outcomes of those records begin
    roots_from_offsets  front and delays: the audit reads from here on, to find where the attempts that were pending at `from` began
    to_offsets          front and delays: records from here on belong to a later window; empty: all records up to the end belong to this one
    new_from_offsets    delays, ready and dead-letter: records from here on were appended since the last audit of the chain; empty: there
                        was no audit before, or the offsets are not known
    committed_offsets   front and delays: the audit judges [from, committed)
    end_offsets         all topics: records in [committed, end) of front and delays are pending; the audit reads outcomes below these ends
    sample_one_in       the audit reads one record in so many, chosen by a hash of its root; 1: every record
    beginning_offsets   all topics: if an offset is above 0 or above `from`, retention has removed records
    carries             the audit is one of a chain: with an output, it writes what the next audit would otherwise read again
    carried             what the previous audit of the chain has written; None: nothing
    made_again          targets that were deleted, and perhaps created again, since the chain of audits first read them
    control_id          the id of the control topic; "": there never was one; None: the control topic is not the first of its name, so the
                        earlier requests are not known
    unseen              what could not be seen when the window was frozen, one sentence each; perhaps_unseen: what can hide a loss, or
                        that a record had come out before, but nothing else
    unserved            which records no worker serves, one sentence each; no list of offsets includes them, and they hide nothing
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
        """All topics that an audit reads."""
        return (*TopicNames.of(self.topic).topics, *self.targets)

    @property
    def offsets(self) -> int:
        """The number of offsets that an audit reads in all topics, if retention has removed nothing."""
        return sum(sum(ends) - sum(self.read_from(topic)) for topic, ends in self.end_offsets.items())

    def read_from(self, topic: str) -> tuple[int, ...]:
        return self.roots_from_offsets.get(topic, self.from_offsets[topic])

    def encode(self) -> bytes:
        """Returns JSON, compressed with gzip. Uncompressed, a window of 10,000 partitions would not fit into a ConfigMap."""
        return zlib.compress(json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode(), wbits=_GZIP)

    @classmethod
    def decode(cls, data: bytes) -> "AuditWindow":
        """Raises UnreadableRecord."""
        try:
            body = json.loads(_decompress(data))
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


def _decompress(data: bytes) -> bytes:
    packed = zlib.decompressobj(wbits=_GZIP)
    text = packed.decompress(data, MAX_BYTES)
    if not packed.eof:
        raise ValueError(f"it is cut off, or has more than {MAX_BYTES:,} bytes")
    return text
