"""What the specs of all pods have in common that the operator makes."""

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
"""Of every pod that the operator makes: what the restricted standard of Kubernetes asks for."""


def nodes(asked: WorkerTemplate | Spark) -> Manifest:
    """Of the spec of a pod: to which nodes it may go."""
    given = {
        "nodeSelector": dict(asked.node_selector or {}),
        "tolerations": [to_dict(toleration) for toleration in asked.tolerations or ()],
    }
    return {key: value for key, value in given.items() if value}
