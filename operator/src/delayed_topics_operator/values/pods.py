"""Why a pod does not run, or why there is none, from its status and Events. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from delayed_topics_core.reasons import EXIT_PROTOCOL_REFUSED

from delayed_topics_operator.values.manifest import Manifest

_IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})
_STUCK = _IMAGE_REASONS | frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""Reasons of a container that waits until someone corrects something."""
_EVENT_REASONS = frozenset({"FailedCreate", "FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume"})
"""Reasons of Events about problems that no status shows."""
MAX_WORDS = 1_000
OVERDUE_SECONDS = 60.0
"""How long after the end of its grace period a pod may still exist."""
LOST_NODE = "If the node is lost, delete the Node object, or give it the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """A problem that someone has to solve. `about`: the image, the room on nodes, the memory limit, or what the message says."""

    about: Literal["image", "room", "memory", "other"]
    message: str


def obstacle(pod: Manifest) -> Obstacle | None:
    """Returns why the pod has not started, or None if its status shows no problem."""
    name = pod["metadata"]["name"]
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if (reason := waiting.get("reason")) in _STUCK:
            message = f"pod {name}: {reason}: {waiting.get('message', 'see its events')}"
            return Obstacle(about="image" if reason in _IMAGE_REASONS else "other", message=message)
    conditions = (pod.get("status") or {}).get("conditions") or ()
    unplaced = next((c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), None)
    if unplaced is not None:
        return Obstacle(about="room", message=f"pod {name} finds no node: {unplaced.get('message', '')}")
    return None


def hindrance(pod: Manifest, now: datetime) -> Obstacle | None:
    """Returns why the pod has not started, or how its container last ended. None if the container is ready again. Of a pod that is being
    deleted, returns only that it does not end."""
    if pod["metadata"].get("deletionTimestamp"):
        return _overdue(pod, now)
    return obstacle(pod) or next((ending for c in _containers(pod) if (ending := _ending(pod, c))), None)


def _overdue(pod: Manifest, now: datetime) -> Obstacle | None:
    """The deletion timestamp of a pod is the end of its grace period."""
    meta = pod["metadata"]
    if (now - datetime.fromisoformat(meta["deletionTimestamp"])).total_seconds() <= OVERDUE_SECONDS:
        return None
    message = (
        f"pod {meta['name']} should have ended at {meta['deletionTimestamp']}. Probably its node {pod['spec'].get('nodeName')} no longer "
        f"answers, and another worker starts only when the pod is gone. {LOST_NODE}. Otherwise run: kubectl --namespace "
        f"{meta['namespace']} delete pod {meta['name']} --force. Even if the worker still runs there, Kafka gives each partition to only "
        "one worker"
    )
    return Obstacle(about="other", message=message)


def _ending(pod: Manifest, container: Manifest) -> Obstacle | None:
    states = ((container.get(state) or {}).get("terminated") for state in ("state", "lastState"))
    last = next((terminated for terminated in states if terminated), None)
    if last is None or container.get("ready"):
        return None
    details = [words for words in (str(last.get("reason") or ""), _words(last)) if words]
    message = (
        f"pod {pod['metadata']['name']}: container {container['name']} ended with exit code {last.get('exitCode')}"
    )
    return Obstacle(
        about="memory" if last.get("reason") == "OOMKilled" else "other", message=": ".join([message, *details])
    )


def protocol_refusal(pod: Manifest) -> str | None:
    """Returns the last line of a worker that ended because Kafka does not have its rebalance protocol. None: it did not end so."""
    endings = ((c.get(state) or {}).get("terminated") for c in _containers(pod) for state in ("state", "lastState"))
    refused = next((ending for ending in endings if ending and ending.get("exitCode") == EXIT_PROTOCOL_REFUSED), None)
    return None if refused is None else _words(refused) or "Kafka refuses the rebalance protocol"


def silent(pod: Manifest) -> bool:
    """Whether the pod has not started, and its status does not say why."""
    return (pod.get("status") or {}).get("phase") == "Pending" and obstacle(pod) is None


def brief(event: Manifest) -> Manifest:
    """Returns what is read of an Event, and of each text only the beginning, because anyone who may create an Event can fill it."""
    about = event.get("involvedObject") or {}
    return {
        **{key: str(event.get(key) or "")[:MAX_WORDS] for key in ("reason", "message", "lastTimestamp", "eventTime")},
        "involvedObject": {key: str(about.get(key) or "")[:MAX_WORDS] for key in ("kind", "name")},
    }


def obstacle_of_events(events: Iterable[Manifest]) -> Obstacle | None:
    """Returns the problem that the newest of these Events reports, or None."""
    relevant = [event for event in events if event.get("reason") in _EVENT_REASONS]
    newest = max(
        relevant, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""), default=None
    )
    if newest is None:
        return None
    about = newest["involvedObject"]
    return Obstacle(about="other", message=f"{about['kind']} {about['name']}: {newest['reason']}: {newest['message']}")


def _words(ending: Manifest) -> str:
    """Returns the last line of a container's termination message."""
    lines = str(ending.get("message") or "").strip().splitlines()
    return lines[-1].removeprefix("Error: ")[:MAX_WORDS] if lines else ""


def _containers(pod: Manifest) -> list[Manifest]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
