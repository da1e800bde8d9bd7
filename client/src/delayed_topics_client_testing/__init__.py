"""For tests of the client: a delayed topic that is served according to the registry, but has no workers. Tests write the releases.

Not in the wheel. Helpers with which other members replace a worker belong to `delayed_topics_core_testing` or
`delayed_topics_worker_testing`.
"""

from dataclasses import dataclass, field, replace

from confluent_kafka import Message, Producer
from delayed_topics import Record
from delayed_topics_core.headers import Header, Root
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.names import TopicNames
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_core.settings import TopicRole, topic_settings
from delayed_topics_core_testing import copies
from delayed_topics_core_testing.served import serving
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.commits import committed_offsets
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_kafka.registry import RegistryFollower, RegistryWriter
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_kafka_testing.reading import read_committed

FRONT_PARTITIONS = 3
DELAY_SECONDS = (0, 600, 3600)
DUE_AT_MS = 1_700_000_000_000


def received(value: bytes | None, *, key: bytes | None = None, headers: tuple[Header, ...] = ()) -> Record:
    """Returns a record of `orders.ready`, as a consumer gets it."""
    return Record(
        key=key,
        value=value,
        headers=headers,
        due_at_ms=1,
        released_at_ms=2,
        appended_at_ms=3,
        topic="orders.ready",
        partition=0,
        offset=7,
    )


@dataclass(frozen=True)
class Copied:
    """A record that was read. `said` has its headers as a dictionary, because no record of these tests has a header twice."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    said: dict[str, bytes | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Served:
    """The topics of one delayed topic on a real broker."""

    connection: Connection
    names: TopicNames
    layout: LayoutRecord

    @property
    def bootstrap(self) -> str:
        return self.connection.bootstrap_servers

    def write_layout(self, layout: LayoutRecord) -> None:
        with RegistryFollower(self.connection) as follower:
            RegistryWriter(follower, self.connection).write([layout])

    def allow(self, *topics: str, formerly: tuple[str, ...] = ()) -> None:
        """Allows other ready topics. Those in `formerly` are no longer allowed."""
        allowed = (*(AllowedTopic(topic, 0) for topic in topics), *(AllowedTopic(topic, 0, 1) for topic in formerly))
        self.write_layout(replace(self.layout, ready_topics=allowed))

    def remove_layout(self) -> None:
        with RegistryFollower(self.connection) as follower:
            RegistryWriter(follower, self.connection).remove([self.layout.key])

    def make(self, topic: str, partitions: int) -> None:
        spec = NewTopicSpec(name=topic, partitions=partitions, replication_factor=1, config={})
        KafkaAdmin(self.connection).create_topics([spec])

    def release(
        self,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = b"k",
        attempt: int = 0,
        headers: tuple[Header, ...] = (),
        group: bytes | None = None,
        number: int = 0,
    ) -> None:
        """Writes the release that a worker would write for the record at offset `number` of this front partition."""
        released = copies.release(
            headers,
            attempt=attempt,
            group=group,
            created_at_ms=DUE_AT_MS - 5000,
            root=Root("f", partition, number, "topic-id"),
            origin=b"f:%d:%d" % (partition, number),
            due_at_ms=DUE_AT_MS,
            released_at_ms=DUE_AT_MS + 1,
        )
        self.produce(self.names.ready, value, partition=partition, key=key, headers=released)

    def produce(
        self, topic: str, value: bytes | None, *, partition: int = 0, key: bytes | None = None, headers: list[Header]
    ) -> None:
        producer = Producer({**self.connection.client_config(), "message.max.bytes": 100_000_000})
        producer.produce(topic, value, key, partition, headers=[*headers])
        assert producer.flush(120) == 0

    def read(self, topic: str, *, ended: bool = True) -> list[Copied]:
        """Returns the committed records of a topic; see `read_committed`."""
        return [_copied(message) for message in read_committed(self.connection, topic, ended=ended)]

    def committed(self, group: str, *, ended: bool = True) -> dict[int, int]:
        """Returns the committed offsets by partition of the ready topic; see `committed_offsets`."""
        partitions = [(self.names.ready, p) for p in range(FRONT_PARTITIONS)]
        found = committed_offsets(self.connection, group, partitions, timeout_seconds=60, ended=ended)
        return {p: at.offset for (_, p), at in found.items()}


def _copied(message: Message) -> Copied:
    headers: list[Header] = [*(message.headers() or [])]
    return Copied(message.partition() or 0, message.key(), message.value(), headers, dict(headers))


def serve(connection: Connection, topic: str, *, control: bool = False) -> Served:
    """Creates the topics and the registry record as the operator does. `control` adds a control topic."""
    names = TopicNames.of(topic)
    admin = KafkaAdmin(connection)
    ensure_system_topics(admin, replication_factor=1)
    topics: list[tuple[str, TopicRole, int]] = [
        (names.front, "front", FRONT_PARTITIONS),
        (names.delays, "delays", 4),
        (names.ready, "ready", FRONT_PARTITIONS),
        (names.dead_letter, "dead-letter", 2),
    ]
    if control:
        topics.append((names.control, "control", 1))
    admin.create_topics(
        [
            NewTopicSpec(
                name=name,
                partitions=count,
                replication_factor=1,
                config=topic_settings(
                    role=role,
                    delay_seconds=DELAY_SECONDS,
                    outage_budget_seconds=3600,
                    dead_letter_retention_seconds=3600,
                    replication_factor=1,
                ),
            )
            for name, role, count in topics
        ]
    )
    layout = serving(
        topic,
        initial(LayoutSpec(delay_seconds=DELAY_SECONDS, partitions=4)),
        partitions=FRONT_PARTITIONS,
        control=control,
    )
    served = Served(connection, names, layout)
    served.write_layout(layout)
    return served
