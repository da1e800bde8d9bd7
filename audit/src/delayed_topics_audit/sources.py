"""Kafka as a source for Spark: reads the frozen offsets of one topic, with isolation level read_committed and with headers."""

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
"""The handler that gets tokens with the client's own credentials, and renews them."""

Read = Callable[[str, Sequence[int], Sequence[int]], DataFrame]
"""Returns the rows of a topic between two offsets of each partition: the first inclusive, the second exclusive."""
WHAT_TO_DO: Final = {
    "AuthorizationException": "Grant Read to the user of this connection, see docs/kafka-acls.md",
}
"""Advice for a topic that can't be read, by the name of Java's exception."""

CLIENT_ID: Final = "delayed-topics-audit"
"""The client id of everything that reads for an audit, on all its pods. Brokers apply quotas by client id."""
RACK: Final = "KAFKA_CLIENT_RACK"
"""The environment variable with the zone of a pod. The Job's container and each executor have their own."""
_RACK_OF_THIS_POD: Final = {
    "client.rack": f"${{env:{RACK}}}",
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    # without this pattern, the provider would replace ${env:HOME} in a password
    "config.providers.env.param.allowlist.pattern": RACK,
}
"""Spark's options are the same on all pods, so Kafka's client looks the rack up in the pod where it reads. Without the variable, no
replica counts as nearer."""
OFFSETS_IN_A_TASK: Final = 2_000_000
"""About half a minute of one core. If a task fails, so much is read again."""
MAX_TASKS: Final = 10_000
"""The maximum number of tasks for one topic. The driver keeps a few kilobytes for each of them until the audit ends."""


def offsets_in_a_task(starts: Sequence[int], ends: Sequence[int]) -> int:
    """Returns the maximum number of offsets in a task, for a topic with these offsets by partition. A topic with more than 2 * 10^10
    offsets gets larger tasks, not more of them."""
    return max(OFFSETS_IN_A_TASK, -(-(sum(ends) - sum(starts)) // MAX_TASKS))


def read(
    spark: SparkSession, connection: Connection, topic: str, starts: Sequence[int], ends: Sequence[int]
) -> DataFrame:
    """Returns the rows of `topic` from `starts` (inclusive) to `ends` (exclusive), by partition. The read fails if records were removed
    meanwhile."""
    options = {
        **{f"kafka.{name}": value for name, value in reader(connection).items()},
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.records": "5000",
        "assign": json.dumps({topic: list(range(len(ends)))}),
        "startingOffsets": _by_partition(topic, starts),
        "endingOffsets": _by_partition(topic, ends),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        # so that a topic of one partition uses all cores too
        "minPartitions": str(spark.sparkContext.defaultParallelism),
        "maxRecordsPerPartition": str(offsets_in_a_task(starts, ends)),
    }
    return spark.read.format("kafka").options(**options).load()


def reader(connection: Connection) -> dict[str, str]:
    """Returns the properties of the Java consumers that read for an audit. Raises AuditFailed if Java can't use the connection."""
    own = {"client.id": CLIENT_ID, "allow.auto.create.topics": "false"}
    return {**java_client(connection), **own, **_RACK_OF_THIS_POD}


def java_client(connection: Connection) -> dict[str, str]:
    """Returns the connection as properties of Kafka's Java client. Raises AuditFailed if Java can't use the connection."""
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
    """Returns the options that a Java machine needs so that its Kafka clients may call the connection's token endpoint."""
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
    options = {
        "clientId": connection.oauth_client_id,
        "clientSecret": connection.oauth_client_secret,
        "scope": connection.oauth_scope,
        # for the token endpoint, whose client reads these settings only from here
        "ssl.truststore.type": "PEM" if connection.token_endpoint_ca_pem else None,
        "ssl.truststore.certificates": connection.token_endpoint_ca_pem,
    }
    extensions = [pair.split("=", 1) for pair in (connection.oauth_extensions or "").split(",") if pair]
    options |= {f"extension_{name}": value for name, value in extensions}
    return {name: value for name, value in options.items() if value is not None}


def _quoted(text: str | None) -> str:
    escaped = (text or "").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _by_partition(topic: str, offsets: Sequence[int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(offsets)}})
