"""How a connection becomes the configuration of Kafka's Java client."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from delayed_topics_audit import sources
from delayed_topics_audit.errors import AuditFailed
from delayed_topics_audit.job import audit
from delayed_topics_audit.sources import java_client, java_options, offsets_in_a_task
from delayed_topics_audit_testing.rows import kafka
from delayed_topics_audit_testing.topics import whole_window
from delayed_topics_core.headers import Root, origin
from delayed_topics_core.names import TopicNames
from delayed_topics_core_testing import copies
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_kafka_testing.oauth import oauth_kafka
from delayed_topics_kafka_testing.reading import read_committed
from pyspark.sql import SparkSession


def secure(**fields: Any) -> Connection:
    return Connection(bootstrap_servers="kafka:9093", **fields)


def test_a_plain_connection() -> None:
    assert java_client(secure()) == {"bootstrap.servers": "kafka:9093", "security.protocol": "PLAINTEXT"}


def test_a_password_with_quotes_stays_one_password() -> None:
    properties = java_client(
        secure(
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            username="audit",
            password='a"b\\c; required',
            ca_pem="CA",
        )
    )
    assert properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert properties["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="audit" password="a\\"b\\\\c; required";'
    )
    assert (properties["ssl.truststore.type"], properties["ssl.truststore.certificates"]) == ("PEM", "CA")


def test_a_client_certificate() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nx"
    properties = java_client(secure(security_protocol="SSL", certificate_pem="C", key_pem=key))
    assert properties["ssl.keystore.type"] == "PEM"
    assert properties["ssl.keystore.certificate.chain"] == "C"
    assert properties["ssl.keystore.key"] == key


def test_what_java_can_not_use_is_said_with_what_to_do() -> None:
    with pytest.raises(AuditFailed, match="openssl pkcs8"):
        java_client(secure(security_protocol="SSL", certificate_pem="C", key_pem="-----BEGIN RSA PRIVATE KEY-----"))
    with pytest.raises(AuditFailed, match="OAUTHBEARER must come with a token endpoint"):
        java_client(secure(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER"))
    with pytest.raises(AuditFailed, match="GSSAPI must be one of PLAIN"):
        java_client(secure(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI"))


@pytest.mark.parametrize(
    ("starts", "ends", "most"),
    [((0,), (0,), 2_000_000), ((0, 7), (10**9, 7), 2_000_000), ((0, 10**12), (8 * 10**11, 10**12), 80_000_000)],
)
def test_tasks_are_small_until_there_are_too_many_of_them(
    starts: tuple[int, ...], ends: tuple[int, ...], most: int
) -> None:
    assert offsets_in_a_task(starts, ends) == most


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_by_tokens_and_its_clients_renew_them(spark: SparkSession, tmp_path: Path) -> None:
    """Kafka's Java client accepts a token endpoint only if a system property of its JVM allows it."""
    with oauth_kafka(tmp_path) as kafka:
        KafkaAdmin(kafka.connection).create_topics([NewTopicSpec(name="orders", partitions=1, replication_factor=1)])
        producer = Producer(kafka.connection.client_config())
        for number in range(3):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(60) == 0
        name, _, allowed = java_options(kafka.connection).removeprefix("-D").partition("=")
        assert spark._jvm is not None
        spark._jvm.System.setProperty(name, allowed)
        given = kafka.tokens.given
        rows = sources.read(spark, kafka.connection, "orders", [0], [3]).select("value").collect()
        assert [bytes(row["value"]) for row in rows] == [b"0", b"1", b"2"]
        assert kafka.tokens.given > given

        consumer, given = java_consumer(spark, java_client(kafka.connection), "orders"), kafka.tokens.given
        try:

            def renewed() -> bool:
                """Each poll raises the errors that stop the consumer."""
                polled(spark, consumer, "orders")
                return kafka.tokens.given >= given + 4  # two tokens for each client

            wait_until(renewed, what="the clients have renewed their tokens")
            producer.produce("orders", b"late")
            assert producer.flush(60) == 0
            wait_until(lambda: "late" in polled(spark, consumer, "orders"), what="the consumer reads with a new token")
        finally:
            consumer.close()


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.spark
def test_a_topic_that_is_deleted_while_an_audit_reads_it_is_not_made_again(spark: SparkSession, broker: Broker) -> None:
    """By default, Kafka's Java client lets the broker create a missing topic with the broker's settings."""
    connection, topic = Connection(bootstrap_servers=broker.bootstrap), "deleted-while-an-audit-reads-it"
    consumer = java_consumer(spark, sources.reader(connection), topic)
    try:
        assert list(consumer.partitionsFor(topic)) == []
    finally:
        consumer.close()
    assert KafkaAdmin(connection).describe_topics([topic]) == {topic: None}


def java_consumer(spark: SparkSession, properties: dict[str, str], topic: str) -> Any:
    """Returns a consumer of partition 0, as Spark creates one for a task."""
    jvm: Any = spark._jvm
    given = jvm.java.util.HashMap()
    strings = "org.apache.kafka.common.serialization.StringDeserializer"
    further = {**dict.fromkeys(("key.deserializer", "value.deserializer"), strings), "auto.offset.reset": "earliest"}
    for name, value in {**properties, **further}.items():
        given.put(name, value)
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(given)
    consumer.assign([jvm.org.apache.kafka.common.TopicPartition(topic, 0)])
    return consumer


def polled(spark: SparkSession, consumer: Any, topic: str) -> list[str]:
    jvm: Any = spark._jvm
    records = consumer.poll(jvm.java.time.Duration.ofMillis(200))
    return [str(record.value()) for record in records.records(jvm.org.apache.kafka.common.TopicPartition(topic, 0))]


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.spark
def test_a_zero_byte_that_javas_client_sends_in_the_key_of_a_header_is_no_broken_promise(
    spark: SparkSession, broker: Broker
) -> None:
    """Workers use librdkafka, which does not see what follows. The verdict was once `Violated`."""
    connection, names = Connection(bootstrap_servers=broker.bootstrap), TopicNames.of("zero-byte-in-a-header")
    config = {"message.timestamp.type": "LogAppendTime"}
    specs = [NewTopicSpec(name=name, partitions=1, replication_factor=1, config=config) for name in names.topics]
    ids = {
        name: made.id
        for name, made in KafkaAdmin(connection).create_topics(specs).items()
        if isinstance(made, TopicInfo)
    }
    sent = kafka(spark, [(0, 0, 0, [("trace\0x", b"1")])]).select("value", "headers")
    options = {f"kafka.{name}": value for name, value in java_client(connection).items()}
    sent.write.format("kafka").options(**options).option("topic", names.front).mode("append").save()
    (seen,) = read_committed(connection, names.front)
    assert seen.headers() == [("trace", b"1")]

    _, at_ms = seen.timestamp()
    root = Root("f", 0, 0, ids[names.front])
    released = copies.release(
        [("trace", b"1")], root=root, origin=origin("f", 0, 0), due_at_ms=at_ms, released_at_ms=at_ms
    )
    worker = Producer(connection.client_config())
    worker.produce(names.ready, seen.value(), headers=list(released))
    assert worker.flush(60) == 0
    window = whole_window(
        names,
        topic_ids=ids,
        delay_seconds=[0],
        retry_cap=3,
        max_lateness_ms=60_000,
        committed_offsets={names.front: [1], names.delays: [0]},
        end_offsets={**dict.fromkeys(names.topics, (0,)), names.front: (1,), names.ready: (1,)},
    )
    result = audit(window, connection, lambda: spark, print).result
    assert result.verdict == "Verified", result.message
