"""A proxy in front of a broker. It can delay answers and change them, and delay, change or drop requests of one kind."""

import asyncio
import math
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import partial
from typing import Final

from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_kafka.closing import Closing

LOOPBACK: Final = "127.0.0.1"
MAX_AT_ONCE: Final = 65_536
LENGTH: Final = struct.Struct(">i")
HEADER: Final = struct.Struct(">hxxxxxxh")
"""The header of a request: the API key, and the length of the client id, which follows."""
CORRELATION: Final = slice(4, 8)
"""The correlation id of a request, with which its answer begins."""


class Api(IntEnum):
    """Kinds of requests: https://kafka.apache.org/protocol#protocol_api_keys"""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    CONSUMER_GROUP_HEARTBEAT = 68


class SlowWire(Closing):
    """Accepts connections on `port` and forwards them to `to_port`."""

    def __init__(self, port: int, to_port: int) -> None:
        self.bootstrap = f"{LOOPBACK}:{port}"
        self._port, self._to_port = port, to_port
        self._delay_seconds = 0.0
        self._request_seconds: dict[tuple[int, str], float] = {}
        self._held_topics: dict[str, threading.Event] = {}
        self._bytes_per_second: dict[str, int] = {}
        self._breaks: Counter[int] = Counter()
        self._producing: list[tuple[list[bytes], set[int]]] = []
        self._changes: dict[int, Callable[[bytes], bytes]] = {}
        self._answer_changes: dict[int, Callable[[bytes], bytes]] = {}
        self._loop = asyncio.new_event_loop()
        self._ended, self._changed = asyncio.Event(), asyncio.Event()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        self._listens.wait()

    def hold_back(self, seconds: float) -> None:
        """Delays each piece of an answer by at least `seconds`. 0 releases at once what is held back."""
        self._loop.call_soon_threadsafe(self._hold_back, None, seconds)

    def hold_back_requests(self, api: Api, seconds: float, *, client_id: str = "") -> None:
        """Delays requests of this kind, and what follows them on their connections, by `seconds`. Without a `client_id`, this applies
        to all clients. 0 releases at once what is held back."""
        self._loop.call_soon_threadsafe(self._hold_back, (api, client_id), seconds)

    @contextmanager
    def holding_back(self, topic: str) -> Iterator[threading.Event]:
        """Holds back each request with records for this topic, and what follows it on its connection, until the block ends. Yields an
        event that is set when this has happened. A broker whose replicas are slow answers as late."""
        held = threading.Event()
        self._loop.call_soon_threadsafe(self._held_topics.__setitem__, topic, held)
        try:
            yield held
        finally:
            self._loop.call_soon_threadsafe(self._release, topic)

    def limit_requests(self, bytes_per_second: int, *, client_id: str) -> None:
        """Limits the requests on each connection of this client to `bytes_per_second` from now on."""
        self._loop.call_soon_threadsafe(self._bytes_per_second.__setitem__, client_id, bytes_per_second)

    def break_at_requests(self, api: Api, times: int) -> None:
        """Drops the next `times` requests of this kind, and closes their connections."""
        self._loop.call_soon_threadsafe(self._breaks.__setitem__, api, times)

    def change_requests(self, api: Api, change: Callable[[bytes], bytes]) -> None:
        """Replaces requests of this kind by what `change` returns. The thread of the proxy calls it."""
        self._loop.call_soon_threadsafe(self._changes.__setitem__, api, change)

    def change_answers(self, api: Api, change: Callable[[bytes], bytes]) -> None:
        """Replaces answers to requests of this kind by what `change` returns, on connections that begin after this call. The thread of the
        proxy calls it."""
        self._loop.call_soon_threadsafe(self._answer_changes.__setitem__, api, change)

    def producing(self, topics: Iterable[str]) -> Collection[int]:
        """Returns a collection that gets a number for each connection on which records for these topics are sent from now on."""
        found: set[int] = set()
        self._producing.append(([_name(topic) for topic in topics], found))
        return found

    def refuse_first(self, topic: str) -> threading.Event:
        """Makes Kafka refuse the next request with records for this topic, by the name of a topic that doesn't exist, and accept those
        that follow. Returns an event that is set when this has happened."""
        refused = threading.Event()

        def change(request: bytes) -> bytes:
            return request if refused.is_set() else _misdirected(request, topic, refused)

        self.change_requests(Api.PRODUCE, change)
        return refused

    @contextmanager
    def refusing(self, topic: str) -> Iterator[threading.Event]:
        """Makes Kafka refuse all records for this topic, as in `refuse_first`, until the block ends. Their producers try again. Yields an
        event that is set when this has happened."""
        refused = threading.Event()
        self.change_requests(Api.PRODUCE, partial(_misdirected, topic=topic, found=refused))
        try:
            yield refused
        finally:
            self.change_requests(Api.PRODUCE, bytes)

    def reset(self) -> None:
        """Forwards everything unchanged from now on, and releases at once what is held back."""
        self._loop.call_soon_threadsafe(self._reset)

    def end(self) -> None:
        """Closes all connections, and accepts no new ones."""
        self._loop.call_soon_threadsafe(self._ended.set)

    def close(self) -> None:
        self.end()
        self._thread.join()
        self._loop.close()

    def _hold_back(self, request: tuple[int, str] | None, seconds: float) -> None:
        if request is None:
            self._delay_seconds = seconds
        else:
            self._request_seconds[request] = seconds
        self._wake()

    def _release(self, topic: str) -> None:
        del self._held_topics[topic]
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _reset(self) -> None:
        for setting in (
            self._request_seconds,
            self._bytes_per_second,
            self._breaks,
            self._changes,
            self._answer_changes,
            self._producing,
        ):
            setting.clear()
        self._hold_back(None, 0)

    async def _serve(self) -> None:
        carrying: set[asyncio.Task[None]] = set()

        def accept(client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._carry(client_reader, client_writer))
            carrying.add(task)
            task.add_done_callback(carrying.discard)

        server = await asyncio.start_server(accept, LOOPBACK, self._port)
        self._listens.set()
        await self._ended.wait()
        server.close()
        await _cancelled(*carrying)

    async def _carry(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection(LOOPBACK, self._to_port)
        except OSError:  # the broker is down, and the client has to notice that
            client_writer.close()
            return
        kinds: dict[bytes, int] = {}
        directions = [
            asyncio.create_task(direction)
            for direction in (
                self._forward_requests(client_reader, broker_writer, kinds),
                self._forward_answers(broker_reader, client_writer, kinds),
            )
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled(*directions)
            broker_writer.close()
            client_writer.close()

    async def _forward_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kinds: dict[bytes, int]
    ) -> None:
        with suppress(asyncio.IncompleteReadError):  # the client has closed the connection
            while True:
                request = await reader.readexactly(*LENGTH.unpack(await reader.readexactly(LENGTH.size)))
                await self._held_back(partial(self._seconds_of, request))
                api_key, _ = HEADER.unpack_from(request)
                for names, found in self._producing:
                    if api_key == Api.PRODUCE and any(name in request for name in names):
                        found.add(id(reader))
                if self._breaks[api_key] > 0:
                    self._breaks[api_key] -= 1
                    return
                if api_key in self._answer_changes:
                    kinds[request[CORRELATION]] = api_key
                request = self._changes.get(api_key, bytes)(request)
                writer.write(LENGTH.pack(len(request)) + request)
                await writer.drain()

    def _seconds_of(self, request: bytes) -> float:
        api_key, length = HEADER.unpack_from(request)
        client_id = request[HEADER.size : HEADER.size + max(0, length)].decode()
        limit = self._bytes_per_second.get(client_id)
        for topic, held in self._held_topics.items():
            if api_key == Api.PRODUCE and _name(topic) in request:
                held.set()
                return math.inf
        return max(
            len(request) / limit if limit else 0.0,
            *(self._request_seconds.get((api_key, client), 0.0) for client in ("", client_id)),
        )

    async def _forward_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kinds: dict[bytes, int]
    ) -> None:
        pieces = self._changed_answers(reader, kinds) if self._answer_changes else _pieces(reader)
        async for data in pieces:
            await self._held_back(lambda: self._delay_seconds)
            writer.write(data)
            await writer.drain()

    async def _changed_answers(self, reader: asyncio.StreamReader, kinds: dict[bytes, int]) -> AsyncIterator[bytes]:
        with suppress(asyncio.IncompleteReadError):  # the broker has closed the connection
            while True:
                answer = await reader.readexactly(*LENGTH.unpack(await reader.readexactly(LENGTH.size)))
                api_key = kinds.pop(answer[: LENGTH.size], None)
                answer = self._answer_changes.get(-1 if api_key is None else api_key, bytes)(answer)
                yield LENGTH.pack(len(answer)) + answer

    async def _held_back(self, seconds: Callable[[], float]) -> None:
        came = self._loop.time()
        while (left := came + seconds() - self._loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()


@contextmanager
def slow_broker() -> Iterator[SlowWire]:
    """Starts a broker that clients can reach only through the proxy."""
    (port,) = free_ports(1)
    advertised = {"advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}"}
    with (
        Broker(settings={**PATIENT, **advertised}) as broker,
        SlowWire(port, int(broker.bootstrap.rpartition(":")[2])) as wire,
    ):
        yield wire


def _misdirected(request: bytes, topic: str, found: threading.Event) -> bytes:
    """Returns the request with the name of a topic that doesn't exist, if it names this topic."""
    name = _name(topic)
    if name not in request:
        return request
    found.set()
    return request.replace(name, name[:1] + b"?" * len(topic))


def _name(topic: str) -> bytes:
    """Returns the name of a topic as it is in a request: after its length, which a record's header encodes differently."""
    return bytes([len(topic) + 1]) + topic.encode()


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(MAX_AT_ONCE):
        yield data


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
