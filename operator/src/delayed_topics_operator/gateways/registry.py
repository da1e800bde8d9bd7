"""The registry and the events of one Kafka cluster. Their clients are used only in one thread."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from delayed_topics_core.registry import RegistryRecord
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import WriterFenced
from delayed_topics_kafka.events import EventFollower
from delayed_topics_kafka.registry import RegistryFollower, RegistryWriter

from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.values.eventlog import EventLog

T = TypeVar("T")


class RegistryThread:
    """Every call raises KafkaCallError and LeadershipLost."""

    def __init__(
        self,
        connection: Connection,
        *,
        client_id: str,
        timeout_seconds: float,
        registry_bytes: int,
        transactional_id: str,
        leadership: Leadership,
        event_log: EventLog,
    ) -> None:
        """`registry_bytes`: the limit for keys and values.

        `transactional_id`: identifies the only writer that may exist. When another one opens, the `leadership` of this process ends."""
        self._connection = connection
        self._client_id = client_id
        self._timeout_seconds = timeout_seconds
        self._registry_bytes = registry_bytes
        self._transactional_id = transactional_id
        self._leadership = leadership
        self._event_log = event_log
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry")
        self._last_read = RegistryState()
        self._follower: RegistryFollower | None = None
        self._writer: RegistryWriter | None = None
        self._events: EventFollower | None = None

    async def open(self) -> None:
        """Fences earlier writers, and reads the registry and the events."""

        def open_all() -> None:
            follower = self._follower = RegistryFollower(
                self._connection, client_id=self._client_id, most_bytes=self._registry_bytes
            )
            self._writer = RegistryWriter(
                follower,
                self._connection,
                client_id=self._client_id,
                timeout_seconds=self._timeout_seconds,
                transactional_id=self._transactional_id,
            )
            self._writer.open()  # before anything is read, so that a transaction of another writer is complete or aborted
            self._events = EventFollower(self._connection, client_id=self._client_id)
            follower.catch_up(self._timeout_seconds)
            self._events.catch_up(self._timeout_seconds, self._event_log.add)

        await self._in_thread(open_all)

    @property
    def fullness(self) -> float:
        """How much of the limit was held when the registry was last read, from 0 to 1."""
        return self._follower.fullness if self._follower is not None else 0.0

    async def close(self) -> None:
        """Closes the clients after the call that is under way."""

        def close_all() -> None:
            for follower in (self._follower, self._events):
                if follower is not None:
                    follower.close()

        await asyncio.get_running_loop().run_in_executor(self._thread, close_all)
        self._thread.shutdown(wait=False)

    async def read(self) -> RegistryState:
        """Returns a copy of the registry as it is now."""

        def read() -> RegistryState:
            follower, writer, _ = self._opened()
            writer.open()  # again, in case a write has failed
            follower.catch_up(self._timeout_seconds)
            if follower.state.next_offset != self._last_read.next_offset:
                self._last_read = follower.state.copy()
            return self._last_read

        return await self._in_thread(read)

    async def write(self, items: Mapping[str, RegistryRecord | None]) -> None:
        """Writes records by key; None removes the record. Returns when they were read back."""

        def write() -> None:
            writer = self._opened()[1]
            records = [record for record in items.values() if record is not None]
            removed = [key for key, record in items.items() if record is None]
            if records:
                writer.write(records)
            if removed:
                writer.remove(removed)

        await self._in_thread(write)

    async def poll(self) -> set[str]:
        """Returns the front topics with news since the last call."""

        def poll() -> set[str]:
            follower, _, events = self._opened()
            changed = {change.key.split("/")[1] for change in follower.poll(0) if change.key.count("/")}
            for event in events.poll(0):
                self._event_log.add(event)
                changed.add(event.topic)
            return changed

        return await self._in_thread(poll)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        call = self._leadership.bound(function)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except WriterFenced as e:
            self._leadership.end(f"another operator of this installation has taken over the registry: {e}")
            raise

    def _opened(self) -> tuple[RegistryFollower, RegistryWriter, EventFollower]:
        assert self._follower is not None, "open() comes first"
        assert self._writer is not None
        assert self._events is not None
        return self._follower, self._writer, self._events
