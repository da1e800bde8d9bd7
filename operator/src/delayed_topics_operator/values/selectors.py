"""Label selectors of Kubernetes."""

from collections.abc import Mapping

from delayed_topics_crds.pods import LabelSelector, LabelSelectorRequirement


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether the selector matches the labels. As in Kubernetes, all requirements must hold, and an empty selector matches everything."""
    return all(labels.get(key) == value for key, value in (selector.match_labels or {}).items()) and all(
        _holds(requirement, labels) for requirement in selector.match_expressions or ()
    )


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    match requirement.operator:
        case "In":
            return labels.get(requirement.key) in (requirement.values or ())
        case "NotIn":
            return labels.get(requirement.key) not in (requirement.values or ())
        case "Exists":
            return requirement.key in labels
        case "DoesNotExist":
            return requirement.key not in labels
