"""What a StatefulSet says of its pods. Pure."""

from delayed_topics_operator.values.manifest import Manifest

INSTALLATION = "delayedtopics.io/pods-of-installation"
"""An annotation of a StatefulSet: the digest of what the chart values and the operator give to the pods of all workers."""
IN_PART = "-in-part"
"""The end of the value of INSTALLATION if the resource has a nodeSelector or priorityClassName of its own in place of that of the chart."""
READY_BEFORE = "delayedtopics.io/ready-before"
"""An annotation of a StatefulSet: how many pods were ready when the replacement of its pods began."""
STOPPED = "-stopped"
"""The end of the value of READY_BEFORE from when all pods stop until others are to start in their place."""


def is_current(live: Manifest) -> bool:
    """Whether the StatefulSet controller has seen the present spec. Until then, the status is about the former one."""
    return bool((live.get("status") or {}).get("observedGeneration", 0) >= live["metadata"].get("generation", 0))


def rolls(live: Manifest) -> bool:
    """Whether pods are being replaced. The StatefulSet controller makes the new revision the current one when all pods have it and are
    ready. A replaced pod counts as updated as soon as it exists, so `updatedReplicas` does not show the end."""
    status = live.get("status") or {}
    return not is_current(live) or status.get("currentRevision") != status.get("updateRevision")


def ready_now(live: Manifest) -> int:
    return int((live.get("status") or {}).get("readyReplicas", 0))


def ready_before(live: Manifest) -> int | None:
    """Returns how many pods were ready when the last replacement of pods began. None: it is not known."""
    written = (_annotation(live, READY_BEFORE) or "").removesuffix(STOPPED)
    return int(written) if written.isdecimal() else None


def ready_before_next(live: Manifest) -> int:
    """Returns the number to write into READY_BEFORE when pods are replaced now. What a replacement under way has cost is not forgotten."""
    return max(ready_now(live), (ready_before(live) or 0) if rolls(live) else 0)


def has_stopped(live: Manifest) -> bool:
    """Whether all pods were stopped, and none is to start in their place yet."""
    return (_annotation(live, READY_BEFORE) or "").endswith(STOPPED) and not live["spec"]["replicas"]


def installation(live: Manifest) -> str | None:
    """Returns the digest in INSTALLATION."""
    written = _annotation(live, INSTALLATION)
    return written and written.removesuffix(IN_PART)


def has_all_of(live: Manifest) -> bool:
    """Whether its pods have all that the installation gives to pods."""
    return not (_annotation(live, INSTALLATION) or "").endswith(IN_PART)


def _annotation(live: Manifest, key: str) -> str | None:
    found: str | None = (live["metadata"].get("annotations") or {}).get(key)
    return found
