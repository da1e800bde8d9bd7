"""A client of a bare API server for the operator's benchmark: many requests at once, watches, and the part of the kubelet."""

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import aiohttp
from delayed_topics_devcluster.api_server import TOKEN, ApiServer
from delayed_topics_operator.gateways.kube import APIS

__all__ = ["Cluster", "play_kubelet"]

Manifest = dict[str, Any]

REQUESTS_AT_ONCE = 16
READ_BYTES = 2**20
"""A watch sends each object as one line, and the 64 KiB that aiohttp reads by default are too few for some objects."""
REVISION = "a"
"""The only revision of pods: they count as replaced at the moment at which their template changes."""


class Cluster:
    """Connects when it is entered. Leaving it cancels the watches and patches that run."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cafile=str(self._server.certificate))
        session = aiohttp.ClientSession(
            self._server.url,
            headers={"Authorization": f"Bearer {TOKEN}"},
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=120),
            read_bufsize=READ_BYTES,
            raise_for_status=True,
        )
        self._session = await self._stack.enter_async_context(session)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def create(self, manifest: Manifest) -> Manifest:
        path = APIS[manifest["kind"]].path(manifest["metadata"].get("namespace"))
        return await self._send("POST", path, manifest, "application/json")

    async def patch(self, manifest: Manifest, patch: Manifest, *, subresource: str | None = None) -> Manifest:
        """Sends a merge patch of the object that `manifest` names."""
        meta = manifest["metadata"]
        path = APIS[manifest["kind"]].path(meta.get("namespace"), meta["name"], subresource)
        return await self._send("PATCH", path, patch, "application/merge-patch+json")

    async def text(self, path: str) -> str:
        async with self._session.get(path) as answer:
            return await answer.text()

    async def follow(self, kind: str, namespace: str, seen: Callable[[Manifest], None]) -> None:
        """Calls `seen` with each object, and again whenever the object changes. Returns after the calls for the objects that exist."""
        path = APIS[kind].path(namespace)
        listed = json.loads(await self.text(path))
        for item in listed["items"]:
            seen({"kind": kind, **item})
        self._begin(self._watch(path, listed["metadata"]["resourceVersion"], seen))

    async def _watch(self, path: str, version: str, seen: Callable[[Manifest], None]) -> None:
        while True:  # the server ends a watch after some minutes
            query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
            async with self._session.get(path, params=query, timeout=aiohttp.ClientTimeout(sock_read=None)) as answer:
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"the watch of {path} ended: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] in ("ADDED", "MODIFIED"):
                        seen(event["object"])

    async def _send(self, method: str, path: str, body: Manifest, content_type: str) -> Manifest:
        headers = {"Content-Type": content_type}
        async with self._slots, self._session.request(method, path, data=json.dumps(body), headers=headers) as answer:
            return dict(await answer.json())

    def start_patch(self, manifest: Manifest, patch: Manifest, *, subresource: str) -> None:
        """Starts a patch, and doesn't wait for it."""
        self._begin(self._patched(manifest, patch, subresource))

    async def _patched(self, manifest: Manifest, patch: Manifest, subresource: str) -> None:
        await self.patch(manifest, patch, subresource=subresource)

    def _begin(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Forgets a task that has ended, but keeps failed ones for `check`."""
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)

    def check(self) -> None:
        """Raises the error of a watch or a started patch that has failed."""
        for task in self._tasks:
            if task.done():
                task.result()


async def play_kubelet(cluster: Cluster, namespace: str) -> None:
    """Makes all StatefulSets report at once, from now on, that the requested number of pods is ready.

    There are no pods. The status of the StatefulSet is all that the operator reads about pods that are ready.
    """

    def seen(live: Manifest) -> None:
        count = live["spec"]["replicas"]
        wanted = {
            "observedGeneration": live["metadata"]["generation"],
            **dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), count),
            **dict.fromkeys(("currentRevision", "updateRevision"), REVISION),
        }
        status = live.get("status") or {}
        if any(status.get(field, 0) != value for field, value in wanted.items()):
            cluster.start_patch(live, {"status": wanted}, subresource="status")

    await cluster.follow("StatefulSet", namespace, seen)
