"""Leader election: only the operator that holds the Lease in its namespace acts for an installation, by the rules of client-go.

`kubernetes.aio.leaderelection` follows the same rules, but it uses the wall clock, has no timeout for answers, ends when a connection
fails for the first time, and does not release the lease when it is stopped.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from delayed_topics_operator import metrics
from delayed_topics_operator.errors import Conflict, KubeError, NotFound
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.leadership import Leadership

log = logging.getLogger(__name__)

LEASE: Final = "delayed-topics-operator"

Spec = Mapping[str, Any]
"""The spec of a Lease. Empty: the Lease does not exist."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """In the proportions of client-go's defaults.

    duration_seconds        how long others wait after they have seen the last renewal
    renew_within_seconds    how long the holder acts after the last renewal; calls under way then have the rest of the duration to end
    retry_seconds           the time between two renewals, and between two attempts to acquire the lease
    """

    duration_seconds: int = 15

    @property
    def renew_within_seconds(self) -> float:
        return self.duration_seconds * 2 / 3

    @property
    def retry_seconds(self) -> float:
        return self.duration_seconds * 2 / 15


class Candidate:
    """Decides who holds the Lease, without a clock or calls. It never compares the clocks of two machines: a holder counts as gone when its
    Lease has not changed for as long as the Lease itself says, counted from when this process first saw the Lease in this state."""

    def __init__(self, identity: str, times: Times) -> None:
        self.identity = identity
        self.times = times
        self._seen: Spec = {}
        self._seen_at = 0.0

    def wanted(self, lease: Spec, *, now: float, at: datetime) -> dict[str, Any] | None:
        """Returns the spec to write. None: another operator holds the Lease. `now`: monotonic seconds. `at`: the time that is written, for
        people to read."""
        if lease != self._seen:
            self._seen, self._seen_at = dict(lease), now
        holder, stamp = lease.get("holderIdentity") or "", micro_time(at)
        valid_seconds = lease.get("leaseDurationSeconds") or self.times.duration_seconds
        if holder not in ("", self.identity) and now < self._seen_at + valid_seconds:
            return None
        mine = holder == self.identity
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.times.duration_seconds,
            "acquireTime": lease.get("acquireTime", stamp) if mine else stamp,
            "renewTime": stamp,
            "leaseTransitions": lease.get("leaseTransitions", 0) + (1 if lease and not mine else 0),
        }

    def released(self, lease: Spec, *, at: datetime) -> dict[str, Any] | None:
        """Returns the spec that releases the Lease, so that the next operator need not wait. None: another operator holds it."""
        if lease.get("holderIdentity") != self.identity:
            return None
        return {**lease, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time(at)}


class Elector:
    """Acquires, renews and releases the lease. `kube` must be able to write without the leadership."""

    def __init__(self, kube: Kube, *, namespace: str, candidate: Candidate, leadership: Leadership) -> None:
        self._kube = kube
        self._namespace = namespace
        self._candidate = candidate
        self._times = candidate.times
        self._leadership = leadership
        self._last_logged = ""
        self.held_by = ""
        """Which other operator held the lease at the last attempt; empty: none did."""

    async def won(self) -> None:
        """Acquires the lease. Returns when this process holds it."""
        while not await self._tried(self._times.renew_within_seconds):
            await asyncio.sleep(self._times.retry_seconds)
        self.held_by = ""
        metrics.HOLDS_LEASE.set(1)
        self._log_once(f"{self._candidate.identity} holds the lease {self._namespace}/{LEASE} and is the operator now")

    async def hold(self) -> None:
        """Renews the lease until it is lost. Then ends the leadership and returns."""
        while self._leadership.remaining_seconds > 0 and not self.held_by:
            await asyncio.sleep(min(self._times.retry_seconds, self._leadership.remaining_seconds))
            await self._tried(self._leadership.remaining_seconds)
        metrics.HOLDS_LEASE.set(0)
        by = f" because {self.held_by} holds it" if self.held_by else f" within {self._times.renew_within_seconds:g} s"
        self._leadership.end(f"the lease {self._namespace}/{LEASE} could not be renewed{by}")

    async def release(self) -> None:
        """Releases the lease, so that the next operator need not wait. Must be called only when this process does nothing else any more."""
        try:
            async with asyncio.timeout(self._times.renew_within_seconds):
                lease = await self._kube.get("Lease", self._namespace, LEASE)
                spec = self._candidate.released(lease.get("spec") or {}, at=datetime.now(UTC))
                if spec is not None:
                    await self._write(lease, spec)
        except (KubeError, TimeoutError) as e:
            log.warning("the lease could not be released, so the next operator waits until it has expired: %s", e)

    async def _tried(self, within_seconds: float) -> bool:
        """Tries to acquire or renew the lease. Returns whether this process holds it now."""
        try:
            async with asyncio.timeout(max(0.0, within_seconds)):
                return await self._try()
        except Conflict:
            pass  # someone else was faster; the next attempt shows who
        except TimeoutError:
            self._log_once(
                f"no answer about the lease {self._namespace}/{LEASE} in {within_seconds:.1f} s. Trying again"
            )
        except KubeError as e:
            self._log_once(f"could not get or renew the lease {self._namespace}/{LEASE}: {e}")
        return False

    async def _try(self) -> bool:
        try:
            lease = await self._kube.get("Lease", self._namespace, LEASE)
        except NotFound:
            lease = {}
        asked_at = time.monotonic()
        spec = self._candidate.wanted(lease.get("spec") or {}, now=asked_at, at=datetime.now(UTC))
        if spec is None:
            self.held_by = lease["spec"]["holderIdentity"]
            self._log_once(f"{self.held_by} holds the lease {self._namespace}/{LEASE}. Waiting for it")
            return False
        await self._write(lease, spec)
        # counted from before the write, because no one can have seen the renewal earlier
        self._leadership.extend(asked_at + self._times.renew_within_seconds)
        return True

    async def _write(self, lease: dict[str, Any], spec: Spec) -> None:
        """Raises Conflict if someone has written the lease since it was read."""
        if lease:
            patch = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": spec}
            await self._kube.merge("Lease", self._namespace, LEASE, patch)
        else:
            meta = {"name": LEASE, "namespace": self._namespace}
            made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
            await self._kube.create(made)

    def _log_once(self, message: str) -> None:
        """Logs a message, but only once, and not every two seconds."""
        if message != self._last_logged:
            log.info("%s", message)
        self._last_logged = message


def micro_time(at: datetime) -> str:
    """Returns the time in the format of a Kubernetes MicroTime."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
