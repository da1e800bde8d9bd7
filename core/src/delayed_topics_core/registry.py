"""The records of `delayedtopics.registry`: who owns which topic, and every layout. The operator writes, everybody follows.

Key                      Value
claim/<topic>/<owner>    Claim, written once and never rewritten: compaction keeps the order, the first by offset wins.
                         Who takes over writes its own claim, and then removes the one that it took the topics from
layout/<topic>           LayoutRecord: `planned`, then `serving` once Kafka has the partitions; `retired`: workers give it up.
                         A planned one has the one before it inside, by which workers go on until then
topics/<topic>           TopicsRecord: topic ids, the offsets that serving began at, which partitions have begun, and a handover
                         that is under way
audited/<topic>          AuditedRecord: where the last audit ended and the next one begins

Owner is `<Kubernetes cluster>/<namespace>/<name>`. Values are JSON; unknown fields are ignored, so that a newer writer
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
    """`owner` claims the four names of `topic`. `adopted`: the front topic existed before, and was taken over.

    `mark`: carried by the topics that are made for this claim, see `creation_mark`. 0: by none.
    `epoch`: how often the topics went over from one owner to another. Then `taken_from` is who had them before, and `taken_at_ms`
    when that was, by the operator's clock.
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
    """What workers and clients follow. `state`: nobody writes into partitions of a layout that isn't serving.

    `highest_retry_cap`, `least_ready_partitions`: that there ever were, for audits of records that were released under them.
    `max_delay_seconds`: how far ahead a due time may lie, where the layout has a ladder. `control`: there is a control topic.
    `ready_topics`: others that records may ask for, or might; `ready_topics_forgotten_ms`: until when there were more, of the operator's
    clock, 0: there were not. `outage_budget_seconds`: how long they wait for one that is missing.
    `lists`: all delay lists and caps that there were, the present one last; what was before the first is not noted.
    `exactly_once_from_ms`: since when all workers keep that guarantee, by the operator's clock; None: they don't.
    `workers`: how many there are to be: those with higher numbers leave the group for good when they end. None: they are shared.
    `before`: what served when this was planned; None: nothing did, or it is not planned any more.
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
        """What workers serve, and clients go by. While a growth is planned, which Kafka may refuse for weeks, this is the one before."""
        return {"planned": self.before, "serving": self, "retired": None}[self.state]

    @property
    def targets(self) -> tuple[str, ...]:
        """Other ready topics that records may ask for now."""
        return tuple(allowed.topic for allowed in self.ready_topics if allowed.until_ms is None)

    @property
    def all_targets(self) -> tuple[str, ...]:
        """Those that records could ask for once, too, in the order in which they were allowed."""
        return tuple(dict.fromkeys(allowed.topic for allowed in self.ready_topics))

    @property
    def waits_ms(self) -> dict[TopicPartitionKey, int]:
        """Of every partition that workers serve: how long its records wait. What is in the front topic is to go on at once."""
        names = TopicNames.of(self.topic)
        front = {(names.front, partition): 0 for partition in range(self.front_partitions)}
        return front | {(names.delays, p): seconds * 1000 for p, seconds in enumerate(self.layout.partition_delays)}


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicsRecord:
    """`ids` and `start_offsets` by topic name; offsets by partition.

    A topic is the owner's if its id is in `ids`. Nothing is done with another one, but to note its id if it has the claim's
    mark, or is the adopted one.
    `begun`: how many partitions, from 0, of a topic are known to have had a committed offset. A noted partition at or
    above it may be begun by its worker at the start offset; one below it without a commit is an alarm, never a guess.
    `made_again`: names of topics that are not the first of their name since serving began; an audit can't see the former.
    `handover`: where another consumer group goes on; None: none does, or it has committed as much.
    `mirrored_from`: the ids that topics had in the Kafka cluster from which they were mirrored with their committed offsets.
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
    """Where the chain of audits of a topic stands. Every offset below is accounted for, none above.

    ids               of the topics; others of the same names have no part in the chain
    offsets           of front and delays, by topic name and partition: as they were committed
    since_ms          broker time: the attempts whose records were pending then began at or after it
    ready_partitions  there were then
    ends              of delays, ready and dead-letter: what is above has come since
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
    """Of the one claim that an owner can have on a topic."""
    return f"claim/{topic}/{owner}"


def is_claim_key(key: str) -> bool:
    return key.startswith("claim/")


RegistryRecord = Claim | LayoutRecord | TopicsRecord | AuditedRecord


def encode(record: RegistryRecord) -> bytes:
    """The value, as compact JSON with sorted keys: equal records are equal bytes."""
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
                TopicNames.of(body["topic"])  # one that is none would have `holder` fail for everybody
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
