"""The records of `delayedtopics.registry`: who owns which topic, and every layout. Only the operator writes them.

Key                      Value
claim/<topic>/<owner>    Claim, written once and never rewritten. Compaction keeps the order, and the first claim by offset wins.
                         An owner that takes topics over writes its own claim, and then removes the claim of the former owner
layout/<topic>           LayoutRecord: `planned`, then `serving` once Kafka has the partitions; `retired` when workers have to give
                         the topic up. A planned record contains the previous one, which workers follow until then
topics/<topic>           TopicsRecord: topic ids, the offsets at which serving began, which partitions have begun, and a handover
                         that is in progress
audited/<topic>          AuditedRecord: where the last audit ended and the next one begins

<owner> is `<Kubernetes cluster>/<namespace>/<name>`. Values are JSON. Readers ignore unknown fields, so that a newer writer
doesn't stop an older reader.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from delayed_topics_core.carried import Carried, decode_carried
from delayed_topics_core.delay_list import DelayList, decode_list
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.handover import Handover, decode_handover
from delayed_topics_core.layout import Kind, Layout, format_ranges, parse_ranges
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.ready_topics import AllowedTopic


class Owner(NamedTuple):
    """A DelayedTopic resource. `cluster` is the UID of the Kubernetes cluster's kube-system namespace."""

    cluster: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def parse(cls, text: str) -> "Owner":
        """Raises UnreadableRecord."""
        parts = text.split("/")
        if len(parts) != 3:
            raise UnreadableRecord(f"an owner must have the form cluster/namespace/name, but this one is {text!r}")
        return cls(*parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """`owner` claims the names of `topic`. With `adopted`, the front topic existed before.

    `mark` is on the topics that are created for this claim (see `creation_mark`). 0: on none.
    `epoch` is how often another owner took the topics over. If it is above 0, `taken_from` is the former owner, and `taken_at_ms` is
    when that happened, by the operator's clock.
    """

    topic: str
    owner: Owner
    adopted: bool = False
    mark: int = 0
    epoch: int = 0
    taken_from: Owner | None = None
    taken_at_ms: int = 0

    @property
    def key(self) -> str:
        return claim_key(self.topic, self.owner)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRecord:
    """The layout that workers and clients follow. No one writes into partitions of a layout whose `state` isn't serving.

    highest_retry_cap, least_ready_partitions  the extremes that ever applied, for audits of records that were released under them
    max_delay_seconds          how far ahead a due time may lie, if the layout has a ladder
    control                    there is a control topic
    ready_topics               other ready topics that records may request, or could at one time
    ready_topics_forgotten_ms  until when there were more of these, by the operator's clock; 0: there never were more
    outage_budget_seconds      how long records wait for a ready topic that is missing
    lists                      all delay lists and caps that there ever were, the present one last; what applied earlier is not known
    exactly_once_from_ms       since when all workers keep that guarantee, by the operator's clock; None: they don't
    workers                    the wanted number; those with higher numbers leave the group permanently when they end; None: shared workers
    before                     the record that was served when this one was planned; None: there was none, or this one is no longer planned
    """

    topic: str
    owner: Owner
    state: Literal["planned", "serving", "retired"]
    layout: Layout
    retry_cap: int
    front_partitions: int
    ready_partitions: int
    group: str
    lists: tuple[DelayList, ...]
    paused: bool = False
    compression: str = "lz4"
    broker_skew_ms: int = 0
    highest_retry_cap: int = 0
    least_ready_partitions: int = 1
    exactly_once_from_ms: int | None = None
    workers: int | None = None
    max_delay_seconds: int = 0
    ready_topics: tuple[AllowedTopic, ...] = ()
    ready_topics_forgotten_ms: int = 0
    outage_budget_seconds: int = 0
    control: bool = False
    before: "LayoutRecord | None" = None

    @property
    def key(self) -> str:
        return f"layout/{self.topic}"

    @property
    def served(self) -> "LayoutRecord | None":
        """The record that workers serve and clients follow. While more partitions are planned, which Kafka may refuse for weeks, this is
        the previous record."""
        return {"planned": self.before, "serving": self, "retired": None}[self.state]

    @property
    def targets(self) -> tuple[str, ...]:
        """Other ready topics that records may request now."""
        return tuple(allowed.topic for allowed in self.ready_topics if allowed.until_ms is None)

    @property
    def all_targets(self) -> tuple[str, ...]:
        """Other ready topics that records may request now or could request earlier, in the order in which they were allowed."""
        return tuple(dict.fromkeys(allowed.topic for allowed in self.ready_topics))

    @property
    def waits_ms(self) -> dict[TopicPartitionKey, int]:
        """How long records wait in each partition that workers serve. Records in the front topic do not wait there."""
        names = TopicNames.of(self.topic)
        front = {(names.front, partition): 0 for partition in range(self.front_partitions)}
        return front | {(names.delays, p): seconds * 1000 for p, seconds in enumerate(self.layout.partition_delays)}


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicsRecord:
    """The topics of a delayed topic. `ids` and `start_offsets` are by topic name; offsets are by partition.

    A topic belongs to the owner if its id is in `ids`. The operator leaves any other topic alone, except that it records the id of a
    topic that has the claim's mark or is adopted.
    `begun` is the number of partitions of a topic, counted from 0, that are known to have had a committed offset. A worker may begin a
    partition from this number on at its start offset. If a partition below this number has no commit, the worker raises an alarm, and
    never guesses.
    `made_again` has the names of topics that are not the first of their name since serving began. An audit can't read the earlier ones.
    `handover` is where another consumer group continues. None: there is no handover, or the group has committed as much.
    `mirrored_from` has the ids of topics in the Kafka cluster from which they were mirrored with their committed offsets.
    """

    topic: str
    ids: Mapping[str, str] = field(default_factory=dict)
    start_offsets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    begun: Mapping[str, int] = field(default_factory=dict)
    made_again: tuple[str, ...] = ()
    handover: Handover | None = None
    mirrored_from: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"topics/{self.topic}"


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedRecord:
    """The position of the chain of audits of a topic. Every offset below it is accounted for, and none above it.

    ids               the ids of the topics; other topics of the same names do not belong to the chain
    offsets           front and delays, by topic name and partition: the committed offsets at that time
    since_ms          broker time at or after which the attempts began whose records were pending then
    ready_partitions  the number of partitions of the ready topic then
    ends              delays, ready and dead-letter: records from here on were appended since
    made_again        other ready topics that were deleted, and perhaps created again, since the chain first read them
    carried           what the audit has written for the next one; None: it had no output
    """

    topic: str
    ids: Mapping[str, str]
    offsets: Mapping[str, tuple[int, ...]]
    since_ms: int
    ready_partitions: int
    ends: Mapping[str, tuple[int, ...]]
    made_again: tuple[str, ...] = ()
    carried: Carried | None = None

    @property
    def key(self) -> str:
        return f"audited/{self.topic}"


def claim_key(topic: str, owner: Owner) -> str:
    """Returns the key of the one claim that an owner can have on a topic."""
    return f"claim/{topic}/{owner}"


def is_claim_key(key: str) -> bool:
    return key.startswith("claim/")


RegistryRecord = Claim | LayoutRecord | TopicsRecord | AuditedRecord


def encode(record: RegistryRecord) -> bytes:
    """Returns the value as compact JSON with sorted keys, so that equal records have equal bytes."""
    match record:
        case Claim():
            body: dict[str, Any] = {
                "topic": record.topic,
                "owner": str(record.owner),
                "adopted": record.adopted,
                "mark": record.mark,
                "epoch": record.epoch,
                "taken_from": str(record.taken_from) if record.taken_from else None,
                "taken_at_ms": record.taken_at_ms,
            }
        case LayoutRecord():
            body = _layout_body(record)
        case TopicsRecord() | AuditedRecord():
            body = asdict(record)
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _layout_body(record: LayoutRecord) -> dict[str, Any]:
    body = asdict(record) | {
        "owner": str(record.owner),
        "generation": record.layout.generation,
        "delay_seconds": list(record.layout.delay_seconds),
        "ladder_seconds": list(record.layout.ladder_seconds),
        "kinds": [
            {"delay_seconds": k.delay_seconds, "partitions": format_ranges(k.partitions)} for k in record.layout.kinds
        ],
        "before": _layout_body(record.before) if record.before is not None else None,
    }
    del body["layout"]
    return body


def decode(key: str, value: bytes) -> RegistryRecord:
    """Raises UnreadableRecord."""
    try:
        body = json.loads(value)
        match key.partition("/")[0]:
            case "claim":
                TopicNames.of(body["topic"])  # with an illegal name, `RegistryState.holder` would fail for every topic
                return Claim(
                    topic=body["topic"],
                    owner=Owner.parse(body["owner"]),
                    adopted=body["adopted"],
                    mark=body["mark"],
                    epoch=body["epoch"],
                    taken_from=Owner.parse(body["taken_from"]) if body["taken_from"] else None,
                    taken_at_ms=body["taken_at_ms"],
                )
            case "layout":
                return _decode_layout(body)
            case "topics":
                return TopicsRecord(
                    topic=body["topic"],
                    ids=body["ids"],
                    start_offsets={t: tuple(o) for t, o in body["start_offsets"].items()},
                    begun=body["begun"],
                    made_again=tuple(body["made_again"]),
                    handover=decode_handover(body["handover"]),
                    mirrored_from=body["mirrored_from"],
                )
            case "audited":
                return AuditedRecord(
                    topic=body["topic"],
                    ids=body["ids"],
                    offsets={t: tuple(o) for t, o in body["offsets"].items()},
                    since_ms=body["since_ms"],
                    ready_partitions=body["ready_partitions"],
                    ends={t: tuple(o) for t, o in body["ends"].items()},
                    made_again=tuple(body["made_again"]),
                    carried=decode_carried(body["carried"]),
                )
            case _:
                raise UnreadableRecord(f"registry key {key!r} is of an unknown kind")
    except KeyError as e:
        raise UnreadableRecord(f"registry record {key!r} has no field {e}") from e
    except (TypeError, AttributeError, ValueError, RecursionError) as e:
        raise UnreadableRecord(f"registry record {key!r} can't be parsed: {e!r}") from e


def _decode_layout(body: Mapping[str, Any]) -> LayoutRecord:
    kinds = tuple(
        Kind(delay_seconds=k["delay_seconds"], partitions=parse_ranges(k["partitions"])) for k in body["kinds"]
    )
    return LayoutRecord(
        topic=body["topic"],
        owner=Owner.parse(body["owner"]),
        state=body["state"],
        layout=Layout(
            generation=body["generation"],
            delay_seconds=tuple(body["delay_seconds"]),
            kinds=kinds,
            ladder_seconds=tuple(body["ladder_seconds"]),
        ),
        retry_cap=body["retry_cap"],
        front_partitions=body["front_partitions"],
        ready_partitions=body["ready_partitions"],
        group=body["group"],
        paused=body["paused"],
        compression=body["compression"],
        broker_skew_ms=body["broker_skew_ms"],
        highest_retry_cap=body["highest_retry_cap"],
        least_ready_partitions=body["least_ready_partitions"],
        exactly_once_from_ms=body["exactly_once_from_ms"],
        lists=tuple(decode_list(entry) for entry in body["lists"]),
        workers=body["workers"],
        max_delay_seconds=body["max_delay_seconds"],
        control=body["control"],
        ready_topics=tuple(AllowedTopic(*entry) for entry in body["ready_topics"]),
        ready_topics_forgotten_ms=body["ready_topics_forgotten_ms"],
        outage_budget_seconds=body["outage_budget_seconds"],
        before=_decode_layout(body["before"]) if body["before"] else None,
    )
