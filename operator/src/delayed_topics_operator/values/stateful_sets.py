"""What a StatefulSet says of its pods. Pure."""

from delayed_topics_operator.values.manifest import Manifest


def is_current(live: Manifest) -> bool:
    """Whether the StatefulSet controller has seen the present spec. Until then, the status is about the former one."""
    return bool((live.get("status") or {}).get("observedGeneration", 0) >= live["metadata"].get("generation", 0))


def rolls(live: Manifest) -> bool:
    """Whether pods are being replaced. The StatefulSet controller makes the new revision the current one when all pods have it and are
    ready. A replaced pod counts as updated as soon as it exists, so `updatedReplicas` does not show the end."""
    status = live.get("status") or {}
    return not is_current(live) or status.get("currentRevision") != status.get("updateRevision")


def worker_image(live: Manifest) -> str | None:
    """Returns the image of the container `worker`, which its next pods will have."""
    containers = live["spec"]["template"]["spec"]["containers"]
    return next((container["image"] for container in containers if container["name"] == "worker"), None)
