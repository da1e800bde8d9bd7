"""A consumer whose user lacks a right names this right. Records that it could not settle are handed out again."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from delayed_topics import DelayedTopic, Record, Records, Reject, transacting
from delayed_topics.cli import main
from delayed_topics.copies import retry
from delayed_topics_client_testing import Served, received, serve
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import ConnectionInvalid, NotAuthorized
from delayed_topics_kafka_testing.rights import AUTHORIZER, deny_only, lift

ACLS = Path(__file__).resolve().parents[2] / "docs" / "kafka-acls.md"
TARGET = "invoices"
PATIENCE_SECONDS = 15
"""How long a consumer may make no progress before the test stops it."""

Handler = Callable[[Record], object]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    """A delayed topic on a broker with ACLs. Each group receives two records from each ready topic."""
    with Broker(settings={**AUTHORIZER, **PATIENT}) as broker:
        served = serve(Connection(bootstrap_servers=broker.bootstrap), "orders")
        served.make(TARGET, 1)
        served.allow(TARGET)
        for value in (b"bad", b"last"):
            served.release(value)
            served.produce(TARGET, value, headers=[])
        yield served


def values(served: Served, topic: str) -> Counter[bytes | None]:
    """Returns how often each value was written. The order differs, because the partitions are read in any order."""
    return Counter(copy.value for copy in served.read(topic))


@contextmanager
def patience(stop: Callable[[], None], seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def handle(served: Served, handler: Handler, *, group: str, stop: bool = True, ready_topic: str | None = None) -> None:
    """Runs a consumer that passes its first record to the handler. `stop`: the consumer stops after the last record; otherwise an error
    or a timer ends it."""

    def handled(record: Record) -> None:
        if record.value == b"bad":
            handler(record)
        elif stop:
            consumer.stop()

    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        consumer = orders.consumer(group, handled, member="pod-0", ready_topic=ready_topic)
        with patience(consumer.stop):
            consumer.run()


def fail(_: Record) -> None:
    raise RuntimeError("not now")


def reject(_: Record) -> None:
    raise Reject("never")


def fail_one(records: Records) -> None:
    """Makes a record fail that came while Kafka was there."""
    error = RuntimeError("not now")
    records._settling.done(retry(received(b"bad"), records._names, group="shipping", error=error, done_at_ms=1))


class Forbidden:
    """A producer whose user may not use its transactional id."""

    def __init__(self, config: dict[str, object]) -> None:
        pass

    def init_transactions(self, timeout_seconds: float) -> None:
        raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))


def test_whoever_asks_for_records_or_closes_is_told_what_kafka_does_not_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transacting, "Producer", Forbidden)
    nowhere = Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": "0"})
    records = Records(nowhere, TopicNames.of("orders"), "shipping", member="pod-0")
    fail_one(records)
    said = "committing offsets of orders.ready and writing to orders as transactional id delayedtopics.orders.shipping.pod-0"
    with patience(records.stop, 3), pytest.raises(NotAuthorized, match=f"{said} failed .* Either grant this"):
        next(iter(records))
    with pytest.raises(NotAuthorized, match=said):
        records.close()


def test_a_property_that_the_producer_of_copies_can_not_have_ends_the_consumer() -> None:
    nowhere = Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": "0", "retries": "0"})
    records = Records(nowhere, TopicNames.of("orders"), "shipping")
    fail_one(records)
    with patience(records.stop, 3), pytest.raises(ConnectionInvalid, match="retries"):
        next(iter(records))
    with pytest.raises(ConnectionInvalid):
        records.close()


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "kind", "name", "handler", "stop"),
    [
        ("shipping", ResourceType.TRANSACTIONAL_ID, "delayedtopics.orders.shipping.pod-0", fail, False),
        ("billing", ResourceType.TOPIC, "orders", fail, False),
        ("books", ResourceType.TOPIC, "orders.dead", reject, True),
    ],
)
def test_a_right_that_is_missing_ends_the_consumer_and_nothing_is_lost(
    guarded: Served, group: str, kind: ResourceType, name: str, handler: Handler, stop: bool
) -> None:
    target = guarded.names.front if handler is fail else guarded.names.dead_letter
    before = values(guarded, target)
    deny_only(guarded.connection, kind, name, AclOperation.WRITE)
    with pytest.raises(NotAuthorized, match=rf"{re.escape(name)}\b.* failed .*{kind.name}_AUTHORIZATION_FAILED"):
        handle(guarded, handler, group=group, stop=stop)
    assert guarded.committed(group) == {}
    lift(guarded.connection, kind, name)
    handle(guarded, handler, group=group)
    assert values(guarded, target) - before == {b"bad": 1}
    assert guarded.committed(group) == {0: 2}


@contextmanager
def only(connection: Connection, transactional_id: str) -> Iterator[None]:
    """Allows only transactional ids with this prefix."""
    kind, client = ResourceType.TRANSACTIONAL_ID, AdminClient(connection.client_config())
    all_ids = ("*", ResourcePatternType.LITERAL, "User:nobody", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    rules = [AclBinding(kind, *all_ids)]
    for operation in (AclOperation.WRITE, AclOperation.DESCRIBE):
        everybody = ("User:*", "*", operation, AclPermissionType.ALLOW)
        rules.append(AclBinding(kind, transactional_id, ResourcePatternType.PREFIXED, *everybody))
    for made in client.create_acls(rules).values():
        made.result(60)
    yield
    filters = [
        AclBindingFilter(kind, r.name, r.resource_pattern_type, r.principal, r.host, r.operation, r.permission_type)
        for r in rules
    ]
    for removed in client.delete_acls(filters).values():
        removed.result(60)


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(("group", "ready_topic"), [("sales", None), ("taxes", TARGET)])
def test_the_transactional_ids_of_the_page_on_acls_are_all_that_a_consumer_needs(
    guarded: Served, group: str, ready_topic: str | None
) -> None:
    own, others = re.findall(r"`(delayedtopics\.T\.[^`]*<group>\.)\*` \(prefixed\)", ACLS.read_text())
    page = own if ready_topic is None else others
    before = values(guarded, guarded.names.front)
    with only(
        guarded.connection, page.replace(".T.", ".orders.").replace("<ready topic>", TARGET).replace("<group>", group)
    ):
        handle(guarded, fail, group=group, ready_topic=ready_topic)
    assert values(guarded, guarded.names.front) - before == {b"bad": 1}


@pytest.mark.broker
@pytest.mark.slow
def test_a_status_that_has_to_read_records_names_the_topic_that_may_not_be_read(guarded: Served) -> None:
    """Where few offsets are left, the command has to read them, because all of them may be transaction markers."""
    delays = guarded.names.delays

    def status() -> Result:
        return CliRunner().invoke(main, ["--bootstrap", guarded.bootstrap, "status", guarded.names.front])

    guarded.produce(delays, b"x", partition=2, headers=[])
    KafkaAdmin(guarded.connection).commit(guarded.layout.group, {(delays, 2): OffsetAndMetadata(0)})
    deny_only(guarded.connection, ResourceType.TOPIC, delays, AclOperation.READ)
    refused = status()
    assert refused.exit_code == 1
    said = rf"Error: reading {delays} failed because Kafka at \S+ refused it \(TOPIC_AUTHORIZATION_FAILED: .*\)\. Either grant this .*\n"
    assert re.fullmatch(said, refused.output)
    lift(guarded.connection, ResourceType.TOPIC, delays)
    assert status().exit_code == 0


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "operation", "doing"),
    [
        (ResourceType.TRANSACTIONAL_ID, "delayedtopics.redrive/orders", AclOperation.WRITE, "writing dead letters"),
        (ResourceType.GROUP, "delayedtopics.redrive/orders", AclOperation.READ, "committing offsets"),
        (ResourceType.TOPIC, "orders", AclOperation.WRITE, "writing dead letters to orders"),
        (ResourceType.TOPIC, "orders.dead", AclOperation.READ, "reading orders.dead"),
    ],
)
def test_a_redrive_that_lacks_a_right_of_the_page_on_acls_names_it_and_sends_nothing(
    guarded: Served, kind: ResourceType, name: str, operation: AclOperation, doing: str
) -> None:
    def redrive() -> Result:
        return CliRunner().invoke(main, ["--bootstrap", guarded.bootstrap, "redrive", guarded.names.front])

    assert redrive().exit_code == 0  # sends the dead letters that other tests have left
    guarded.produce(guarded.names.dead_letter, b"dead", headers=[("dt-reason", b"Rejected")])
    before = values(guarded, guarded.names.front)
    deny_only(guarded.connection, kind, name, operation)
    refused = redrive()
    assert refused.exit_code == 1
    assert re.fullmatch(rf"Error: [^\n]*{doing}[^\n]*{kind.name}_AUTHORIZATION_FAILED[^\n]*\n", refused.output), (
        refused.output
    )
    assert values(guarded, guarded.names.front) == before
    lift(guarded.connection, kind, name)
    assert "1 dead letter" in redrive().output
    assert values(guarded, guarded.names.front) - before == {b"dead": 1}
