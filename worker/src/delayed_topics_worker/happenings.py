"""What the engine tells that somebody has to know or to decide."""

from typing import Any, Final, Literal, NamedTuple

from delayed_topics_core.offsets import TopicPartitionKey


class Fault(NamedTuple):
    """An error of Kafka's, or of its client's; those have codes below 0."""

    code: int
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class Assigned(NamedTuple):
    """Partitions are this member's: `Engine.assign` has to be called, with all of them. `generation`: of the group, with the newer
    protocol the member's epoch."""

    partitions: list[TopicPartitionKey]
    generation: int


class Revoked(NamedTuple):
    """Partitions were given up. `lost`: somebody has them already, and nothing could be committed. `delayed`: of each, see Seen.
    `in_flight`: of each, the copies that were sent and not committed."""

    partitions: list[TopicPartitionKey]
    lost: bool
    delayed: list[int]
    in_flight: list[int]


class Refused(NamedTuple):
    """The copy of a record was refused for good, and its partition stands still until `Engine.go_on`. `target`: a topic."""

    topic: str
    partition: int
    offset: int
    target: str
    error: Fault


class Changed(NamedTuple):
    """What became of a request of the control topic: the record's copy is acknowledged. `number`: of the delayed topic."""

    number: int
    id: bytes
    outcome: Literal["cancelled", "rescheduled", "too-deep"]
    deliver_at_ms: int | None


class Removed(NamedTuple):
    """The offset that comes next isn't in the partition any more; it stands still. `topic_id`: of the topic in which it was read, which may
    be gone by now, and another one have its name."""

    topic: str
    partition: int
    offset: int
    topic_id: str
    error: Fault


class CommitUnknown(NamedTuple):
    """A transaction has failed: Kafka has to be asked what is committed of these, for `Engine.begin`."""

    partitions: list[TopicPartitionKey]


class Reported(NamedTuple):
    """The consumer tells of an error, of a partition or of its own, after which it goes on by itself."""

    error: Fault
    topic: str | None
    partition: int | None


class Fatal(NamedTuple):
    """A client was shut out for good."""

    error: Fault


class AssignmentFailed(NamedTuple):
    """The consumer can't take over the partitions that are its."""

    error: Fault


class ProducersReplaced(NamedTuple):
    """What the producers had on its way is given up, and sent again by new ones: it may come twice."""


class Stranded(NamedTuple):
    """A client knows no broker any more, and never will again."""

    client: str


class Log(NamedTuple):
    """A line for the log. `level`: as syslog has them, 3 is an error and 7 debugging."""

    level: int
    facility: str
    text: str


Happening = (
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

_BY_NAME: Final[dict[str, Any]] = {kind.__name__: kind for kind in Happening.__args__}


def happening_of(told: tuple[Any, ...]) -> Happening:
    """What `Engine.turn` tells, as one of the above."""
    name, *values = told
    kind = _BY_NAME[name]
    found: Happening = kind(
        *[Fault(*v) if field == "error" else v for field, v in zip(kind._fields, values, strict=True)]
    )
    return found
