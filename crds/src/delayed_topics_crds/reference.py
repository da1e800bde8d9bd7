"""docs/reference.md: every field of every resource, from the same models as the CRDs."""

import json
from collections.abc import Iterator
from typing import Any

from delayed_topics_crds.base import RULES, JsonSchema
from delayed_topics_crds.kinds import API_VERSION, CATEGORY, KINDS, Kind
from delayed_topics_crds.schema import structural

_HEADER = f"""<!-- Generated from the models in crds/ by `python -m delayed_topics_crds generate`; changes go there. -->
# Resource reference

All resources are of `{API_VERSION}` and of the category `{CATEGORY}` (`kubectl get {CATEGORY}`). Numbers carry their unit
in their name. Limits are checked by the API server when a manifest is applied; a field that doesn't exist is refused by
its strict validation, kubectl's default. Fields of Kubernetes' own types (affinity, label selectors, resources,
tolerations) mean what they mean in a Pod and aren't listed.
"""

# Kubernetes' own types: their fields are Kubernetes' documentation.
_KUBERNETES_TYPES = ("affinity", "namespaceSelector", "resources", "tolerations")


def reference() -> str:
    """The whole page."""
    return "\n".join([_HEADER, *(_section(kind) for kind in KINDS.values())])


def _section(kind: Kind) -> str:
    schema = structural(kind.model)
    scope = "namespaced" if kind.namespaced else "cluster-scoped"
    columns = ", ".join(f"{column.name}{' (wide)' if column.wide else ''}" for column in kind.columns)
    lines = [
        f"## {kind.name}",
        "",
        schema["description"],
        "",
        f"{scope.capitalize()}, short name `{kind.short_name}`. Columns of `kubectl get`: {columns}.",
        "",
    ]
    if RULES in schema:
        lines += [*(f"* {rule['message']}" for rule in schema[RULES]), ""]
    for part in ("spec", "status"):
        lines += [f"### {kind.name} {part}", "", *_table(schema["properties"][part], with_defaults=part == "spec"), ""]
    return "\n".join(lines)


def _table(schema: JsonSchema, *, with_defaults: bool) -> Iterator[str]:
    if with_defaults:
        yield "| field | type | default | limits | meaning |"
        yield "|---|---|---|---|---|"
    else:
        yield "| field | type | meaning |"
        yield "|---|---|---|"
    rules = schema.get(RULES, [])
    for path, field, required in _fields(schema, ""):
        meaning = _cell(field.get("description", ""))
        if not with_defaults:
            choices = f" One of {_choices(field)}." if "enum" in field else ""
            yield f"| `{path}` | {_type(field)} | {meaning}{choices} |"
            continue
        own = [rule["message"] for rule in rules if rule.get("fieldPath") == f".{path}"]
        yield f"| `{path}` | {_type(field)} | {_default(field, required)} | {_limits(field, own)} | {meaning} |"
    for rule in rules:
        if "fieldPath" not in rule:
            yield f"\nThe whole spec {rule['message']}."


def _fields(schema: JsonSchema, prefix: str) -> Iterator[tuple[str, JsonSchema, bool]]:
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, field, name in schema.get("required", ())
        if name in _KUBERNETES_TYPES:
            continue
        if field.get("type") == "array":
            yield from _fields(field["items"], f"{path}[].")
        else:
            yield from _fields(field, f"{path}.")


def _type(field: JsonSchema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    return "time" if field.get("format") == "date-time" else str(field["type"])


def _default(field: JsonSchema, required: bool) -> str:
    if required:
        return "required"
    if "default" not in field or field.get("type") == "object":
        return ""
    return f"`{json.dumps(field['default'])}`"


def _limits(field: JsonSchema, own: list[str]) -> str:
    says = [f"one of {_choices(field)}"] if "enum" in field else []
    says += own + [rule["message"] for rule in field.get(RULES, ())]
    if field.get("type") == "array":
        entry: dict[str, Any] = field["items"]
        says += [f"each {rule['message']}" for rule in entry.get(RULES, ()) if entry["type"] != "object"]
    return _cell("; ".join(says))


def _choices(field: JsonSchema) -> str:
    return ", ".join(f"`{choice}`" for choice in field["enum"])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
