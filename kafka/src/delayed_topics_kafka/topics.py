"""Admin calls that describe, create, grow, change and delete topics, and look up their offsets."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from delayed_topics_core.offsets import TopicPartitionKey

from delayed_topics_kafka.calls import AdminCalls, V, Wait, ask_once, forgiving, is_transient, nothing
from delayed_topics_kafka.deadline import Deadline, until_true
from delayed_topics_kafka.errors import KafkaCallError, KafkaRefused, LeadersMissing, TopicMissing, kafka_error
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo

Isolation = Literal["read_committed", "read_uncommitted"]
Known = TopicInfo | KafkaCallError | None


class TopicCalls(AdminCalls):
    """Admin calls about topics."""

    def describe_topics(self, names: Sequence[str]) -> dict[str, Known]:
        """Describes topics. The result is None for a topic that doesn't exist."""
        return self._describe(names, self._deadline())

    def topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, str] | KafkaCallError]:
        """Returns all settings of each topic, including inherited ones."""

        def send(pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in pending]
            futures = self._client.describe_configs(resources, request_timeout=timeout_seconds)
            return {resource.name: future.result for resource, future in futures.items()}

        def values(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
            return {name: entry.value for name, entry in entries.items() if entry.value is not None}

        return self._many(names, send, lambda name: f"reading the settings of topic {name}", values)

    def alter_topic_configs(self, settings: Mapping[str, Mapping[str, str]]) -> dict[str, KafkaCallError | None]:
        """Sets these settings of each topic and leaves its others alone."""

        def send(pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
            resources = [
                ConfigResource(ResourceType.TOPIC, topic, incremental_configs=_to_set(settings[topic]))
                for topic in pending
            ]
            futures = self._client.incremental_alter_configs(resources, request_timeout=timeout_seconds)
            return {resource.name: future.result for resource, future in futures.items()}

        return self._many(list(settings), send, lambda topic: f"changing settings of topic {topic}", nothing)

    def create_topics(self, specs: Sequence[NewTopicSpec]) -> dict[str, TopicInfo | KafkaCallError]:
        """Creates topics, and returns when each topic that could be created is usable. Kafka itself answers before leaders are elected."""
        deadline = self._deadline()
        made = self._ask_for_topics(specs, deadline, validate_only=False)
        return self._usable(made, {spec.name: spec.partitions for spec in specs}, deadline)

    def create_partitions(self, totals: Mapping[str, int]) -> dict[str, TopicInfo | KafkaCallError]:
        """Grows each topic to its total number of partitions, and returns when the new partitions are usable."""
        deadline = self._deadline()

        def send(pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
            wanted = [NewPartitions(topic, totals[topic]) for topic in pending]
            futures = self._client.create_partitions(wanted, request_timeout=timeout_seconds)
            return {topic: future.result for topic, future in futures.items()}

        def doing(topic: str) -> str:
            return f"growing topic {topic} to {totals[topic]} partitions"

        return self._usable(self._many(list(totals), send, doing, nothing, deadline), totals, deadline)

    def delete_topics(self, names: Sequence[str]) -> dict[str, KafkaCallError | None]:
        """Deletes topics, and returns when they no longer exist. A topic that doesn't exist counts as deleted."""
        deadline = self._deadline()

        def send(pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
            futures = self._client.delete_topics(pending, request_timeout=timeout_seconds)
            return {name: future.result for name, future in futures.items()}

        def doing(name: str) -> str:
            return f"deleting topic {name}"

        requested = self._many(names, send, doing, nothing, deadline)
        outcomes = forgiving(requested, code=KafkaError.UNKNOWN_TOPIC_OR_PART)
        going = [name for name, outcome in outcomes.items() if outcome is None]
        left = self._await(going, lambda _, known: known is None, deadline)
        for name, known in left.items():
            outcomes[name] = self._too_slow(doing(name)) if isinstance(known, TopicInfo) else known
        return outcomes

    def list_offsets(
        self,
        partitions: Sequence[TopicPartitionKey],
        which: Literal["earliest", "latest"],
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> dict[TopicPartitionKey, int | KafkaCallError]:
        """Returns the first offset of each partition, or its end, which is the next offset to be written. With read_committed, the end
        is the last stable offset."""
        spec = OffsetSpec.earliest() if which == "earliest" else OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(dict.fromkeys(partitions, spec), isolation, lambda found: found.offset)

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartitionKey, int]
    ) -> dict[TopicPartitionKey, int | KafkaCallError | None]:
        """Returns the first offset whose timestamp, in milliseconds, is at or after the given one; None if no record is that new."""
        specs = {partition: OffsetSpec.for_timestamp(at_ms) for partition, at_ms in times_ms.items()}
        return self._offsets(specs, "read_uncommitted", lambda found: found.offset if found.offset >= 0 else None)

    def newest_times(
        self, partitions: Sequence[TopicPartitionKey]
    ) -> dict[TopicPartitionKey, int | KafkaCallError | None]:
        """Returns the latest timestamp in each partition, in milliseconds; None if it has no records."""
        spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
        return self._offsets(
            dict.fromkeys(partitions, spec),
            "read_uncommitted",
            lambda found: found.timestamp if found.offset >= 0 else None,
        )

    def _ask_for_topics(
        self, specs: Sequence[NewTopicSpec], deadline: Deadline, *, validate_only: bool
    ) -> dict[str, KafkaCallError | None]:
        """Requests the creation of topics, and returns the error of each. With `validate_only`, Kafka only checks the request."""
        by_name = {spec.name: spec for spec in specs}

        def send(pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
            topics = [
                NewTopic(s.name, s.partitions, s.replication_factor, config=dict(s.config))
                for s in (by_name[name] for name in pending)
            ]
            futures = self._client.create_topics(topics, request_timeout=timeout_seconds, validate_only=validate_only)
            return {name: future.result for name, future in futures.items()}

        return self._many(list(by_name), send, lambda name: f"creating topic {name}", nothing, deadline)

    def _offsets(
        self,
        specs: Mapping[TopicPartitionKey, OffsetSpec],
        isolation: Isolation,
        value: Callable[[ListOffsetsResultInfo], V],
    ) -> dict[TopicPartitionKey, V | KafkaCallError]:
        repeated = False

        def send(pending: list[TopicPartitionKey], timeout_seconds: float) -> Mapping[TopicPartitionKey, Wait]:
            nonlocal repeated
            refused: dict[TopicPartitionKey, KafkaError] = {}
            if repeated or not self._knows_brokers:
                # Refreshes the metadata of the client for two reasons. First, the client library (2.16) asks again with the
                # leader epoch of its cache, even if Kafka refused that epoch. Without this, a broker that was fenced for a
                # moment would stay unreachable for 15 minutes. Second, a new client drops its connections to the bootstrap
                # servers as soon as it knows the brokers. If it was asking a bootstrap server for leaders, it asks again
                # only after three seconds. The request is for all topics, because a request for one by name may create it.
                if not self._client.list_topics(timeout=timeout_seconds).brokers:
                    self._renew_client()  # the client is stranded, see stranded.py
                    raise KafkaException(KafkaError(KafkaError._TRANSPORT))
                self._knows_brokers = True
            if repeated:
                refused = self._refused(pending, timeout_seconds)
            repeated = True
            futures = self._client.list_offsets(
                {TopicPartition(*key): specs[key] for key in pending if key not in refused},
                isolation_level=IsolationLevel[isolation.upper()],
                request_timeout=timeout_seconds,
            )
            waits: dict[TopicPartitionKey, Wait] = {
                (tp.topic, tp.partition): partial(_offset_found, future.result) for tp, future in futures.items()
            }
            return waits | {key: partial(_fail, error) for key, error in refused.items()}

        return self._many(list(specs), send, lambda key: f"reading offsets of {key[0]} [{key[1]}]", value)

    def _refused(
        self, partitions: Sequence[TopicPartitionKey], timeout_seconds: float
    ) -> dict[TopicPartitionKey, KafkaError]:
        """Returns the errors of those partitions that don't exist, or whose topic the user may not describe."""
        topics = ask_once(list({topic for topic, _ in partitions}), self._send_describe, timeout_seconds)
        refused: dict[TopicPartitionKey, KafkaError] = {}
        for topic, partition in partitions:
            described = topics[topic]
            if not isinstance(described, KafkaError):
                if partition not in {p.id for p in described.partitions}:
                    refused[topic, partition] = KafkaError(KafkaError._UNKNOWN_PARTITION)
            elif not is_transient(described):
                refused[topic, partition] = described
        return refused

    def _send_describe(self, pending: list[str], timeout_seconds: float) -> Mapping[str, Wait]:
        futures = self._client.describe_topics(TopicCollection(pending), request_timeout=timeout_seconds)
        return {name: future.result for name, future in futures.items()}

    def _describe(self, names: Sequence[str], deadline: Deadline) -> dict[str, Known]:
        found = self._many(names, self._send_describe, lambda name: f"describing topic {name}", _topic_info, deadline)
        return {name: None if isinstance(known, TopicMissing) else known for name, known in found.items()}

    def _await(
        self, names: Sequence[str], arrived: Callable[[str, Known], bool], deadline: Deadline
    ) -> dict[str, Known]:
        """Describes the topics again until each has `arrived` or Kafka refuses to describe it, or until the deadline. Returns the last
        descriptions."""
        known: dict[str, Known] = {}

        def settled(name: str) -> bool:
            return name in known and (arrived(name, known[name]) or isinstance(known[name], KafkaRefused))

        def all_settled() -> bool:
            known.update(self._describe([name for name in names if not settled(name)], deadline))
            return all(settled(name) for name in names)

        if names:
            until_true(all_settled, deadline)
        return known

    def _usable(
        self, requested: Mapping[str, KafkaCallError | None], totals: Mapping[str, int], deadline: Deadline
    ) -> dict[str, TopicInfo | KafkaCallError]:
        def usable(name: str, known: Known) -> bool:
            return isinstance(known, TopicInfo) and known.leaders_known and known.partitions >= totals[name]

        known = self._await([name for name, error in requested.items() if error is None], usable, deadline)
        outcomes: dict[str, TopicInfo | KafkaCallError] = {}
        for name, error in requested.items():
            found = error or known[name]
            if isinstance(found, KafkaCallError) or (found is not None and usable(name, found)):
                outcomes[name] = found
            else:
                late = self._too_slow(f"electing leaders for topic {name}")
                outcomes[name] = late if found is None else LeadersMissing(str(late), made=found)
        return outcomes


def _offset_found(result: Wait, timeout_seconds: float) -> ListOffsetsResultInfo:
    """Returns the found offset. Raises transient errors, after which `_many` asks again, for two failures that the client library (2.16)
    reports as something else:

    - If the client knows no leader of any partition of a call, it reports the same error as for topics that don't exist or are forbidden
      (`rd_kafka_topic_partition_list_query_leaders_async_worker`). A partition may soon get a leader; `_refused` finds the others.
    - It drops the error of a request to a leader, such as a broken connection, and returns the offset that the result was initialized with
      (`rd_kafka_ListOffsets_response_merge`).
    """
    try:
        found: ListOffsetsResultInfo = result(timeout_seconds)
    except KafkaException as e:
        if kafka_error(e).code() == KafkaError._NOENT:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from None
        raise
    if found.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    return found


def _fail(error: KafkaError, _: float) -> Any:
    raise KafkaException(error)


def _to_set(settings: Mapping[str, str]) -> list[ConfigEntry]:
    return [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()]


def _topic_info(described: TopicDescription) -> TopicInfo:
    leaderless = tuple(p.id for p in described.partitions if p.leader is None or p.leader.id < 0)
    return TopicInfo(
        name=described.name,
        id=kafka_id(described.topic_id),
        partitions=len(described.partitions),
        replication_factor=min((len(p.replicas) for p in described.partitions), default=0),
        leaders_known=not leaderless,
        leaderless=leaderless,
        lagging=tuple(p.id for p in described.partitions if len(p.isr) < len(p.replicas)),
    )


def kafka_id(uuid: Any) -> str:
    """Returns a topic id as Kafka's own tools print it, in URL-safe base64. librdkafka uses standard base64. Neither adds padding."""
    return str(uuid).replace("+", "-").replace("/", "_")
