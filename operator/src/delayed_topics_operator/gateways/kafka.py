"""All calls to one Kafka cluster: the blocking calls of delayed_topics_kafka, in batches, in threads of their own.

A cluster that does not answer therefore blocks only the threads of its own connection.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar

from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.registry import RegistryRecord
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core.settings import MIN_ISR
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaCallError, KafkaUnreachable, RegistryLost, SettingsRefused, values_of
from delayed_topics_kafka.model import ClusterInfo, GroupInfo, NewTopicSpec, TopicInfo
from delayed_topics_kafka.system_topics import SYSTEM_TOPICS, drifted_settings, ensure_system_topics, same_registry

from delayed_topics_operator import metrics
from delayed_topics_operator.errors import LeadershipLost
from delayed_topics_operator.gateways.gather import Gatherer
from delayed_topics_operator.gateways.groups import GroupHelper
from delayed_topics_operator.gateways.helper import Call
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.gateways.refusals import Refusals
from delayed_topics_operator.gateways.registry import RegistryThread
from delayed_topics_operator.values.eventlog import EventLog

K = TypeVar("K")
P = TypeVar("P")
R = TypeVar("R")
log = logging.getLogger(__name__)

FOLLOW_SECONDS = 1.0
SYSTEM_REPLICATION = 3
CLIENT_ID = "delayed-topics-operator"

Committed = Mapping[TopicPartitionKey, OffsetAndMetadata | KafkaCallError | None]

GroupPartitions = tuple[str, tuple[TopicPartitionKey, ...]]
"""A group and the requested partitions."""


class KafkaLink:
    """A connection that is in use. Every call raises LeadershipLost, and KafkaCallError even if a single item failed."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_seconds: float,
        threads: int,
        registry_bytes: int,
        woken: Callable[[set[str]], None],
        transactional_id: str,
        leadership: Leadership,
    ) -> None:
        """`registry_bytes`: the limit for the keys and values of the registry. `woken`: called with the front topics about which the
        registry or the events have news. `transactional_id`: of the writer of the registry, see RegistryThread."""
        self.connection = connection
        self._leadership = leadership
        self._timeout_seconds = timeout_seconds
        self._woken = woken
        self._admin = KafkaAdmin(connection, client_id=CLIENT_ID, timeout_seconds=timeout_seconds)
        self._group_helper = GroupHelper(connection, client_id=CLIENT_ID, timeout_seconds=timeout_seconds)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kafka")
        self._following: asyncio.Task[None] | None = None
        self._closed = False
        self._replicas = 0
        self.registry_id: str | None = None
        """The id of the registry topic that was found, or created, when the link was opened."""
        self._registry_in_sync = True
        self.failure: KafkaCallError | None = None
        """Set when the registry or the events can't be followed any more. The link has to be replaced then."""
        self.registry_read = RegistryState()  # as last read
        self.event_log = EventLog()
        self._registry_thread = RegistryThread(
            connection,
            client_id=CLIENT_ID,
            timeout_seconds=timeout_seconds,
            registry_bytes=registry_bytes,
            transactional_id=transactional_id,
            leadership=leadership,
            event_log=self.event_log,
        )
        self.refusals = Refusals()
        admin = self._admin
        self._topics = self._gathered("describe_topics", admin.describe_topics)
        self._configs = self._gathered("describe_configs", admin.topic_configs)
        self._offsets = {
            "earliest": self._gathered("list_offsets", partial(admin.list_offsets, which="earliest")),
            "latest": self._gathered("list_offsets", partial(admin.list_offsets, which="latest")),
            "stable": self._gathered(
                "list_offsets", partial(admin.list_offsets, which="latest", isolation="read_committed")
            ),
        }
        self._creates: Gatherer[str, NewTopicSpec, TopicInfo | KafkaCallError] = self._gathered_with(
            "create_topics", lambda specs: admin.create_topics([*specs.values()])
        )
        self._grows = self._gathered_with("create_partitions", admin.create_partitions)
        self._alters = self._gathered_with("alter_configs", admin.alter_topic_configs)
        self._deletes = self._gathered("delete_topics", admin.delete_topics)
        self._groups: Gatherer[str, None, GroupInfo | KafkaCallError] = Gatherer(
            lambda groups: self._in_helper("describe_groups", len(groups), [*groups])
        )
        self._group_deletes: Gatherer[str, None, KafkaCallError | None] = Gatherer(
            lambda groups: self._in_helper("delete_groups", len(groups), [*groups])
        )
        self._committed = Gatherer(self._read_committed)
        self._registry = Gatherer(self._catch_up)
        self._writes = Gatherer(self._write_registry)

    async def open(self, *, brokers: int, registry_id: str | None) -> None:
        """Creates missing system topics, with replicas for this number of brokers, and starts to follow the registry and the events.

        `registry_id`: the id of the registry that was used before; None: there was none. Raises RegistryLost if that one is gone.
        """
        self.registry_id = registry_id
        await self._ensure_system_topics(brokers)
        self._begin("open_registry", 1)
        await self._registry_thread.open()
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def repair_system_topics(self, *, brokers: int) -> None:
        """Creates missing system topics again, and repairs the settings of the others. Takes two calls if nothing has changed. Raises
        RegistryLost.

        A setting that Kafka has refused is tried again when others are repaired, and after the time in `Refusals`.
        """
        found = await self._system_topics(SYSTEM_TOPICS)
        there = {topic: info for topic, info in found.items() if info is not None}
        settings, most_replicas = await self.configs(there), min(SYSTEM_REPLICATION, brokers)
        drift = {
            topic: drifted_settings(info, settings[topic], replication_factor=most_replicas)
            for topic, info in there.items()
        }
        missing = sorted(found.keys() - there.keys())
        changed = {topic: names for topic in there if (names := sorted(drift[topic].keys() - self.refusals.of(topic)))}
        if missing or changed:
            log.warning("repairing the system topics. Missing topics: %s. Changed settings: %s", missing, changed)
            await self._ensure_system_topics(brokers)
        elif not there[REGISTRY_TOPIC].lagging:
            self._replicas = there[REGISTRY_TOPIC].replication_factor
            self._registry_in_sync = MIN_ISR not in drift[REGISTRY_TOPIC]

    @property
    def registry_replicas(self) -> int:
        """The number of replicas when the registry was last checked, but at most two if Kafka refuses `min.insync.replicas` above one."""
        return self._replicas if self._registry_in_sync else min(2, self._replicas)

    @property
    def registry_fullness(self) -> float:
        """How much of what the operator may hold of the registry it held when it last read it, from 0 to 1."""
        return self._registry_thread.fullness

    async def _ensure_system_topics(self, brokers: int) -> None:
        made = await self._blocking(
            "ensure_system_topics",
            len(SYSTEM_TOPICS),
            lambda: ensure_system_topics(
                self._admin, replication_factor=min(SYSTEM_REPLICATION, brokers), registry_id=self.registry_id
            ),
        )
        self.registry_id = made[REGISTRY_TOPIC].id
        self._replicas = made[REGISTRY_TOPIC].replication_factor
        self._registry_in_sync = MIN_ISR not in made[REGISTRY_TOPIC].left_out
        for topic, info in made.items():
            refused = dict.fromkeys(info.left_out, "")
            self.refusals.record(topic, refused, refused)

    async def _system_topics(self, names: Sequence[str]) -> dict[str, TopicInfo | None]:
        """`names`: the registry and perhaps other system topics. Raises RegistryLost."""
        found = await self.topics(names)
        if None in found.values():  # a broker may learn of a new topic a moment after the others
            await asyncio.sleep(FOLLOW_SECONDS)
            found = await self.topics(names)
        try:
            same_registry(self.registry_id, found[REGISTRY_TOPIC])
        except RegistryLost as e:
            self.failure = e
            raise
        return found

    async def close(self, *, settle: bool = False) -> None:
        """Closes the link. `settle`: returns only when no call is under way any more."""
        self._closed = True
        if self._following is not None:
            self._following.cancel()
        await self._registry_thread.close()
        in_thread = partial(asyncio.get_running_loop().run_in_executor, None)
        await in_thread(partial(self._threads.shutdown, wait=settle))
        await in_thread(partial(self._group_helper.close, settle=settle))

    async def describe_cluster(self) -> ClusterInfo:
        return await self._blocking("describe_cluster", 1, self._admin.describe_cluster)

    # reads, in batches for all resources

    async def registry(self) -> RegistryState:
        """Returns a copy of the registry as it is now. Raises RegistryLost if the registry is another topic than before."""
        same, read = await asyncio.gather(
            self._system_topics([REGISTRY_TOPIC]), self._registry.ask({None: None}), return_exceptions=True
        )
        if isinstance(same, BaseException):
            raise same  # explains why the registry can't be read
        if isinstance(read, BaseException):
            raise read
        return read[None]

    async def topics(self, names: Iterable[str]) -> dict[str, TopicInfo | None]:
        """Returns the topics by name. None: there is no such topic."""
        return values_of(await self._topics.ask(dict.fromkeys(names)))

    async def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return values_of(await self._configs.ask(dict.fromkeys(names)))

    async def group(self, group: str) -> GroupInfo:
        return values_of(await self._groups.ask({group: None}))[group]

    async def committed(
        self, group: str, partitions: Sequence[TopicPartitionKey]
    ) -> dict[TopicPartitionKey, OffsetAndMetadata | None]:
        """None: nothing is committed."""
        if not partitions:
            return {}
        key = (group, tuple(partitions))
        return values_of(values_of(await self._committed.ask({key: None}))[key])

    async def offsets(
        self, partitions: Sequence[TopicPartitionKey], which: Literal["earliest", "latest", "stable"]
    ) -> dict[TopicPartitionKey, int]:
        """`stable`: the last stable offset, up to which no transaction is open."""
        return values_of(await self._offsets[which].ask(dict.fromkeys(partitions)))

    async def offsets_at(self, times_ms: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int | None]:
        """Returns the first offset whose broker time is at or after the given one. None: there is none yet."""
        return values_of(
            await self._blocking("offsets_for_times", len(times_ms), lambda: self._admin.offsets_for_times(times_ms))
        )

    async def newest_times(self, partitions: Sequence[TopicPartitionKey]) -> dict[TopicPartitionKey, int | None]:
        """Returns the broker time of the newest record of each partition, in milliseconds. None: the partition has no record."""
        return values_of(
            await self._blocking("newest_times", len(partitions), lambda: self._admin.newest_times(partitions))
        )

    # writes

    async def write(self, records: Sequence[RegistryRecord]) -> None:
        """Writes records to the registry. Returns when they were read back."""
        await self._writes.ask({record.key: record for record in records})

    async def remove(self, keys: Sequence[str]) -> None:
        await self._writes.ask(dict.fromkeys(keys))

    async def create_topics(self, specs: Sequence[NewTopicSpec]) -> dict[str, TopicInfo | KafkaCallError]:
        """Creates the topics and returns when they can be used. A topic that can't be used has an error as its result, which says nothing
        about the other topics."""
        return await self._creates.ask({spec.name: spec for spec in specs})

    async def create_partitions(self, topic: str, total: int) -> None:
        values_of(await self._grows.ask({topic: total}))

    async def alter_config(self, topic: str, settings: Mapping[str, str]) -> None:
        """Raises SettingsRefused, and remembers the refused settings."""
        try:
            values_of(await self._alters.ask({topic: settings}))
        except SettingsRefused as e:
            self.refusals.record(topic, settings, e.words_of)
            raise

    async def delete_topics(self, names: Sequence[str]) -> None:
        values_of(await self._deletes.ask(dict.fromkeys(names)))

    async def commit(self, group: str, offsets: Mapping[TopicPartitionKey, OffsetAndMetadata]) -> None:
        """Raises GroupActive if the group has members."""
        values_of(await self._in_helper("commit", len(offsets), group, dict(offsets)))

    async def fence(self, transactional_ids: Sequence[str]) -> None:
        """Fences producers, in the helper, because this looks for coordinators too."""
        values_of(await self._in_helper("fence", len(transactional_ids), list(transactional_ids)))

    async def delete_group(self, group: str) -> None:
        """Raises GroupActive if the group has members."""
        values_of(await self._group_deletes.ask({group: None}))

    # the calls themselves

    def _gathered(self, call: str, function: Callable[[list[K]], Mapping[K, R]]) -> Gatherer[K, None, R]:
        """Returns the Gatherer of a blocking call that takes a list of items."""
        return self._gathered_with(call, lambda items: function([*items]))

    def _gathered_with(self, call: str, function: Callable[[dict[K, P]], Mapping[K, R]]) -> Gatherer[K, P, R]:
        """Returns the Gatherer of a blocking call that takes a parameter for each item."""
        return Gatherer(lambda items: self._blocking(call, len(items), lambda: function(items)))

    async def _read_committed(
        self, items: dict[GroupPartitions, None]
    ) -> Mapping[GroupPartitions, Committed | KafkaCallError]:
        found = await self._in_helper("committed_of_groups", len(items), merged(items))
        return {(group, partitions): _part(found[group], partitions) for group, partitions in items}

    async def _catch_up(self, items: dict[None, None]) -> Mapping[None, RegistryState]:
        self._begin("read_registry", 1)
        self.registry_read = await self._registry_thread.read()
        return dict.fromkeys(items, self.registry_read)

    async def _write_registry(self, items: dict[str, RegistryRecord | None]) -> Mapping[str, None]:
        self._begin("write_registry", len(items))
        await self._registry_thread.write(items)
        return dict.fromkeys(items)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                changed = await self._registry_thread.poll()
            except LeadershipLost:
                return
            except KafkaCallError as e:
                log.warning("could not follow the registry: %s", e)
                self.failure = e
                return
            except Exception as e:
                log.exception("could not follow the registry")
                self.failure = KafkaUnreachable(f"could not follow the registry: {e!r}. The operator connects again")
                return
            if changed:
                self._woken(changed)

    async def _blocking(self, call: str, items: int, function: Callable[[], R]) -> R:
        self._begin(call, items)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._leadership.bound(function))

    async def _in_helper(self, call: Call, items: int, *arguments: Any) -> dict[Any, Any]:
        self._begin(call, items)
        self._leadership.check()
        return await self._group_helper.call(call, *arguments)

    def _begin(self, call: str, items: int) -> None:
        """Counts a call. Raises KafkaUnreachable if the link is closed: a pass may still use it after its connection was changed or
        deleted."""
        if self._closed:
            raise KafkaUnreachable(f"could not call {call} because the connection was changed or deleted meanwhile")
        metrics.KAFKA_CALLS.labels(call).inc()
        metrics.KAFKA_ITEMS.labels(call).inc(items)


def merged(items: Iterable[GroupPartitions]) -> dict[str, list[TopicPartitionKey]]:
    """Merges requests about the same group, each for its own partitions."""
    wanted: dict[str, dict[TopicPartitionKey, None]] = {}
    for group, partitions in items:
        wanted.setdefault(group, {}).update(dict.fromkeys(partitions))
    return {group: list(partitions) for group, partitions in wanted.items()}


def _part(found: Committed | KafkaCallError, partitions: tuple[TopicPartitionKey, ...]) -> Committed | KafkaCallError:
    return found if isinstance(found, KafkaCallError) else {key: found[key] for key in partitions}
