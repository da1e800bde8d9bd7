"""Kafka as a source of Spark: the frozen offsets of one topic, read_committed, with headers."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from delayed_topics_kafka.connection import Connection
from pyspark.sql import DataFrame, SparkSession

from delayed_topics_audit.errors import AuditFailed

_LOGIN_MODULES: Mapping[str, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
"""Fetches tokens by the client's own credentials, and renews them."""

Read = Callable[[str, Sequence[int], Sequence[int]], DataFrame]
"""The rows of a topic, from where up to where, by partition."""
WHAT_TO_DO: Final = {
    "AuthorizationException": "Grant Read to the user of this connection, see docs/kafka-acls.md",
}
"""If a topic can't be read, by what Java calls it."""

CLIENT_ID: Final = "delayed-topics-audit"
"""Of all that an audit reads, on all its pods: brokers' quotas go by it."""
RACK: Final = "KAFKA_CLIENT_RACK"
"""Environment variable of the Job's container and of executors, each of which is in a zone of its own."""
_RACK_OF_THIS_POD: Final = {
    "client.rack": f"${{env:{RACK}}}",
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    # or a password with ${env:HOME} in it would be another one
    "config.providers.env.param.allowlist.pattern": RACK,
}
"""Kafka's client looks it up where it reads, Spark's options are the same everywhere. Where it isn't set, no replica is nearer."""
OFFSETS_IN_A_TASK: Final = 2_000_000
"""Half a minute of a core: what is read again when a task fails."""
MOST_TASKS: Final = 10_000
"""Of one topic. The driver keeps a few kilobytes of each until the audit ends."""


def offsets_in_a_task(starts: Sequence[int], ends: Sequence[int]) -> int:
    """At most, of a topic with these offsets by partition. With more than 2 * 10^10 of them tasks grow, not their number."""
    return max(OFFSETS_IN_A_TASK, -(-(sum(ends) - sum(starts)) // MOST_TASKS))


def read(
    spark: SparkSession, connection: Connection, topic: str, starts: Sequence[int], ends: Sequence[int]
) -> DataFrame:
    """The rows of `topic` from `starts` up to, not including, `ends`, by partition. Records that went meanwhile fail the read."""
    options = {
        **{f"kafka.{name}": value for name, value in reader(connection).items()},
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.records": "5000",
        "assign": json.dumps({topic: list(range(len(ends)))}),
        "startingOffsets": _by_partition(topic, starts),
        "endingOffsets": _by_partition(topic, ends),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        # a topic of one partition still uses all cores
        "minPartitions": str(spark.sparkContext.defaultParallelism),
        "maxRecordsPerPartition": str(offsets_in_a_task(starts, ends)),
    }
    return spark.read.format("kafka").options(**options).load()


def reader(connection: Connection) -> dict[str, str]:
    """Properties of the Java consumers that read for an audit. Raises AuditFailed for what Java can't use."""
    own = {"client.id": CLIENT_ID, "allow.auto.create.topics": "false"}
    return {**java_client(connection), **own, **_RACK_OF_THIS_POD}


def java_client(connection: Connection) -> dict[str, str]:
    """The connection as properties of Kafka's Java client. Raises AuditFailed for what Java can't use."""
    properties = {
        "bootstrap.servers": connection.bootstrap_servers,
        "security.protocol": connection.security_protocol,
    }
    if connection.sasl_mechanism is not None:
        properties["sasl.mechanism"] = connection.sasl_mechanism
        properties["sasl.jaas.config"] = _jaas(connection)
        if connection.token_endpoint_url is not None:
            properties["sasl.login.callback.handler.class"] = _TOKENS
            properties["sasl.oauthbearer.token.endpoint.url"] = connection.token_endpoint_url
    if connection.ca_pem is not None:
        properties["ssl.truststore.type"] = "PEM"
        properties["ssl.truststore.certificates"] = connection.ca_pem
    if connection.certificate_pem is not None and connection.key_pem is not None:
        if "-----BEGIN PRIVATE KEY-----" not in connection.key_pem:
            raise AuditFailed(
                "the connection's tls.key must be an unencrypted PKCS#8 key because Java reads no other. "
                "Convert it with `openssl pkcs8 -topk8 -nocrypt`"
            )
        properties["ssl.keystore.type"] = "PEM"
        properties["ssl.keystore.certificate.chain"] = connection.certificate_pem
        properties["ssl.keystore.key"] = connection.key_pem
    return properties


def java_options(connection: Connection) -> str:
    """What a Java machine has to be started with, so that its Kafka clients may ask the connection's token endpoint."""
    url = connection.token_endpoint_url
    return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}" if url is not None else ""


def _jaas(connection: Connection) -> str:
    module = _LOGIN_MODULES.get(connection.sasl_mechanism or "")
    if module is None:
        raise AuditFailed(
            f"the connection's SASL mechanism {connection.sasl_mechanism} must be one of {', '.join(_LOGIN_MODULES)}"
        )
    options = {"username": connection.username, "password": connection.password}
    if connection.sasl_mechanism == "OAUTHBEARER":
        options = _oauth_options(connection)
    return f"{module} required {' '.join(f'{name}={_quoted(value)}' for name, value in options.items())};"


def _oauth_options(connection: Connection) -> dict[str, str | None]:
    if connection.token_endpoint_url is None:
        raise AuditFailed("the connection's SASL mechanism OAUTHBEARER must come with a token endpoint")
    said = {
        "clientId": connection.oauth_client_id,
        "clientSecret": connection.oauth_client_secret,
        "scope": connection.oauth_scope,
        # of the token endpoint: its client takes them from here, and from nowhere else
        "ssl.truststore.type": "PEM" if connection.token_endpoint_ca_pem else None,
        "ssl.truststore.certificates": connection.token_endpoint_ca_pem,
    }
    extensions = [pair.split("=", 1) for pair in (connection.oauth_extensions or "").split(",") if pair]
    said |= {f"extension_{name}": value for name, value in extensions}
    return {name: value for name, value in said.items() if value is not None}


def _quoted(text: str | None) -> str:
    escaped = (text or "").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _by_partition(topic: str, offsets: Sequence[int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(offsets)}})
