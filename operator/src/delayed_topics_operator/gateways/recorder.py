"""Events for `kubectl describe`. A recent Event is not repeated, and an Event that can't be written is only logged."""

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from delayed_topics_operator.errors import Forbidden, KubeError, NotFound
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.field_managers import FIELD_MANAGER
from delayed_topics_operator.values.plan import Notice

log = logging.getLogger(__name__)

SILENCE_SECONDS = 600.0
MAX_MESSAGE = 1024
"""The API server's limit."""


class Recorder:
    """`clock` counts monotonic seconds."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._said: dict[tuple[str, str, str], float] = {}
        """When an Event of this UID, reason and message was recorded, the oldest first. A notice of the installation has a kind instead."""

    async def emit(self, resource: dict[str, Any], notices: Iterable[Notice]) -> None:
        for notice in notices:
            await self.record(resource, notice)

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
        try:
            await self._kube.create(_event(resource, notice))
        except (Forbidden, NotFound) as e:
            if notice.outlives_namespace:
                await self._tell_of_namespace(resource, notice)
            else:
                log.warning("could not write an Event: %s", e)
        except KubeError as e:
            log.warning("could not write an Event: %s", e)

    async def _tell_of_namespace(self, resource: dict[str, Any], notice: Notice) -> None:
        """Writes the Event about the Namespace instead, since a namespace that is being deleted accepts no Events. Events about a Namespace
        are in `default`."""
        meta = resource["metadata"]
        about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": meta["namespace"]}}
        message = f"{resource['kind']} {meta['namespace']}/{meta['name']}: {notice.message}"
        try:
            await self._kube.create(_event(about, replace(notice, message=message)))
        except KubeError as e:
            log.warning("could not write an Event: %s", e)


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
