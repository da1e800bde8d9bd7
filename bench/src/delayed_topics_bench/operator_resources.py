"""The DelayedTopics of the operator's benchmark: what was requested of each, and when its status reported it."""

import asyncio
import time
from typing import Any

from delayed_topics_devcluster.errors import NotInTimeError
from delayed_topics_devcluster.progress import say

from delayed_topics_bench.operator_cluster import Cluster

__all__ = ["Resources"]

Manifest = dict[str, Any]
PROGRESS_SECONDS = 10.0
TIMEOUT_SECONDS = 1800.0


class Resources:
    """A request is finished when the status is Ready for the requested generation, or for a later one.

    A resource that is requested again before it has finished counts once, from the last request.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._live: dict[str, Manifest] = {}
        self._requested: dict[str, tuple[int, float]] = {}
        self._changed = asyncio.Event()
        self.finished: list[tuple[float, float]] = []
        """The time at which each request finished, by the monotonic clock, and the seconds that it took."""

    def add_request(self, manifest: Manifest) -> None:
        """Adds a request, with the object that the API server returned for it."""
        name = manifest["metadata"]["name"]
        self._requested[name] = (manifest["metadata"]["generation"], time.monotonic())
        self._check_finished(name)

    def seen(self, manifest: Manifest) -> None:
        self._live[manifest["metadata"]["name"]] = manifest
        self._check_finished(manifest["metadata"]["name"])

    async def wait_finished(self, what: str) -> None:
        """Waits until all requests are finished. Raises NotInTimeError, and errors of the cluster's tasks."""
        began = printed_at = time.monotonic()
        while self._requested:
            self._changed.clear()
            try:
                async with asyncio.timeout(1):
                    await self._changed.wait()
            except TimeoutError:
                self._cluster.check()
            now = time.monotonic()
            if now - printed_at > PROGRESS_SECONDS:
                printed_at = now
                say(f"{now - began:.0f} s: {len(self._requested)} to go")
            if now - began > TIMEOUT_SECONDS:
                raise NotInTimeError(
                    f"timed out after {TIMEOUT_SECONDS:g} seconds. Waited for: {what}. Seen: {self._example()}"
                )

    def _check_finished(self, name: str) -> None:
        live = self._live.get(name)
        if live is None or name not in self._requested:
            return
        generation, requested_at = self._requested[name]
        if live["metadata"]["generation"] >= generation and _ready(live):
            now = time.monotonic()
            self.finished.append((now, now - requested_at))
            del self._requested[name]
            self._changed.set()

    def _example(self) -> object:
        name = min(self._requested)
        return name, (self._live.get(name) or {}).get("status")


def _ready(live: Manifest) -> bool:
    """Returns whether the status is of the current generation, and Ready."""
    status, generation = live.get("status") or {}, live["metadata"]["generation"]
    ready: Manifest = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
    return (
        status.get("observedGeneration") == generation
        and ready.get("status") == "True"
        and ready.get("observedGeneration") == generation
    )
