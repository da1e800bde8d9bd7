"""The DelayedTopics of the operator's benchmark: what each was told to be, and when the API server had it so."""

import asyncio
import time
from typing import Any

from delayed_topics_devcluster.errors import NotInTimeError
from delayed_topics_devcluster.progress import say

from delayed_topics_bench.operator_cluster import Cluster

__all__ = ["Resources"]

Manifest = dict[str, Any]
TOLD_SECONDS = 10.0
TIMEOUT_SECONDS = 1800.0


class Resources:
    """What is `asked` for is finished when the status is of that generation, or of a later one, and Ready. What was asked for again
    before it was finished counts once, from the last time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._live: dict[str, Manifest] = {}
        self._asked: dict[str, tuple[int, float]] = {}
        self._changed = asyncio.Event()
        self.finished: list[tuple[float, float]] = []
        """When, by the monotonic clock, and after how many seconds."""

    def asked(self, manifest: Manifest) -> None:
        """The API server has answered with this."""
        name = manifest["metadata"]["name"]
        self._asked[name] = (manifest["metadata"]["generation"], time.monotonic())
        self._look(name)

    def seen(self, manifest: Manifest) -> None:
        self._live[manifest["metadata"]["name"]] = manifest
        self._look(manifest["metadata"]["name"])

    async def until_finished(self, what: str) -> None:
        """Until all that was asked for is so. Raises NotInTimeError, and what the cluster has failed with."""
        began = told_at = time.monotonic()
        while self._asked:
            self._changed.clear()
            try:
                async with asyncio.timeout(1):
                    await self._changed.wait()
            except TimeoutError:
                self._cluster.check()
            now = time.monotonic()
            if now - told_at > TOLD_SECONDS:
                told_at = now
                say(f"{now - began:.0f} s: {len(self._asked)} to go")
            if now - began > TIMEOUT_SECONDS:
                raise NotInTimeError(
                    f"timed out after {TIMEOUT_SECONDS:g} seconds. Waited for: {what}. Seen: {self._example()}"
                )

    def _look(self, name: str) -> None:
        live = self._live.get(name)
        if live is None or name not in self._asked:
            return
        generation, asked_at = self._asked[name]
        if live["metadata"]["generation"] >= generation and _ready(live):
            now = time.monotonic()
            self.finished.append((now, now - asked_at))
            del self._asked[name]
            self._changed.set()

    def _example(self) -> object:
        name = min(self._asked)
        return name, (self._live.get(name) or {}).get("status")


def _ready(live: Manifest) -> bool:
    """Whether the status is of the object as it is now, and says Ready."""
    status, generation = live.get("status") or {}, live["metadata"]["generation"]
    ready: Manifest = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
    return (
        status.get("observedGeneration") == generation
        and ready.get("status") == "True"
        and ready.get("observedGeneration") == generation
    )
