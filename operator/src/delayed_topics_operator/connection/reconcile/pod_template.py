"""What a tenant may set on pods in the platform's namespace, where quotas, policies and injectors of the tenant's namespace don't apply."""

from collections.abc import Iterable, Iterator, Mapping

from delayed_topics_crds import AuditGrant, TemplateGrant
from delayed_topics_crds.delayed_topic import WorkerTemplate
from delayed_topics_crds.pods import Quantity, ResourceRequirements
from delayed_topics_crds.schedule import Spark

from delayed_topics_operator.values.quantity import quantity

PATH = "spec.workers.template"


def not_granted(template: WorkerTemplate, granted: TemplateGrant) -> list[str]:
    """Returns the fields that the grant doesn't cover, with their paths."""
    found = [
        *_unlisted("labels", template.labels, granted.labels),
        *_unlisted("annotations", template.annotations, granted.annotations),
        *nodes_not_granted(template, granted),
    ]
    if template.affinity is not None and not granted.affinity:
        found.append("affinity")
    if template.priority_class_name is not None and template.priority_class_name not in granted.priority_classes:
        found.append(f"priorityClassName ({template.priority_class_name})")
    if template.resources is not None:
        found += _resources(template.resources, granted)
    return [f"{PATH}.{field}" for field in found]


def nodes_not_granted(asked: WorkerTemplate | Spark, granted: TemplateGrant | AuditGrant) -> Iterator[str]:
    """Yields the fields about nodes that the grant doesn't cover, with their paths below the object that has them."""
    yield from _unlisted("nodeSelector", asked.node_selector, granted.node_selectors)
    for n, toleration in enumerate(asked.tolerations or ()):
        if toleration.key is None or toleration.key not in granted.tolerations:
            yield f"tolerations[{n}] ({toleration.key or 'every taint'})"


def _unlisted(field: str, given: Mapping[str, str] | None, listed: Iterable[str]) -> list[str]:
    return [f"{field}[{key}]" for key in sorted(set(given or ()) - set(listed))]


def _resources(given: ResourceRequirements, granted: TemplateGrant) -> Iterator[str]:
    most = {"cpu": granted.max_cpu, "memory": granted.max_memory}
    for field, amounts in (("requests", given.requests or {}), ("limits", given.limits or {})):
        for name, amount in sorted(amounts.items()):
            if name not in most:
                yield f"resources.{field}[{name}]"
            elif not _within(amount, most[name]):
                yield f"resources.{field}[{name}] ({amount}, at most {most[name]})"
            elif field == "limits" and quantity(amount) == 0:
                yield f"resources.limits[{name}] ({amount} is no limit, at most {most[name]})"
    if "memory" not in (given.limits or {}):
        yield f"resources.limits without memory (at most {granted.max_memory})"


def _within(amount: Quantity, most: Quantity) -> bool:
    number, limit = quantity(amount), quantity(most)
    return number is not None and limit is not None and 0 <= number <= limit
