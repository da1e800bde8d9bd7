"""What the specs of all pods that the operator makes have in common."""

from collections.abc import Mapping

from delayed_topics_crds import to_dict
from delayed_topics_crds.base import Spec
from delayed_topics_crds.common import ObjectName
from delayed_topics_crds.delayed_topic import WorkerTemplate
from delayed_topics_crds.pods import LabelValue, Toleration
from delayed_topics_crds.schedule import Spark
from pydantic import Field

from delayed_topics_operator.values.manifest import Manifest

POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}
"""With POD_SECURITY, what the restricted Pod Security Standard of Kubernetes requires."""


class PodDefaults(Spec):
    """Where pods run, and their priority, unless their resource says otherwise."""

    node_selector: Mapping[str, LabelValue] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: ObjectName | None = None


def placement(asked: WorkerTemplate | Spark, defaults: PodDefaults) -> Manifest:
    """Returns the fields of a pod's spec that say on which nodes it may run, and its priority."""
    own = tuple(toleration for toleration in asked.tolerations or () if toleration not in defaults.tolerations)
    priority = asked.priority_class_name if isinstance(asked, WorkerTemplate) else None
    given = {
        "nodeSelector": {**defaults.node_selector, **(asked.node_selector or {})},
        "tolerations": [to_dict(toleration) for toleration in (*defaults.tolerations, *own)],
        "priorityClassName": priority or defaults.priority_class_name,
    }
    return {key: value for key, value in given.items() if value}


def replaces_defaults(asked: WorkerTemplate, defaults: PodDefaults) -> bool:
    """Whether pods have something else than a default says. Tolerations only add up."""
    given = placement(asked, defaults)
    selected = given.get("nodeSelector", {})
    others = any(selected[key] != value for key, value in defaults.node_selector.items())
    return others or defaults.priority_class_name not in (None, given.get("priorityClassName"))


def without_defaults(spec: Manifest, defaults: PodDefaults) -> Manifest:
    """Returns those fields of a pod's spec as its resource has them."""
    priority, tolerations = spec.get("priorityClassName"), [to_dict(one) for one in defaults.tolerations]
    selected = (spec.get("nodeSelector") or {}).items()
    return {
        "nodeSelector": {key: value for key, value in selected if defaults.node_selector.get(key) != value},
        "tolerations": [one for one in spec.get("tolerations") or () if one not in tolerations],
        "priorityClassName": priority if priority != defaults.priority_class_name else None,
    }
