"""The parts of a Pod that a user may set for workers. Their names and meanings are those of Kubernetes' core/v1.

The fields are declared one by one, so that the API server refuses a misspelt field at once. Otherwise the first worker would fail to start.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from delayed_topics_crds.base import JsonSchema, Spec, matches

QUANTITY = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$"
"""Kubernetes' format, but with exponents of at most two digits, because converting `1e99999999` to an integer would never end."""
MAX_QUANTITY = 32


class _IntOrString:
    """Accepts both `cpu: 1` and `cpu: "1"`, as everywhere in Kubernetes."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {"x-kubernetes-int-or-string": True, "pattern": QUANTITY, "maxLength": MAX_QUANTITY}


Quantity = Annotated[int | str, _IntOrString()]

LabelValue = Annotated[
    str,
    matches(
        r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?",
        "must be the value of a label: letters, digits, '-', '_' and '.', with a letter or digit at both ends",
        63,
    ),
]


MAX_ENTRIES = 64
Key = Annotated[str, Field(max_length=317)]
"""The key of a label, a resource or a taint."""
Value = Annotated[str, Field(max_length=253)]
"""The value of a label or a taint, or the name of a node or a namespace."""
T = TypeVar("T")
Some = Annotated[tuple[T, ...], Field(max_length=MAX_ENTRIES)]
"""A list without a limit of its own. Every list has one, because the operator holds all resources in memory."""


class LabelSelectorRequirement(Spec):
    """A condition on one label."""

    key: Key
    """The key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is compared with `values`."""
    values: Some[Value] | None = None
    """The values to compare with. In and NotIn need at least one value. Exists and DoesNotExist take none."""


class LabelSelector(Spec):
    """A selector of objects by their labels. All requirements must hold. An empty selector selects everything."""

    match_labels: Annotated[Mapping[str, Value], Field(max_length=MAX_ENTRIES)] | None = None
    """Labels that must have these values."""
    match_expressions: Some[LabelSelectorRequirement] | None = None
    """Further requirements on labels."""


class NodeSelectorRequirement(Spec):
    """A condition on one label or field of a node."""

    key: Key
    """The key of the label, or the name of the field."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How the label or field is compared with `values`."""
    values: Some[Value] | None = None
    """The values to compare with."""


class NodeSelectorTerm(Spec):
    """Requirements on a node. All of them must hold."""

    match_expressions: Some[NodeSelectorRequirement] | None = None
    """Requirements on labels of the node."""
    match_fields: Some[NodeSelectorRequirement] | None = None
    """Requirements on fields of the node."""


class NodeSelector(Spec):
    """A selector of nodes. At least one of its terms must hold."""

    node_selector_terms: Some[NodeSelectorTerm]
    """The terms of the selector."""


class PreferredSchedulingTerm(Spec):
    """A preference for nodes on which the term holds."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """The weight of the preference, from 1 to 100."""
    preference: NodeSelectorTerm
    """The term that a node should meet."""


class NodeAffinity(Spec):
    """The nodes on which a pod may or should run."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """A selector that the node must meet."""
    preferred_during_scheduling_ignored_during_execution: Some[PreferredSchedulingTerm] | None = None
    """Terms that the node should meet."""


class PodAffinityTerm(Spec):
    """A set of pods, and the topology in which a pod counts as near to them."""

    topology_key: Key
    """A label of nodes. Nodes with the same value of this label count as one place."""
    label_selector: LabelSelector | None = None
    """A selector of the pods, by their labels."""
    namespaces: Some[Value] | None = None
    """The namespaces of the pods. If this and `namespaceSelector` are empty, it is the worker's own namespace."""
    namespace_selector: LabelSelector | None = None
    """A selector of the namespaces of the pods, by their labels."""
    match_label_keys: Some[Key] | None = None
    """Keys of labels that must have the same value as on the new pod."""
    mismatch_label_keys: Some[Key] | None = None
    """Keys of labels that must have another value than on the new pod."""


class WeightedPodAffinityTerm(Spec):
    """A preference for nodes on which the term holds."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """The weight of the preference, from 1 to 100."""
    pod_affinity_term: PodAffinityTerm
    """The term that should hold."""


class PodAffinity(Spec):
    """The pods near which, or away from which, a pod must or should run."""

    required_during_scheduling_ignored_during_execution: Some[PodAffinityTerm] | None = None
    """Terms that must hold."""
    preferred_during_scheduling_ignored_during_execution: Some[WeightedPodAffinityTerm] | None = None
    """Terms that should hold."""


class Affinity(Spec):
    """Rules for the nodes on which a pod runs, and for the pods next to it."""

    node_affinity: NodeAffinity | None = None
    """Rules for the nodes on which a pod runs."""
    pod_affinity: PodAffinity | None = None
    """Rules for the pods near which a pod runs."""
    pod_anti_affinity: PodAffinity | None = None
    """Rules for the pods away from which a pod runs."""


class Toleration(Spec):
    """A taint of nodes that the pod tolerates."""

    key: Key | None = None
    """The key of the taint. If it is absent and the operator is Exists, the pod tolerates every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """How `value` is compared. Defaults to Equal."""
    value: Value | None = None
    """The value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The effect of the taint. If it is absent, the pod tolerates every effect."""
    toleration_seconds: int | None = None
    """How long the pod tolerates a NoExecute taint, in seconds. If it is absent, the pod tolerates the taint for ever."""


class ResourceRequirements(Spec):
    """Compute resources of the container."""

    requests: Annotated[Mapping[str, Quantity], Field(max_length=MAX_ENTRIES)] | None = None
    """The resources that the scheduler sets aside for the container."""
    limits: Annotated[Mapping[str, Quantity], Field(max_length=MAX_ENTRIES)] | None = None
    """The resources that the container can't exceed."""
