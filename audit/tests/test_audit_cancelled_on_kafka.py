"""Cancelled records on a real broker. If the control topic is complete, it shows whether a cancellation had been requested."""

import uuid
from dataclasses import dataclass, replace
from functools import partial

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from delayed_topics_audit import sources
from delayed_topics_audit.account import Result
from delayed_topics_audit.job import audit
from delayed_topics_audit.requests import requests
from delayed_topics_audit_testing.plain import PlainAudit
from delayed_topics_audit_testing.topics import whole_window
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.headers import Root, origin
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core_testing import copies
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """A delayed topic of one partition with two records. Both were cancelled, but only one cancellation had been requested."""

    connection: Connection
    names: TopicNames
    window: AuditWindow

    def judged(self, spark: SparkSession, window: AuditWindow) -> Result:
        return audit(window, self.connection, lambda: spark, lambda _: None).result

    def unknown(self, spark: SparkSession, window: AuditWindow | None = None) -> str | None:
        """Returns why the requests are not all known; None if they are."""
        read = partial(sources.read, spark, self.connection)
        return requests(KafkaAdmin(self.connection), read, window or self.window).unknown


@pytest.fixture
def cancelled(broker: Broker) -> Cancelled:
    connection = Connection(bootstrap_servers=broker.bootstrap)
    names, admin = TopicNames.of(f"cancelled-{uuid.uuid4().hex[:8]}"), KafkaAdmin(connection)
    config = {"message.timestamp.type": "LogAppendTime"}
    specs = [
        NewTopicSpec(name=name, partitions=1, replication_factor=1, config=config)
        for name in (*names.topics, names.control)
    ]
    ids = {name: info.id for name, info in admin.create_topics(specs).items() if isinstance(info, TopicInfo)}
    producer = Producer(connection.client_config())
    roots = [Root("f", 0, offset, ids[names.front]) for offset in range(2)]
    producer.produce(names.control, key=roots[0].encode(), value=b"cancel")
    assert producer.flush(60) == 0, "the request comes first"
    for root in roots:
        producer.produce(names.front, b"value")
        letter = copies.dead_letter(
            [], root=root, origin=origin("f", 0, root.offset), reason=DeadLetterReason.CANCELLED, error=b""
        )
        producer.produce(names.dead_letter, b"value", headers=list(letter))
    assert producer.flush(60) == 0
    places = [(name, 0) for name in names.topics]
    ends = admin.list_offsets(places, "latest")
    window = whole_window(
        names,
        topic_ids=ids,
        delay_seconds=[0],
        retry_cap=3,
        max_lateness_ms=600_000,
        committed_offsets={names.front: [2], names.delays: [0]},
        end_offsets={name: [end for place in [(name, 0)] if isinstance(end := ends[place], int)] for name, _ in places},
    )
    return Cancelled(connection=connection, names=names, window=replace(window, control_id=ids[names.control]))


def test_what_nobody_had_asked_to_cancel_is_named_and_what_somebody_had_is_not(
    spark: SparkSession, cancelled: Cancelled
) -> None:
    result = cancelled.judged(spark, cancelled.window)
    assert (result.verdict, result.offenders) == ("Violated", {"wrongly_dead_lettered": ["f:0:1 dead-letter:0:1"]})
    assert result.account is not None
    assert (result.account.cancelled, result.account.dead_lettered, result.account.offsets_read) == (2, 0, 5)
    plain = PlainAudit(window=cancelled.window, connection=cancelled.connection)
    plain.run()
    assert (plain.cancelled, plain.lost) == (2, 0)


def test_without_a_control_topic_nothing_is_cancelled_for_a_reason(spark: SparkSession, cancelled: Cancelled) -> None:
    result = cancelled.judged(spark, replace(cancelled.window, control_id=""))
    assert result.offenders == {"wrongly_dead_lettered": ["f:0:0 dead-letter:0:0", "f:0:1 dead-letter:0:1"]}


def test_where_the_control_topic_does_not_tell_all_nobody_is_blamed_and_it_is_said(
    spark: SparkSession, cancelled: Cancelled
) -> None:
    result = cancelled.judged(spark, replace(cancelled.window, control_id=None))
    assert result.verdict == "Verified"
    said = (
        "It is unknown whether anyone had asked to cancel the 2 cancelled records: "
        f"topic {cancelled.names.control} was deleted or created"
    )
    assert said in result.message


def test_a_control_topic_tells_all_only_if_it_is_the_first_and_nothing_of_it_is_missing(
    spark: SparkSession, cancelled: Cancelled
) -> None:
    name = cancelled.names.control
    assert cancelled.unknown(spark) is None
    again = f"topic {name} was deleted or created again, or its id was not noted"
    others = [replace(cancelled.window, control_id=other) for other in (None, "another")]
    assert [cancelled.unknown(spark, other) for other in others] == [again] * 2

    transaction = Producer({**cancelled.connection.client_config(), "transactional.id": name})
    transaction.init_transactions()
    transaction.begin_transaction()
    transaction.produce(name, key=b"order-42", value=b"cancel")
    transaction.flush(60)
    assert cancelled.unknown(spark) is None, "an open transaction does not hold up the audit"
    transaction.abort_transaction()
    admin = KafkaAdmin(cancelled.connection)

    def is_over() -> bool:
        stable = admin.list_offsets([(name, 0)], "latest", isolation="read_committed")
        return stable == admin.list_offsets([(name, 0)], "latest")

    wait_until(is_over, what="the transaction has also ended for consumers")
    missing = f"records of topic {name} are missing because of retention, compaction or a transaction"
    assert cancelled.unknown(spark) == missing

    kafka = AdminClient(cancelled.connection.client_config())
    for future in kafka.delete_records([TopicPartition(name, 0, 1)]).values():
        future.result()
    assert cancelled.unknown(spark) == missing


def test_a_control_topic_into_which_nobody_wrote_is_read_too(spark: SparkSession, cancelled: Cancelled) -> None:
    names = TopicNames.of(f"cancelled-{uuid.uuid4().hex[:8]}")
    empty = NewTopicSpec(name=names.control, partitions=1, replication_factor=1, config={})
    made = KafkaAdmin(cancelled.connection).create_topics([empty])[names.control]
    assert isinstance(made, TopicInfo)
    assert cancelled.unknown(spark, replace(cancelled.window, topic=names.front, control_id=made.id)) is None
