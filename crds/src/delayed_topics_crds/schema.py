"""Converts the JSON schema of a model into the structural OpenAPI schema that a CRD needs."""

from typing import Any

from delayed_topics_crds.base import RULES, JsonSchema, Resource

# The keywords that a structural schema may have, in the order in which they are written.
_KEYWORDS = (
    "description",
    "type",
    "format",
    "enum",
    "default",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "required",
    "properties",
    "additionalProperties",
    "items",
    RULES,
)


def structural(model: type[Resource]) -> JsonSchema:
    """Returns the schema of a whole resource.

    Raises ValueError if a structural schema can't express the model.
    """
    raw = model.model_json_schema(by_alias=True)
    schema = _node(raw, raw.get("$defs", {}))
    # The API server knows the first three fields, and allows no descriptions of them other than its own.
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": schema["properties"]["spec"],
        # Until the operator has seen a resource, tools that compare generations, such as kstatus, must see that it is not current.
        "status": {"default": {"observedGeneration": -1}, **schema["properties"]["status"]},
    }
    schema["required"] = ["spec"]
    return schema


def _node(raw: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    raw = _resolved(raw, definitions)
    node: JsonSchema = {key: raw[key] for key in _KEYWORDS if key in raw}
    if "const" in raw:
        node["enum"] = [raw["const"]]
    if node.get("type") == "integer":
        node["format"] = "int64"
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if "default" in node:
        node["default"] = _without_none(node["default"])
        if node["default"] in (None, [], {}):
            del node["default"]
    if "properties" in node:
        node["properties"] = {name: _node(value, definitions) for name, value in node["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            node[inner] = _node(node[inner], definitions)
        elif inner in node:  # a boolean, from extra="forbid"; a CRD expresses this by leaving the keyword out
            del node[inner]
    unknown = raw.keys() - {*_KEYWORDS, "title", "const", "$defs"}
    if unknown or not ("type" in node or "x-kubernetes-int-or-string" in node):
        raise ValueError(f"a structural schema can't express this: {raw}")
    return {key: node[key] for key in _KEYWORDS if key in node}


def _resolved(raw: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    """Resolves `$ref`, and removes the null that only says that the field is optional. Outer keywords take precedence over inner ones."""
    while "$ref" in raw or "anyOf" in raw:
        outer = {key: value for key, value in raw.items() if key not in ("$ref", "anyOf")}
        if "$ref" in raw:
            inner = definitions[raw["$ref"].rpartition("/")[2]]
        else:
            choices = [choice for choice in raw["anyOf"] if choice != {"type": "null"}]
            if len(choices) != 1:
                raise ValueError(f"a structural schema can't offer a choice: {raw}")
            inner = choices[0]
        rules = [*inner.get(RULES, ()), *outer.get(RULES, ())]
        raw = {**inner, **outer, **({RULES: rules} if rules else {})}
    return raw


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return value
