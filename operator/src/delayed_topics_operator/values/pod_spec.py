"""What the specs of all pods that the operator makes have in common."""

from delayed_topics_crds import to_dict
from delayed_topics_crds.delayed_topic import WorkerTemplate
from delayed_topics_crds.schedule import Spark

from delayed_topics_operator.values.manifest import Manifest

POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}
"""With POD_SECURITY, what the restricted Pod Security Standard of Kubernetes requires."""


def nodes(asked: WorkerTemplate | Spark) -> Manifest:
    """Returns the fields of a pod's spec that say on which nodes it may run."""
    given = {
        "nodeSelector": dict(asked.node_selector or {}),
        "tolerations": [to_dict(toleration) for toleration in asked.tolerations or ()],
    }
    return {key: value for key, value in given.items() if value}
