"""The parts of a Pod that a user may set for workers; names and meaning are those of Kubernetes' core/v1.

Written out, so that a misspelt field is refused when it is applied and not when the first worker fails to start.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from delayed_topics_crds.base import JsonSchema, Matches, Spec

QUANTITY = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$"
"""As Kubernetes writes it, but for exponents that no machine has: whoever makes `1e99999999` an integer never ends."""
MAX_QUANTITY = 32


class _IntOrString:
    """`cpu: 1` and `cpu: "1"` alike, as everywhere in Kubernetes."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {"x-kubernetes-int-or-string": True, "pattern": QUANTITY, "maxLength": MAX_QUANTITY}


Quantity = Annotated[int | str, _IntOrString()]

LabelValue = Annotated[
    str,
    Matches(
        r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?",
        "must be the value of a label: letters, digits, '-', '_' and '.', with a letter or digit at either end",
        63,
    ),
]


class LabelSelectorRequirement(Spec):
    """A condition on one label."""

    key: str
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How it is compared."""
    values: Annotated[tuple[str, ...], Field(max_length=64)] | None = None
    """What it is compared with: at least one value for In and NotIn, none for Exists and DoesNotExist."""


class LabelSelector(Spec):
    """All requirements must hold; an empty selector selects everything."""

    match_labels: Annotated[Mapping[str, str], Field(max_length=64)] | None = None
    """Labels with these values."""
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Field(max_length=64)] | None = None
    """Further requirements."""


class NodeSelectorRequirement(Spec):
    """A condition on one label or field of a node."""

    key: str
    """The label or field."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How it is compared."""
    values: tuple[str, ...] | None = None
    """What it is compared with."""


class NodeSelectorTerm(Spec):
    """All of these must hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    """Requirements on labels."""
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None
    """Requirements on fields."""


class NodeSelector(Spec):
    """One of the terms must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]
    """The terms."""


class PreferredSchedulingTerm(Spec):
    """A node is preferred by `weight` where the term holds."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """1 to 100."""
    preference: NodeSelectorTerm
    """The term."""


class NodeAffinity(Spec):
    """Which nodes."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Must hold."""
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] | None = None
    """Should hold."""


class PodAffinityTerm(Spec):
    """Pods, and how near "together" is."""

    topology_key: str
    """The label of nodes whose equal values mean together."""
    label_selector: LabelSelector | None = None
    """Which pods."""
    namespaces: tuple[str, ...] | None = None
    """In which namespaces; empty with no `namespaceSelector`: the worker's own."""
    namespace_selector: LabelSelector | None = None
    """In which namespaces, by label."""
    match_label_keys: tuple[str, ...] | None = None
    """Labels whose value is taken from the new pod."""
    mismatch_label_keys: tuple[str, ...] | None = None
    """Labels whose value must differ from the new pod's."""


class WeightedPodAffinityTerm(Spec):
    """A node is preferred by `weight` where the term holds."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """1 to 100."""
    pod_affinity_term: PodAffinityTerm
    """The term."""


class PodAffinity(Spec):
    """Together with which pods, or apart from which."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None
    """Must hold."""
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] | None = None
    """Should hold."""


class Affinity(Spec):
    """Where pods go, and with whom."""

    node_affinity: NodeAffinity | None = None
    """Which nodes."""
    pod_affinity: PodAffinity | None = None
    """Together with which pods."""
    pod_anti_affinity: PodAffinity | None = None
    """Apart from which pods."""


class Toleration(Spec):
    """A taint that does not keep the pod away."""

    key: str | None = None
    """The taint; absent with operator Exists: every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """How `value` is compared; absent means Equal."""
    value: str | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; absent: every effect."""
    toleration_seconds: int | None = None
    """For how long a NoExecute taint is tolerated; absent: for ever."""


class ResourceRequirements(Spec):
    """What the container gets."""

    requests: Mapping[str, Quantity] | None = None
    """What is set aside for it."""
    limits: Mapping[str, Quantity] | None = None
    """What it can't exceed."""
