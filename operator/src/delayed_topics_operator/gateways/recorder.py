"""Events for `kubectl describe`. A recent Event is not repeated. An Event that the API server refuses is only logged, and one that it does
not answer is written again in the next pass over the same resource."""

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from delayed_topics_operator.errors import Forbidden, KubeError, KubeUnreachable, NotFound
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.field_managers import FIELD_MANAGER
from delayed_topics_operator.values.plan import Notice

log = logging.getLogger(__name__)

SILENCE_SECONDS = 600.0
MAX_UNSENT = 1000
"""Events that are kept until they can be written."""
AGAIN_SECONDS = 10.0
"""The time after an unanswered call in which no kept Event is tried again, because each call may last for its whole timeout."""
MAX_MESSAGE = 1024
"""The API server's limit."""


class Recorder:
    """`clock` counts monotonic seconds."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._said: dict[tuple[str, str, str], float] = {}
        """When an Event of this UID, reason and message was recorded, the oldest first. A notice of the installation has a kind instead."""
        self._unsent: dict[tuple[str, str, str], Notice] = {}
        """Events that the API server did not answer, by the same keys, the oldest first."""
        self._again_at = 0.0

    async def emit(self, resource: dict[str, Any], notices: Iterable[Notice]) -> None:
        for notice in notices:
            await self.record(resource, notice)
        for key in [key for key in self._unsent if key[0] in (resource["metadata"]["uid"], resource["kind"])]:
            if key in self._unsent and self._clock() >= self._again_at:
                await self._try(resource, self._unsent.pop(key), key)

    async def record(self, resource: dict[str, Any], notice: Notice) -> None:
        """Writes an Event about `resource`."""
        meta = resource["metadata"]
        now = self._clock()
        while self._said and now - next(iter(self._said.values())) >= SILENCE_SECONDS:
            del self._said[next(iter(self._said))]
        key = (resource["kind"] if notice.of_installation else meta["uid"], notice.reason, notice.message)
        if key in self._said:
            return
        self._said[key] = now
        log.log(
            logging.WARNING if notice.type == "Warning" else logging.INFO,
            "%s %s/%s: %s: %s", resource["kind"], meta.get("namespace", ""), meta["name"], notice.reason, notice.message,
        )  # fmt: skip
        await self._try(resource, notice, key)

    async def _try(self, resource: dict[str, Any], notice: Notice, key: tuple[str, str, str]) -> None:
        try:
            await self._write(resource, notice)
        except KubeUnreachable as e:
            log.warning("could not write an Event, and will try again: %s", e)
            self._again_at = self._clock() + AGAIN_SECONDS
            self._unsent[key] = notice
            if len(self._unsent) > MAX_UNSENT:
                del self._unsent[next(iter(self._unsent))]
        except KubeError as e:
            log.warning("could not write an Event: %s", e)

    async def _write(self, resource: dict[str, Any], notice: Notice) -> None:
        """Raises KubeError."""
        try:
            await self._kube.create(_event(resource, notice))
        except (Forbidden, NotFound):
            if not notice.outlives_namespace:
                raise
            await self._tell_of_namespace(resource, notice)

    async def _tell_of_namespace(self, resource: dict[str, Any], notice: Notice) -> None:
        """Writes the Event about the Namespace instead, since a namespace that is being deleted accepts no Events. Events about a Namespace
        are in `default`. Raises KubeError."""
        meta = resource["metadata"]
        about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": meta["namespace"]}}
        message = f"{resource['kind']} {meta['namespace']}/{meta['name']}: {notice.message}"
        await self._kube.create(_event(about, replace(notice, message=message)))


def _event(resource: dict[str, Any], notice: Notice) -> dict[str, Any]:
    meta = resource["metadata"]
    namespace = meta.get("namespace") or "default"
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = notice.message if len(notice.message) <= MAX_MESSAGE else notice.message[: MAX_MESSAGE - 1] + "…"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name'][:220]}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": resource["apiVersion"],
            "kind": resource["kind"],
            "name": meta["name"],
            "namespace": meta.get("namespace"),
            "uid": meta.get("uid"),
            "resourceVersion": meta.get("resourceVersion"),
        },
        "type": notice.type,
        "reason": notice.reason,
        "message": message,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
