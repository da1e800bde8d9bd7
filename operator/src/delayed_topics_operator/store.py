"""Objects as the API server last told of them: by watch, by list, or in answer to a call of our own. Belongs to one event loop.

Watches may go silent and miss deletions; so everything is listed again at every resync, and the list is the truth.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from delayed_topics_operator.errors import NotYet

Manifest = dict[str, Any]
Name = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""


@dataclass(frozen=True)
class _Entry:
    manifest: Manifest | None
    """None: it is known that there is none."""
    told_at: float


@dataclass
class Store:
    """By kind, namespace and name. `clock` counts monotonic seconds."""

    clock: Callable[[], float] = time.monotonic
    _kinds: defaultdict[str, dict[Name, _Entry]] = field(default_factory=lambda: defaultdict(dict))

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        entry = self._kinds[kind].get((namespace, name))
        return entry.manifest if entry else None

    def namespace(self, name: str) -> Manifest:
        """Raises NotYet: without its labels no grant can be judged."""
        known = self.get("Namespace", "", name)
        if known is None:
            raise NotYet(f"namespace {name} is not known yet")
        return known

    def age_seconds(self, kind: str, namespace: str, name: str) -> float:
        """How long ago the API server last told of this object, or of its absence."""
        entry = self._kinds[kind].get((namespace, name))
        return self.clock() - entry.told_at if entry else float("inf")

    def all(self, kind: str) -> list[Manifest]:
        return [entry.manifest for entry in self._kinds[kind].values() if entry.manifest is not None]

    def put(self, manifest: Manifest) -> bool:
        """Whether it was news. An older state than the known one is passed over: a watch may be behind an answer."""
        name = _name(manifest)
        known = self.get(manifest["kind"], *name)
        if known is not None and _same_object(known, manifest) and _version(known) > _version(manifest):
            return False
        self._kinds[manifest["kind"]][name] = _Entry(manifest, self.clock())
        return known is None or known["metadata"].get("resourceVersion") != manifest["metadata"].get("resourceVersion")

    def absent(self, kind: str, namespace: str, name: str) -> None:
        """The API server says that there is none."""
        self._kinds[kind][namespace, name] = _Entry(None, self.clock())

    def gone(self, manifest: Manifest) -> None:
        """A watch told of its deletion; one of the same name may have been made since."""
        name = _name(manifest)
        known = self.get(manifest["kind"], *name)
        if known is not None and _same_object(known, manifest):
            del self._kinds[manifest["kind"]][name]

    def replace(self, kind: str, listed: Iterable[Manifest], *, namespace: str | None, begun_at: float) -> set[Name]:
        """All objects of a kind, in one namespace or in all, as a list that was begun at `begun_at` found them. Returns what is news."""
        found = {_name(manifest): manifest for manifest in listed}
        news = {name for name, manifest in found.items() if self.put(manifest)}
        for name, entry in list(self._kinds[kind].items()):
            covered = namespace is None or name[0] == namespace
            if covered and name not in found and entry.told_at < begun_at:
                del self._kinds[kind][name]
                news.add(name)
        return news


def _name(manifest: Manifest) -> Name:
    return manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def _same_object(one: Manifest, other: Manifest) -> bool:
    return bool(one["metadata"].get("uid") == other["metadata"].get("uid"))


def _version(manifest: Manifest) -> int:
    """Kubernetes 1.35 promises what etcd always did: versions of one resource can be compared as numbers."""
    version = manifest["metadata"].get("resourceVersion", "")
    return int(version) if version.isdecimal() else 0
