"""The live objects of a resource in Kubernetes."""

from collections.abc import Mapping

from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.manifest import Manifest
from delayed_topics_operator.store import Store

WATCHED = ("ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet")
"""Kinds that are listed in the namespaces of workers. Secrets can't be: RBAC has no list of some only, so they are got by name."""


SECRET_AGE = 0.8
"""Of the interval between two resyncs."""


def child_names(name: str) -> tuple[tuple[str, str], ...]:
    """Kind and name of everything that is made around the StatefulSet `name`, in the order in which it is removed."""
    return (
        ("StatefulSet", name),
        ("Secret", f"{name}-connection"),
        ("PodDisruptionBudget", name),
        ("Service", name),
        ("ConfigMap", f"{name}-worker"),
        ("ConfigMap", f"{name}-layout"),
    )


def base_name(kind: str, child: str) -> str:
    """Of the StatefulSet that a child of a kind in WATCHED was made around."""
    return child.removesuffix("-worker").removesuffix("-layout") if kind == "ConfigMap" else child


async def children(
    kube: Kube, store: Store, *, home: str, name: str, resync_seconds: float
) -> Mapping[tuple[str, str], Manifest]:
    """By kind and name. Each resync asks for the Secret, the passes between don't. Raises KubeError."""
    secret = f"{name}-connection"
    if store.age_seconds("Secret", home, secret) > SECRET_AGE * resync_seconds:
        await refresh(kube, store, "Secret", home, secret)
    found = {(kind, child): store.get(kind, home, child) for kind, child in child_names(name)}
    return {key: manifest for key, manifest in found.items() if manifest is not None}


class PodCounts:
    """How many pods each StatefulSet had at the last look."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def vanished(self, home: str, name: str, live: Manifest | None, *, wanted: int) -> tuple[str, ...]:
        """The names of those that nobody wants and that are no more. They are told of once."""
        before = self._last.pop((home, name), 0)
        there = ((live or {}).get("status") or {}).get("replicas", 0)
        if there:
            self._last[home, name] = there
        return tuple(f"{name}-{number}" for number in range(max(there, wanted), before))


async def refresh(kube: Kube, store: Store, kind: str, namespace: str, name: str) -> Manifest | None:
    """The object as it is now. Raises KubeError."""
    manifest = await kube.find(kind, namespace, name)
    if manifest is None:
        store.absent(kind, namespace, name)
    else:
        store.put(manifest)
    return manifest


Progress = tuple[object, ...]
"""Of a rollout; any other value is progress."""


def rolling(store: Store) -> dict[tuple[str, str], Progress]:
    """StatefulSets of workers whose pods are being replaced, by namespace and name, and how far that is."""
    found = store.by_index("StatefulSet", _rolls, True)
    return {(s["metadata"]["namespace"], s["metadata"]["name"]): _progress(s) for s in found}


def _progress(stateful_set: Manifest) -> Progress:
    """Another edit is none: by one each minute, a set whose pods can't start would hold up everybody else for ever."""
    status = stateful_set.get("status") or {}
    return tuple(status.get(field) for field in ("updatedReplicas", "readyReplicas", "replicas"))


def _rolls(stateful_set: Manifest) -> tuple[bool]:
    """For `Store.by_index`."""
    status = stateful_set.get("status") or {}
    behind = status.get("observedGeneration", 0) < stateful_set["metadata"].get("generation", 0)
    outdated = status.get("updatedReplicas", 0) < stateful_set["spec"].get("replicas", 1)
    return (behind or (outdated and status.get("currentRevision") != status.get("updateRevision")),)
