"""What the engine reports to Python: events to publish or to log, and questions for Python to decide."""

from typing import Any, Final, Literal, NamedTuple

from delayed_topics_core.offsets import TopicPartitionKey


class Fault(NamedTuple):
    """An error of Kafka, or of its client, whose codes are negative."""

    code: int
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class Assigned(NamedTuple):
    """The group has assigned partitions to this member. `Engine.assign` has to be called with all of them. `generation`: the generation of
    the group, or with protocol `consumer` the epoch of the member."""

    partitions: list[TopicPartitionKey]
    generation: int


class Revoked(NamedTuple):
    """Partitions were given up. `lost`: other members may already have them, and nothing could be committed. `delayed`: for each
    partition, see `Seen`. `in_flight`: for each partition, the number of copies that were sent and not committed."""

    partitions: list[TopicPartitionKey]
    lost: bool
    delayed: list[int]
    in_flight: list[int]


class Refused(NamedTuple):
    """Kafka refused the copy of a record permanently. The record's partition stands still until `Engine.go_on`. `target`: the topic of
    the copy."""

    topic: str
    partition: int
    offset: int
    target: str
    error: Fault


class Changed(NamedTuple):
    """The outcome of a request of the control topic, reported when Kafka has acknowledged the copy of the record. `number`: the number
    of the delayed topic in the engine."""

    number: int
    id: bytes
    outcome: Literal["cancelled", "rescheduled", "too-deep"]
    deliver_at_ms: int | None


class Removed(NamedTuple):
    """The next offset is not in the partition any more, or Kafka has lost the end of the partition (`LOG_TRUNCATION`). The partition
    stands still. `topic_id`: the id of the topic that was read; another topic may have its name by now."""

    topic: str
    partition: int
    offset: int
    topic_id: str
    error: Fault


class CommitUnknown(NamedTuple):
    """A transaction has failed. Python has to ask Kafka for the committed offsets of these partitions, and to call `Engine.begin`."""

    partitions: list[TopicPartitionKey]


class Reported(NamedTuple):
    """The consumer reports an error of its own or of a partition, from which it recovers by itself."""

    error: Fault
    topic: str | None
    partition: int | None


class Fatal(NamedTuple):
    """Kafka has shut out a client permanently."""

    error: Fault


class AssignmentFailed(NamedTuple):
    """The consumer can't take over, give up, or read again partitions that it was assigned."""

    error: Fault


class ProducersReplaced(NamedTuple):
    """New producers send again the copies that the former producers had in flight. These copies may come out twice."""


class Stranded(NamedTuple):
    """A client has lost the addresses of all brokers, and can't recover."""

    client: str


class Log(NamedTuple):
    """A line for the log. `level`: a syslog level, for example 3 for errors and 7 for debugging."""

    level: int
    facility: str
    text: str


EngineEvent = (
    Assigned
    | Revoked
    | Refused
    | Changed
    | Removed
    | CommitUnknown
    | Reported
    | Fatal
    | AssignmentFailed
    | ProducersReplaced
    | Stranded
    | Log
)

_BY_NAME: Final[dict[str, Any]] = {kind.__name__: kind for kind in EngineEvent.__args__}


def event_of(reported: tuple[Any, ...]) -> EngineEvent:
    """Converts one of the reports that `Engine.wait` returns to one of the above types."""
    name, *values = reported
    kind = _BY_NAME[name]
    found: EngineEvent = kind(
        *[Fault(*v) if field == "error" else v for field, v in zip(kind._fields, values, strict=True)]
    )
    return found
