"""Decides which StatefulSets of workers may replace their pods now, so that chart values with which no pod runs stop few workers.

- Only `at_once` StatefulSets replace pods at the same time. One that makes no progress for `STUCK_SECONDS` makes room for others.
- A StatefulSet that is stuck and has fewer ready workers than before is evidence against the chart values that its pods have got. No other
  one gets them, until anywhere a worker with them is ready.

What has to outlast the operator is in two annotations of the StatefulSet, `INSTALLATION` and `READY_BEFORE`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import NotYet
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.rollout import Rollout
from delayed_topics_operator.values.stateful_sets import (
    has_all_of,
    has_stopped,
    installation,
    is_current,
    ready_before,
    ready_now,
    rolls,
)

STUCK_SECONDS = 180.0
"""A rollout without progress for this long makes room for others."""
Progress = tuple[int, int]
"""The number of pods of the new template, and of ready pods. Only a rise counts as progress. Otherwise pods that come and go, or another
edit each minute, would hold up all others forever."""
Name = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """How far a rollout had come at best, and when. `installation`: the chart values that its pods get."""

    installation: str | None
    furthest: Progress
    since: float


class Rollouts:
    """One for all controllers of an operator."""

    def __init__(self, store: Store, *, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._at_once = at_once
        self._clock = clock
        self._seen: dict[Name, _Seen] = {}
        self._beginning: set[Name] = set()

    def look(self, wanted_installation: str, namespace: str, name: str) -> Rollout:
        """Notes how far all rollouts are, and returns what this StatefulSet may do. Called in each step of a pass.

        `wanted_installation`: the digest of the chart values that its pods should have."""
        self._note()
        may_begin = self._may_begin((namespace, name))
        return Rollout(may_begin=may_begin, stuck=self._stuck(wanted_installation, namespace, name))

    @contextmanager
    def turn(self, namespace: str, name: str) -> Iterator[None]:
        """Counts the StatefulSet as rolling until the store has the answer of the API server. Raises NotYet."""
        self._note()
        if not self._may_begin((namespace, name)):
            raise NotYet(f"{self._at_once} other resources are replacing their workers")
        self._beginning.add((namespace, name))
        try:
            yield
        finally:
            self._beginning.discard((namespace, name))

    def _note(self) -> None:
        now, before, self._seen = self._clock(), self._seen, {}
        for live in self._store.by_index("StatefulSet", _under_way, True):
            name, given, progress = _name(live), installation(live), _progress(live)
            seen = before.get(name)
            if seen is None or seen.installation != given or progress > seen.furthest:
                seen = _Seen(installation=given, furthest=progress, since=now)
            self._seen[name] = seen

    def _is_stuck(self, name: Name) -> bool:
        seen = self._seen.get(name)
        return seen is not None and self._clock() - seen.since >= STUCK_SECONDS

    def _may_begin(self, name: Name) -> bool:
        rolling = {other for other in self._seen if not self._is_stuck(other)}
        return len((rolling | self._beginning) - {name}) < self._at_once

    def _stuck(self, wanted: str, namespace: str, name: str) -> int:
        own = self._store.get("StatefulSet", namespace, name)
        if own is None or installation(own) == wanted:
            return 0
        given = self._store.by_index("StatefulSet", _installations, wanted)
        if any(has_all_of(live) and _shows_that_pods_run(live) for live in given):
            return 0
        in_part_run = any(_shows_that_pods_run(live) for live in given)
        evidence = (live for live in given if has_all_of(live) or not in_part_run)
        return sum(self._is_stuck(_name(live)) and ready_now(live) < (ready_before(live) or 0) for live in evidence)


def _name(live: Manifest) -> Name:
    return live["metadata"]["namespace"], live["metadata"]["name"]


def _progress(live: Manifest) -> Progress:
    return ((live.get("status") or {}).get("updatedReplicas", 0), ready_now(live)) if is_current(live) else (0, 0)


def _shows_that_pods_run(live: Manifest) -> bool:
    """Whether at least one pod with the present template is ready: there are fewer pods than replaced and ready ones together."""
    status = live.get("status") or {}
    ready_and_new = status.get("updatedReplicas", 0) + ready_now(live) - status.get("replicas", 0)
    return is_current(live) and ready_and_new > 0


def _under_way(live: Manifest) -> tuple[bool]:
    """For `Store.by_index`."""
    return (rolls(live) or has_stopped(live),)


def _installations(live: Manifest) -> tuple[str | None]:
    """For `Store.by_index`."""
    return (installation(live),)
