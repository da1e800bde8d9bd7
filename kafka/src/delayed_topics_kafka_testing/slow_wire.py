"""A wire to a broker on which answers can be slow, or requests of one kind."""

import asyncio
import struct
import threading
from contextlib import suppress
from typing import Final

from delayed_topics_kafka.closing import Closing

LOOPBACK: Final = "127.0.0.1"
MOST_AT_ONCE: Final = 65_536
LENGTH: Final = struct.Struct(">i")
API_KEY: Final = struct.Struct(">h")
PRODUCE, OFFSET_FETCH, INIT_PRODUCER_ID, ADD_OFFSETS_TO_TXN = 0, 9, 22, 25
"""Kinds of requests: https://kafka.apache.org/protocol#protocol_api_keys"""


class SlowWire(Closing):
    """Takes connections on `port` and carries them to `to_port`."""

    def __init__(self, port: int, to_port: int) -> None:
        self.bootstrap = f"{LOOPBACK}:{port}"
        self._port, self._to_port = port, to_port
        self._delay_seconds = 0.0
        self._request_seconds: dict[int, float] = {}
        self._loop = asyncio.new_event_loop()
        self._ended, self._changed = asyncio.Event(), asyncio.Event()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        self._listens.wait()

    def hold_back(self, seconds: float) -> None:
        """Each piece of an answer comes at least that much later. With 0 what was held back comes at once."""
        self._loop.call_soon_threadsafe(self._hold_back, seconds)

    def hold_back_requests(self, api_key: int, seconds: float) -> None:
        """From now on a request of this kind, and what follows it on its connection, comes that much later."""
        self._request_seconds[api_key] = seconds

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()

    def _hold_back(self, seconds: float) -> None:
        self._delay_seconds = seconds
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self) -> None:
        carrying: set[asyncio.Task[None]] = set()

        def accept(asking: asyncio.StreamReader, answered: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._carry(asking, answered))
            carrying.add(task)
            task.add_done_callback(carrying.discard)

        server = await asyncio.start_server(accept, LOOPBACK, self._port)
        self._listens.set()
        await self._ended.wait()
        server.close()
        await _cancelled(*carrying)

    async def _carry(self, asking: asyncio.StreamReader, answered: asyncio.StreamWriter) -> None:
        try:
            answers, asked = await asyncio.open_connection(LOOPBACK, self._to_port)
        except OSError:  # the broker is not there, and the client is to see that
            answered.close()
            return
        directions = [
            asyncio.create_task(direction) for direction in (self._ask(asking, asked), self._answer(answers, answered))
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled(*directions)
            asked.close()
            answered.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # the client has closed it
            while True:
                length = await reader.readexactly(LENGTH.size)
                request = await reader.readexactly(*LENGTH.unpack(length))
                (api_key,) = API_KEY.unpack_from(request)
                await asyncio.sleep(self._request_seconds.get(api_key, 0.0))
                writer.write(length + request)
                await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(MOST_AT_ONCE):
            came = self._loop.time()
            while (left := came + self._delay_seconds - self._loop.time()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._changed.wait()
            writer.write(data)
            await writer.drain()


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
