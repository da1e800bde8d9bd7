"""Reads the live objects of workers in Kubernetes, and defines what the operator adds to their pods."""

from collections.abc import Iterable, Iterator, Mapping

from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.installation import connection_of
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import refresh
from delayed_topics_operator.errors import KubeUnreachable
from delayed_topics_operator.values.labels import CONNECTION_LABEL
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.workers.reconcile.worker_sets import PodSettings, object_name

WATCHED = ("ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet")
"""The kinds that are listed in the namespaces of workers. Secrets are read by name, because RBAC cannot limit a list to some Secrets."""


SECRET_AGE = 0.8
"""A Secret is read again when the known copy is older than this fraction of the time between two resyncs."""


def child_names(name: str) -> tuple[tuple[str, str], ...]:
    """Returns the kind and name of the StatefulSet `name` and of each object around it, in the order in which they are removed."""
    return (
        ("StatefulSet", name),
        ("Secret", f"{name}-connection"),
        ("PodDisruptionBudget", name),
        ("Service", name),
        ("ConfigMap", f"{name}-layout"),
    )


def base_name(kind: str, child: str) -> str:
    """Returns the name of the StatefulSet that a child belongs to. `kind`: one of WATCHED."""
    return child.removesuffix("-layout") if kind == "ConfigMap" else child


def left_behind(context: ControllerContext, live: Iterable[Manifest], topics: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yields those of the objects that are in the operator's namespace and were made for a DelayedTopic which is not one of `topics`."""
    home, keys = context.settings.namespace, [(connection_of(topic).kind, topic["metadata"]) for topic in topics]
    known = {
        object_name(namespace=meta["namespace"], name=meta["name"], home=home)
        for kind, meta in keys
        if context.settings.home(kind, meta["namespace"]) == home
    }
    for found in live:
        meta = found["metadata"]
        shared = CONNECTION_LABEL in (meta.get("labels") or {})  # Kubernetes removes these with the connection
        if meta["namespace"] == home and not shared and base_name(found["kind"], meta["name"]) not in known:
            yield found


async def children(context: ControllerContext, *, home: str, name: str) -> Mapping[tuple[str, str], Manifest]:
    """Returns the live objects by kind and name. Each resync reads the Secret again, and the passes in between do not. Raises KubeError.

    If the API server can't read Secrets at present, as when it can't decrypt them, the known one counts.
    """
    store, secret = context.store, f"{name}-connection"
    if store.age_seconds("Secret", home, secret) > SECRET_AGE * context.settings.resync_seconds:
        try:
            await refresh(context.kube, store, "Secret", home, secret)
        except KubeUnreachable:
            if store.get("Secret", home, secret) is None:
                raise
    found = {(kind, child): store.get(kind, home, child) for kind, child in child_names(name)}
    return {key: manifest for key, manifest in found.items() if manifest is not None}


class PodCounts:
    """The number of pods that each StatefulSet had at the last look."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def vanished(self, home: str, name: str, live: Manifest | None, *, wanted: int) -> tuple[str, ...]:
        """Returns the names of pods that are gone and no longer wanted. Each name is returned once."""
        before = self._last.pop((home, name), 0)
        there = ((live or {}).get("status") or {}).get("replicas", 0)
        if there:
            self._last[home, name] = there
        return tuple(f"{name}-{number}" for number in range(max(there, wanted), before))


def pod_settings(settings: Settings, *, home: str, allowed: bool) -> PodSettings:
    """Returns the settings of workers in namespace `home`. `allowed`: whether the operator has rights there."""
    return PodSettings(
        image=settings.worker_image,
        image_pull_policy=settings.image_pull_policy,
        labels=settings.pod_labels,
        annotations=settings.pod_annotations,
        defaults=settings.pod_defaults,
        home=home,
        allowed=allowed,
    )
