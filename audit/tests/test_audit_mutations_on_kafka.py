"""Ten mutations on a real Kafka. The relay of this test handles 600 records, and mishandles ten of them, each in a different way."""

import random
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from delayed_topics_audit.job import audit
from delayed_topics_audit_testing.topics import whole_window
from delayed_topics_audit_testing.whole_mutations import MUTATIONS
from delayed_topics_core.headers import ATTEMPT, DELAY_LEVEL, ROOT, Header, Root, origin
from delayed_topics_core.names import TopicNames
from delayed_topics_core_testing import copies
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

RECORDS, PARTITIONS, CAP = 600, 2, 3
DELAYS = (0, 5)
"""The second delay is that of the early record, which is released as soon as it was read, and of the record that is over the cap."""
LATE_MS = 8_000
Copy = tuple[str, int, bytes, list[Header]]
"""Topic, partition, value, headers."""


@dataclass(frozen=True, kw_only=True)
class FrontRecord:
    """A record of the front topic that the relay has read."""

    number: int
    delay_seconds: int
    message: Message
    names: TopicNames
    topic_id: str

    @property
    def partition(self) -> int:
        return self.number % PARTITIONS

    @property
    def offset(self) -> int:
        return self.number // PARTITIONS

    @property
    def name(self) -> str:
        return f"f:{self.partition}:{self.offset}"

    @property
    def due_at_ms(self) -> int:
        return self.message.timestamp()[1] + self.delay_seconds * 1000

    def release(self, by: "FrontRecord | None" = None, *, partition: int | None = None, altered: str = "") -> Copy:
        by = by or self
        attempt = dict(headers_of(self.message)).get(ATTEMPT) or b"0"
        headers = copies.release(
            [("trace", b"altered" if altered == "header" else b"%d" % self.number)],
            attempt=int(attempt),
            root=Root("f", self.partition, self.offset, self.topic_id),
            origin=origin("f", by.partition, by.offset),
            due_at_ms=self.due_at_ms,
            released_at_ms=self.due_at_ms,
        )
        value = b"altered" if altered == "value" else self.message.value() or b""
        return self.names.ready, self.partition if partition is None else partition, value, headers


def headers_of(message: Message) -> list[Header]:
    return cast("list[Header]", message.headers() or [])


def produce(connection: Connection, copies: Iterable[Copy]) -> None:
    producer = Producer(connection.client_config())
    for topic, partition, value, headers in copies:
        producer.produce(topic, value, partition=partition, headers=list(headers))
    assert producer.flush(120) == 0


def read(connection: Connection, topic: str, count: int) -> list[Message]:
    consumer = Consumer({**connection.client_config(), "group.id": "none"})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    messages: list[Message] = []
    while len(messages) < count:
        messages += consumer.consume(count - len(messages), 1.0)
    consumer.close()
    return messages


def until_ms(at_ms: int) -> None:
    while time.time() * 1000 <= at_ms:  # the broker and the test have the same clock
        time.sleep(0.01)


def test_ten_wrongs_of_a_relay_are_found_where_they_are_and_nothing_else_is(
    spark: SparkSession, broker: Broker
) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)  # to repeat a failure
    # ten offsets or more apart, so that the neighbours of each victim are right
    victims = dict(zip(MUTATIONS, random.Random(seed).sample(range(10, RECORDS - 10, 10), len(MUTATIONS)), strict=True))
    connection, names = Connection(bootstrap_servers=broker.bootstrap), TopicNames.of(f"wronged-{uuid.uuid4().hex[:8]}")
    admin = KafkaAdmin(connection)
    config = {"message.timestamp.type": "LogAppendTime"}
    made = admin.create_topics(
        [NewTopicSpec(name=name, partitions=PARTITIONS, replication_factor=1, config=config) for name in names.topics]
    )
    ids = {name: info.id for name, info in made.items() if isinstance(info, TopicInfo)}

    of_second_delay = {victims["early"]: (DELAY_LEVEL, b"2"), victims["over the cap"]: (ATTEMPT, b"%d" % (CAP + 1))}

    def incoming(number: int) -> Copy:
        own = [of_second_delay[number]] if number in of_second_delay else []
        return names.front, number % PARTITIONS, b"%d" % number, [("trace", b"%d" % number), *own]

    def front_record(message: Message) -> FrontRecord:
        number = int(message.value() or b"")
        delay_seconds = DELAYS[number in of_second_delay]
        return FrontRecord(
            number=number, delay_seconds=delay_seconds, message=message, names=names, topic_id=ids[names.front]
        )

    produce(connection, map(incoming, range(RECORDS)))
    every = sorted(map(front_record, read(connection, names.front, RECORDS)), key=lambda record: record.number)
    wronged = {mutation: every[number] for mutation, number in victims.items()}
    following = {mutation: every[number + PARTITIONS] for mutation, number in victims.items()}
    produce(connection, [wronged["early"].release()])
    other = every[5]

    usual = {record.number: [record.release()] for record in every}
    for mutation in ("removed", "early", "late", "over the cap"):
        usual[victims[mutation]] = []
    usual[victims["doubled"]] *= 2
    usual[victims["swapped"]] = []
    usual[following["swapped"].number] += [wronged["swapped"].release()]
    usual[victims["misplaced"]] = [wronged["misplaced"].release(partition=1 - wronged["misplaced"].partition)]
    usual[victims["header"]] = [wronged["header"].release(altered="header")]
    usual[victims["value"]] = [wronged["value"].release(altered="value")]
    usual[victims["forged"]] = [wronged["forged"].release(by=other)]
    produce(connection, [copy for copies in usual.values() for copy in copies])
    until_ms(wronged["over the cap"].due_at_ms)
    produce(connection, [wronged["over the cap"].release()])
    until_ms(wronged["late"].due_at_ms + LATE_MS)
    produce(connection, [wronged["late"].release()])

    ends = admin.list_offsets([(name, p) for name in names.topics for p in range(PARTITIONS)], "latest")
    window = whole_window(
        names,
        topic_ids=ids,
        delay_seconds=DELAYS,
        retry_cap=CAP,
        max_lateness_ms=LATE_MS,
        committed_offsets={names.front: [RECORDS // PARTITIONS] * PARTITIONS, names.delays: [0] * PARTITIONS},
        end_offsets={
            name: [end for p in range(PARTITIONS) if isinstance(end := ends[name, p], int)] for name in names.topics
        },
    )
    result = audit(window, connection, lambda: spark, print).result
    assert result.verdict == "Violated"
    released = {f"r:{m.partition()}:{m.offset()}": m for m in read(connection, names.ready, RECORDS)}

    def root_of(place: str) -> str:
        if place not in released:
            return place
        root = Root.decode(dict(headers_of(released[place]))[ROOT] or b"")
        return f"f:{root.partition}:{root.offset}"

    out_of_order = {tuple(map(root_of, pair.split(" before "))) for pair in result.offenders["out_of_order"]}
    assert out_of_order == {
        (following["swapped"].name, wronged["swapped"].name),
        (following["late"].name, wronged["late"].name),
    }
    said = {flaw: {root_of(name.split()[0]) for name in of_it} for flaw, of_it in result.offenders.items()}
    del said["out_of_order"]
    assert said == {
        "lost": {wronged["removed"].name, wronged["forged"].name},
        "doubled": {wronged["doubled"].name},
        "early": {wronged["early"].name},
        "late": {wronged["late"].name},
        "wrong_partition": {wronged["misplaced"].name},
        "changed": {wronged["header"].name, wronged["value"].name},
        "forged": {other.name},
        "over_cap": {wronged["over the cap"].name},
    }
