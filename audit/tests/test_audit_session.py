"""The Spark session of an audit that runs in one pod."""

import uuid
from typing import Any

import pytest
from delayed_topics_audit.sources import read, reader
from delayed_topics_kafka.connection import Connection
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_task_that_fails_is_tried_again_in_one_pod_as_on_executors(spark: SparkSession) -> None:
    """With Spark's own `local[2]`, the first failed task would end the audit. The task of this test fails at its first attempt."""
    tried = f"reflect('java.lang.System', 'setProperty', '{uuid.uuid4()}', 'tried')"
    assert spark.range(1, numPartitions=1).selectExpr(f"assert_true({tried} = 'tried')").collect() == [(None,)]


def test_records_are_read_as_rows_and_not_as_java_objects(spark: SparkSession) -> None:
    """Spark's older reader for Kafka, which is its default for batches, makes an object of each value."""
    rows = read(spark, Connection(bootstrap_servers="kafka:9092"), "orders", [0], [1])
    plan: Any = rows._jdf.queryExecution().optimizedPlan()
    assert "RelationV2" in plan.toString()


def test_kafkas_client_has_the_id_of_audits_and_the_rack_of_its_pod_and_a_password_stays_as_it_is(
    spark: SparkSession,
) -> None:
    password = "${env:JAVA_TOOL_OPTIONS}"
    connection = Connection(
        bootstrap_servers="kafka:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        username="audit",
        password=password,
    )
    deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    for name, value in {**reader(connection), "key.deserializer": deserializer}.items():
        properties.setProperty(name, value)
    properties.setProperty("value.deserializer", deserializer)
    config = jvm.org.apache.kafka.clients.consumer.ConsumerConfig(properties)
    assert (config.getString("client.id"), config.getString("client.rack")) == ("delayed-topics-audit", "zone-b")
    assert password in config.getPassword("sasl.jaas.config").value()
