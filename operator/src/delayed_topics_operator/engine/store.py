"""Objects as the API server last told of them: by watch, by list, or in answer to a call of our own. Belongs to one event loop.

Watches may go silent and miss deletions; so everything is listed again at every resync, and the list is the truth.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from delayed_topics_crds import GROUP

from delayed_topics_operator.errors import NotYet
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.manifest import Manifest

Name = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""
Indexer = Callable[[Manifest], Iterable[Hashable]]
"""The values that an object is found by. It must depend on the object alone."""


@dataclass(frozen=True)
class _Entry:
    manifest: Manifest | None
    """None: it is known that there is none."""
    told_at: float


@dataclass
class _Index:
    """`found`: names of objects by value. `values`: the other way round."""

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
    """By kind, namespace and name. `clock` counts monotonic seconds."""

    clock: Callable[[], float] = time.monotonic
    _kinds: defaultdict[str, dict[Name, _Entry]] = field(default_factory=lambda: defaultdict(dict))
    _indices: defaultdict[str, dict[Indexer, _Index]] = field(default_factory=lambda: defaultdict(dict))

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        entry = self._kinds[kind].get((namespace, name))
        return entry.manifest if entry else None

    def namespace(self, name: str) -> Manifest:
        """Raises NotYet: without its labels no grant can be judged."""
        known = self.get("Namespace", "", name)
        if known is None:
            raise NotYet(f"the operator does not know namespace {name} yet")
        return known

    def age_seconds(self, kind: str, namespace: str, name: str) -> float:
        """How long ago the API server last told of this object, or of its absence."""
        entry = self._kinds[kind].get((namespace, name))
        return self.clock() - entry.told_at if entry else float("inf")

    def all(self, kind: str) -> list[Manifest]:
        return [entry.manifest for entry in self._kinds[kind].values() if entry.manifest is not None]

    def by_index(self, kind: str, indexer: Indexer, value: Hashable) -> list[Manifest]:
        """The objects of which `indexer` gives `value`, without a look at all others. `indexer`: a function of a module."""
        index = self._indices[kind].get(indexer)
        if index is None:
            index = self._indices[kind][indexer] = _Index(indexer)
            for name, entry in self._kinds[kind].items():
                index.set(name, entry.manifest)
        found = (self.get(kind, *name) for name in index.found.get(value, ()))
        return [manifest for manifest in found if manifest is not None]

    def put(self, manifest: Manifest) -> bool:
        """Whether it was news. An older state than the known one is passed over: a watch may be behind an answer."""
        name = _name(manifest)
        known = self.get(manifest["kind"], *name)
        if known is not None and _same_object(known, manifest) and _version(known) > _version(manifest):
            return False
        self._set(manifest["kind"], name, _Entry(_slim(manifest), self.clock()))
        return known is None or known["metadata"].get("resourceVersion") != manifest["metadata"].get("resourceVersion")

    def absent(self, kind: str, namespace: str, name: str) -> None:
        """The API server says that there is none."""
        self._set(kind, (namespace, name), _Entry(None, self.clock()))

    def gone(self, manifest: Manifest) -> None:
        """A watch told of its deletion; one of the same name may have been made since."""
        name = _name(manifest)
        known = self.get(manifest["kind"], *name)
        if known is not None and _same_object(known, manifest):
            self._set(manifest["kind"], name, None)

    def replace(
        self, kind: str, listed: Iterable[Manifest], *, namespace: str | None, begun_at: float
    ) -> list[Manifest]:
        """All objects of a kind, in one namespace or in all, as a list that was begun at `begun_at` found them. Returns what is
        news; what is gone as it was known last."""
        found = {_name(manifest): manifest for manifest in listed}
        news = [manifest for manifest in found.values() if self.put(manifest)]
        for name, entry in list(self._kinds[kind].items()):
            covered = namespace is None or name[0] == namespace
            if covered and name not in found and entry.told_at < begun_at:
                self._set(kind, name, None)
                if entry.manifest is not None:
                    news.append(entry.manifest)
        return news

    def _set(self, kind: str, name: Name, entry: _Entry | None) -> None:
        if entry is None:
            del self._kinds[kind][name]
        else:
            self._kinds[kind][name] = entry
        for index in self._indices[kind].values():
            index.set(name, entry.manifest if entry else None)


def _name(manifest: Manifest) -> Name:
    return manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def _slim(manifest: Manifest) -> Manifest:
    """Of who manages which field, the names of the managers are enough, but for our own kinds: it is nearly half of an object in
    memory."""
    meta = manifest["metadata"]
    if not meta.get("managedFields") or str(manifest.get("apiVersion")).startswith(GROUP):
        return manifest
    managers = [{"manager": entry.get("manager")} for entry in meta["managedFields"]]
    return {**manifest, "metadata": {**meta, "managedFields": managers}}


def _same_object(one: Manifest, other: Manifest) -> bool:
    return bool(one["metadata"].get("uid") == other["metadata"].get("uid"))


def _version(manifest: Manifest) -> int:
    """Kubernetes 1.35 promises what etcd always did: versions of one resource can be compared as numbers."""
    version = manifest["metadata"].get("resourceVersion", "")
    return int(version) if version.isdecimal() else 0


def namespaces(manifest: Manifest) -> tuple[str]:
    """For `Store.by_index`."""
    return (manifest["metadata"].get("namespace", ""),)


def owner_uids(manifest: Manifest) -> tuple[str, ...]:
    """For `Store.by_index`."""
    return tuple(owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or () if "uid" in owner)


async def refresh(kube: Kube, store: Store, kind: str, namespace: str, name: str) -> Manifest | None:
    """The object as it is now. Raises KubeError."""
    manifest = await kube.find(kind, namespace, name)
    if manifest is None:
        store.absent(kind, namespace, name)
    else:
        store.put(manifest)
    return manifest
