"""The pods of a StatefulSet or Job, and the Events about pods that do not run yet."""

from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.pods import brief, silent


async def pods_and_warnings(
    kube: Kube, owner: Manifest, *, labels: str, expected: int
) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
    """Returns the pods with these labels, sorted by name, and the Warnings that may say why there are fewer than expected, or why one of
    them has not started. `owner`: the StatefulSet or Job of the pods. Raises KubeError."""
    home = owner["metadata"]["namespace"]
    listed = await kube.list_all("Pod", home, labels=labels)
    pods = tuple(sorted(listed, key=lambda pod: str(pod["metadata"]["name"])))
    doubtful = owner if len(pods) < expected else next((pod for pod in pods if silent(pod)), None)
    if doubtful is None:
        return pods, ()
    fields = f"type=Warning,involvedObject.uid={doubtful['metadata']['uid']}"
    return pods, tuple(await kube.list_all("Event", home, fields=fields, keep=brief))
