"""Generates docs/reference.md, with every field of every resource, from the same models as the CRDs."""

import json
import re
from collections.abc import Iterator
from typing import Any

from delayed_topics_crds.base import RULES, JsonSchema
from delayed_topics_crds.kinds import API_VERSION, CATEGORY, KINDS, Kind
from delayed_topics_crds.schema import structural

_HEADER = f"""<!-- Generated from the models in crds/ by `python -m delayed_topics_crds generate`; changes go there. -->
# Resource reference

This page lists every field of every resource, for people who write manifests or read a status. `kubectl explain` shows the
same descriptions, for example `kubectl explain dtopic.spec.workers`.

All resources have the API version `{API_VERSION}` and the category `{CATEGORY}`, so `kubectl get {CATEGORY}`
shows all of them. The name of a number ends with its unit. The API server checks the limits when you apply a manifest. With
kubectl's default, strict validation, it also refuses a field that doesn't exist. Fields of Kubernetes' own types (affinity,
label selectors, resources, tolerations) mean the same as in a Pod and are not listed.
"""

_NEXT = "Next: [concepts](concepts.md), [glossary](glossary.md), [versions](versions.md).\n"

_CODE = (
    r"'(?P<quoted>[^']+)'",
    r"https?://[^\s,]*",
    r"[a-zA-Z]\w*(?:\.\w+)+(?:[:/]\w+)*",  # spec.topic, kafka.example.com:9092
    "host:port",
)
"""Patterns for the parts of a rule's message that are code, besides the names of the fields that the rule checks."""

# The page does not list the fields of Kubernetes' own types, because Kubernetes documents them.
_KUBERNETES_TYPES = ("affinity", "namespaceSelector", "resources", "tolerations")


def reference() -> str:
    """Returns the whole page."""
    return "\n".join([_HEADER, *(_section(kind) for kind in KINDS.values()), _NEXT])


def _section(kind: Kind) -> str:
    schema = structural(kind.model)
    scope = "namespaced" if kind.namespaced else "cluster-scoped"
    columns = ", ".join(f"{column.name}{' (wide)' if column.wide else ''}" for column in kind.columns)
    lines = [
        f"## {kind.name}",
        "",
        schema["description"],
        "",
        f"The resource is {scope}, and its short name is `{kind.short_name}`. `kubectl get` shows the columns {columns}.",
        "",
    ]
    if RULES in schema:
        lines += [*(f"* {_sentence(rule)}" for rule in schema[RULES]), ""]
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
        own = [rule for rule in rules if rule.get("fieldPath") == f".{path}"]
        yield f"| `{path}` | {_type(field)} | {_default(field, required)} | {_limits(field, own)} | {meaning} |"
    for rule in rules:
        if "fieldPath" not in rule:
            yield f"\n{_sentence(rule, 'the whole spec ')}"


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


def _limits(field: JsonSchema, own: list[JsonSchema]) -> str:
    says = [f"One of {_choices(field)}."] if "enum" in field else []
    says += [_sentence(rule) for rule in (*own, *field.get(RULES, ()))]
    if field.get("type") == "array":
        entry: dict[str, Any] = field["items"]
        says += [_sentence(rule, "each ") for rule in entry.get(RULES, ()) if entry["type"] != "object"]
    return _cell(" ".join(says))


def _sentence(rule: JsonSchema, subject: str = "") -> str:
    """Returns the API server's message for a rule as a sentence, with names of fields and examples formatted as code."""
    fields: list[str] = re.findall(r"\bself\.(\w+)", rule["rule"])
    code = rf"(?<!\w)(?:{'|'.join((*_CODE, *fields))})(?!\w)"
    text = re.sub(code, lambda found: f"`{found['quoted'] or found[0]}`", f"{subject}{rule['message']}")
    return f"{text[0].upper()}{text[1:]}."


def _choices(field: JsonSchema) -> str:
    return ", ".join(f"`{choice}`" for choice in field["enum"])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
