"""The live objects around workers in Kubernetes, and what the operator brings into their pods."""

from collections.abc import Mapping

from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import refresh
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.workers.reconcile.worker_sets import PodSettings

WATCHED = ("ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet")
"""Kinds that are listed in the namespaces of workers. Secrets can't be: RBAC has no list of some only, so they are got by name."""


SECRET_AGE = 0.8
"""A Secret is asked for again when what is known of it is older than this part of the time between two resyncs."""


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


async def children(context: ControllerContext, *, home: str, name: str) -> Mapping[tuple[str, str], Manifest]:
    """By kind and name. Each resync asks for the Secret, the passes between don't. Raises KubeError."""
    store, secret = context.store, f"{name}-connection"
    if store.age_seconds("Secret", home, secret) > SECRET_AGE * context.settings.resync_seconds:
        await refresh(context.kube, store, "Secret", home, secret)
    found = {(kind, child): store.get(kind, home, child) for kind, child in child_names(name)}
    return {key: manifest for key, manifest in found.items() if manifest is not None}


class PodCounts:
    """How many pods each StatefulSet had at the last look."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def vanished(self, home: str, name: str, live: Manifest | None, *, wanted: int) -> tuple[str, ...]:
        """The names of pods that are gone and that nobody wants any more. Each is returned once."""
        before = self._last.pop((home, name), 0)
        there = ((live or {}).get("status") or {}).get("replicas", 0)
        if there:
            self._last[home, name] = there
        return tuple(f"{name}-{number}" for number in range(max(there, wanted), before))


def pod_settings(settings: Settings, *, home: str, allowed: bool) -> PodSettings:
    """Of workers in namespace `home`. `allowed`: the operator has rights there."""
    return PodSettings(
        image=settings.worker_image,
        image_pull_policy=settings.image_pull_policy,
        labels=settings.pod_labels,
        annotations=settings.pod_annotations,
        home=home,
        allowed=allowed,
    )
