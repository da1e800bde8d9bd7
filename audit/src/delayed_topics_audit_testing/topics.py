"""A Made window in a real Kafka: the four topics, which Spark writes in the order of their places."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from delayed_topics_audit.sources import java_client, read
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.delay_list import DelayList
from delayed_topics_core.names import TopicNames
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit_testing.made import Made


@dataclass(frozen=True, kw_only=True)
class Written:
    """Topics that hold a Made window. Append times are the broker's, so records come out late, by as long as the writing takes."""

    made: Made
    names: TopicNames
    connection: Connection
    ids: Mapping[str, str]

    @classmethod
    def of(cls, made: Made, connection: Connection, topic: str) -> "Written":
        names = TopicNames.of(topic)
        counts = {names.delays: len(made.delays_ms)}
        config = {"message.timestamp.type": "LogAppendTime"}
        specs = [
            NewTopicSpec(name=name, partitions=counts.get(name, made.partitions), replication_factor=1, config=config)
            for name in names.topics
        ]
        created = KafkaAdmin(connection).create_topics(specs)
        ids = {name: info.id for name, info in created.items() if isinstance(info, TopicInfo)}
        return cls(made=made, names=names, connection=connection, ids=ids)

    def write(self) -> None:
        """Writes the topics one after the other, so that no record comes out before it came in. The due times of the copies follow from
        the append times of the records, which only the broker knows."""
        made, names = self.made, self.names
        self._write(names.front, made.front())
        ends = [made.per_partition] * made.partitions
        rows = read(made.spark, self.connection, names.front, [0] * made.partitions, ends)
        appended = rows.select("partition", "offset", sf.unix_millis("timestamp").alias("appended_ms"))
        copies = replace(made, appended=appended)
        self._write(names.delays, copies.delays())
        self._write(names.ready, copies.ready())
        self._write(names.dead_letter, copies.dead_letters())

    def _write(self, topic: str, rows: DataFrame) -> None:
        options = {f"kafka.{name}": value for name, value in java_client(self.connection).items()}
        # A task writes whole partitions in order, so that each record gets the offset that it should have.
        ordered = rows.repartition(self.made.partitions, "partition").sortWithinPartitions("partition", "offset", "id")
        columns = ordered.select("key", "value", "headers", "partition")
        columns.write.format("kafka").options(**options).option("topic", topic).option(
            "kafka.compression.type", "lz4"
        ).option("kafka.linger.ms", "20").option("kafka.batch.size", "262144").mode("append").save()

    def freeze(self, *, max_lateness_ms: int) -> AuditWindow:
        made, names = self.made, self.names
        counts = dict.fromkeys(names.topics, made.partitions) | {names.delays: len(made.delays_ms)}
        places = [(name, p) for name, count in counts.items() for p in range(count)]
        ends = KafkaAdmin(self.connection).list_offsets(places, "latest")
        return whole_window(
            names,
            topic_ids=self.ids,
            delay_seconds=[ms // 1000 for ms in made.delays_ms],
            retry_cap=made.bounds.retry_cap,
            max_lateness_ms=max_lateness_ms,
            committed_offsets={names.front: made.bounds.front_committed, names.delays: made.bounds.delays_committed},
            end_offsets={
                name: [end for p in range(count) if isinstance(end := ends[name, p], int)]
                for name, count in counts.items()
            },
        )


def whole_window(
    names: TopicNames,
    *,
    topic_ids: Mapping[str, str],
    delay_seconds: Sequence[int],
    retry_cap: int,
    max_lateness_ms: int,
    committed_offsets: Mapping[str, Sequence[int]],
    end_offsets: Mapping[str, Sequence[int]],
) -> AuditWindow:
    """Returns a window from the beginning of every partition. `delay_seconds` is both the delay list and the delays of as many partitions
    of the delays topic."""
    zeros = {name: (0,) * len(ends) for name, ends in end_offsets.items()}
    ready_partitions = len(end_offsets[names.ready])
    return AuditWindow(
        topic=names.front,
        topic_ids=dict(topic_ids),
        partition_delays=tuple(delay_seconds),
        delay_lists=(DelayList(delay_seconds=tuple(delay_seconds), retry_cap=retry_cap, from_ms=0),),
        ready_partitions=ready_partitions,
        least_ready_partitions=ready_partitions,
        retry_cap=retry_cap,
        max_lateness_ms=max_lateness_ms,
        broker_skew_ms=0,
        frozen_at_ms=int(time.time() * 1000),
        from_offsets=zeros,
        roots_from_offsets={},
        committed_offsets={name: tuple(offsets) for name, offsets in committed_offsets.items()},
        end_offsets={name: tuple(ends) for name, ends in end_offsets.items()},
        beginning_offsets=zeros,
    )
