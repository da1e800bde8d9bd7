"""What all worker pods have, and of those that do not run yet what Kubernetes tells."""

from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.manifest import Manifest
from delayed_topics_operator.observation import PodSettings
from delayed_topics_operator.pods import silent
from delayed_topics_operator.settings import Settings


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


async def pods_and_warnings(
    kube: Kube, owner: Manifest, *, labels: str, expected: int
) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
    """The pods with these labels by name, and the Warnings that may say why there are fewer than expected, or why one of them has not
    started. `owner`: the StatefulSet or Job that makes them. Raises KubeError."""
    home = owner["metadata"]["namespace"]
    listed = await kube.list_all("Pod", home, labels=labels)
    pods = tuple(sorted(listed, key=lambda pod: str(pod["metadata"]["name"])))
    doubtful = owner if len(pods) < expected else next((pod for pod in pods if silent(pod)), None)
    if doubtful is None:
        return pods, ()
    fields = f"type=Warning,involvedObject.uid={doubtful['metadata']['uid']}"
    return pods, tuple(await kube.list_all("Event", home, fields=fields))
