"""What the operator reads of objects as the API server last reported them: by a watch, by a list, or in the answer to a call. They are
`slim` and `bounded`. Belongs to one event loop.

Watches may go silent and miss deletions, so each resync lists everything again, and the list overrides them.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from delayed_topics_operator.errors import NotYet
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.slim import bounded

Name = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""
Indexer = Callable[[Manifest], Iterable[Hashable]]
"""Returns the values by which an object is found. They must depend on the object alone."""
TOMBSTONE_SECONDS = 600.0
"""How long the store remembers that an object is gone. No list takes as long: the API server keeps its state for about five minutes."""


@dataclass(frozen=True)
class _Entry:
    manifest: Manifest | None
    """None: the object is known not to exist."""
    reported_at: float


@dataclass(frozen=True)
class _Tombstone:
    """An object of this name is gone. States up to `version` are from before that."""

    version: int
    reported_at: float


@dataclass
class _Index:
    """`found`: the names of objects by value. `values`: the values by name."""

    indexer: Indexer
    found: defaultdict[Hashable, dict[Name, None]] = field(default_factory=lambda: defaultdict(dict))
    values: dict[Name, frozenset[Hashable]] = field(default_factory=dict)

    def set(self, name: Name, manifest: Manifest | None) -> None:
        for value in self.values.pop(name, ()):
            del self.found[value][name]
            if not self.found[value]:
                del self.found[value]
        if manifest is not None:
            self.values[name] = frozenset(self.indexer(manifest))
            for value in self.values[name]:
                self.found[value][name] = None


@dataclass
class Store:
    """The objects by kind, namespace and name. `clock` counts monotonic seconds."""

    clock: Callable[[], float] = time.monotonic
    _kinds: defaultdict[str, dict[Name, _Entry]] = field(default_factory=lambda: defaultdict(dict))
    _indices: defaultdict[str, dict[Indexer, _Index]] = field(default_factory=lambda: defaultdict(dict))
    _tombstones: dict[tuple[str, Name], _Tombstone] = field(default_factory=dict)
    """The oldest first."""

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        entry = self._kinds[kind].get((namespace, name))
        return entry.manifest if entry else None

    def namespace(self, name: str) -> Manifest:
        """Raises NotYet if the namespace is unknown, because no grant can be checked without its labels."""
        known = self.get("Namespace", "", name)
        if known is None:
            raise NotYet(f"the operator does not know namespace {name} yet")
        return known

    def age_seconds(self, kind: str, namespace: str, name: str) -> float:
        """Returns how long ago the API server last reported this object, or its absence."""
        entry = self._kinds[kind].get((namespace, name))
        return self.clock() - entry.reported_at if entry else float("inf")

    def all(self, kind: str) -> list[Manifest]:
        return [entry.manifest for entry in self._kinds[kind].values() if entry.manifest is not None]

    def by_index(self, kind: str, indexer: Indexer, value: Hashable) -> list[Manifest]:
        """Returns the objects for which `indexer` gives `value`, without a scan of all others. `indexer`: a module-level function, because
        its identity is the key of the index."""
        index = self._indices[kind].get(indexer)
        if index is None:
            index = self._indices[kind][indexer] = _Index(indexer)
            for name, entry in self._kinds[kind].items():
                index.set(name, entry.manifest)
        found = (self.get(kind, *name) for name in index.found.get(value, ()))
        return [manifest for manifest in found if manifest is not None]

    def put(self, manifest: Manifest, *, begun_at: float = -math.inf) -> bool:
        """Stores the object and returns whether it was news. A state older than what is known is ignored, because watches, lists and
        answers to calls overtake each other. `begun_at`: when the read of this state was begun. It is newer than all that was reported
        before. Without it, only the versions say which state is newer."""
        kind, name, version = manifest["kind"], _name(manifest), _version(manifest)
        entry, gone = self._kinds[kind].get(name), self._tombstones.get((kind, name))
        if gone is not None and gone.reported_at >= begun_at and version <= gone.version:
            return False
        known = entry.manifest if entry else None
        if entry and known and entry.reported_at >= begun_at and version < _version(known):
            return False
        self._set(kind, name, _Entry(manifest, self.clock()))
        return known is None or known["metadata"].get("resourceVersion") != manifest["metadata"].get("resourceVersion")

    def absent(self, kind: str, namespace: str, name: str) -> None:
        """Records that the object does not exist, as the API server has answered."""
        known = self.get(kind, namespace, name)
        if known is not None:
            self._bury(known)
        self._set(kind, (namespace, name), _Entry(None, self.clock()))

    def gone(self, manifest: Manifest) -> None:
        """Removes an object that was deleted, unless another one of the same name was created since."""
        kind, name = manifest["kind"], _name(manifest)
        known = self.get(kind, *name)
        if known is not None:
            if not _same_object(known, manifest) and _version(known) >= _version(manifest):
                return
            self._set(kind, name, None)
        self._bury(manifest)

    def replace(
        self, kind: str, listed: Iterable[Manifest], *, namespace: str | None, begun_at: float
    ) -> list[Manifest]:
        """Replaces all objects of a kind, in one namespace or in all (None), by a list that was begun at `begun_at`. What was reported
        since may be newer, because a list has the state of its first page. Returns the objects that are news, and those that are gone, as
        they were last known."""
        found = {_name(manifest): manifest for manifest in listed}
        news = [manifest for manifest in found.values() if self.put(manifest, begun_at=begun_at)]
        for name, entry in list(self._kinds[kind].items()):
            covered = namespace is None or name[0] == namespace
            if covered and name not in found and entry.reported_at < begun_at:
                self._set(kind, name, None)
                if entry.manifest is not None:
                    self._bury(entry.manifest)
                    news.append(entry.manifest)
        return news

    def forget_unread(self, *, seconds: float, listed: Callable[[str, str], bool]) -> None:
        """Forgets what was not read for so long and is in no list. `listed`: whether objects of a kind in a namespace are listed."""
        oldest = self.clock() - seconds
        for kind, entries in self._kinds.items():
            for name in [name for name, entry in entries.items() if entry.reported_at < oldest]:
                if not listed(kind, name[0]):
                    self._set(kind, name, None)

    def _bury(self, manifest: Manifest) -> None:
        """Notes that an object is gone, so that a list that began before does not bring it back."""
        now, at = self.clock(), (manifest["kind"], _name(manifest))
        before = self._tombstones.pop(at, None)
        self._tombstones[at] = _Tombstone(max(_version(manifest), before.version if before else 0), now)
        while now - (oldest := next(iter(self._tombstones.items())))[1].reported_at >= TOMBSTONE_SECONDS:
            del self._tombstones[oldest[0]]

    def _set(self, kind: str, name: Name, entry: _Entry | None) -> None:
        if entry is None:
            del self._kinds[kind][name]
        else:
            self._kinds[kind][name] = entry
        for index in self._indices[kind].values():
            index.set(name, entry.manifest if entry else None)


def _name(manifest: Manifest) -> Name:
    return manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def _same_object(one: Manifest, other: Manifest) -> bool:
    return bool(one["metadata"].get("uid") == other["metadata"].get("uid"))


def _version(manifest: Manifest) -> int:
    """Returns the version as a number. Versions of one resource can be compared: Kubernetes 1.35 guarantees what etcd always did."""
    version = manifest["metadata"].get("resourceVersion", "")
    return int(version) if version.isdecimal() else 0


def namespaces(manifest: Manifest) -> tuple[str]:
    """For `Store.by_index`."""
    return (manifest["metadata"].get("namespace", ""),)


def owner_uids(manifest: Manifest) -> tuple[str, ...]:
    """For `Store.by_index`."""
    return tuple(owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or () if "uid" in owner)


async def refresh(kube: Kube, store: Store, kind: str, namespace: str, name: str) -> Manifest | None:
    """Reads the object from the API server into the store. None: it does not exist. Raises KubeError."""
    begun_at = store.clock()
    manifest = await kube.find(kind, namespace, name)
    if manifest is None:
        store.absent(kind, namespace, name)
    else:
        store.put(bounded(manifest), begun_at=begun_at)
    return manifest
