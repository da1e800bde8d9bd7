"""From a model's JSON schema to the structural OpenAPI schema that a CRD needs."""

from typing import Any

from delayed_topics_crds.base import RULES, JsonSchema, Resource

# What a structural schema may hold, in the order in which it is written.
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
    """The schema of a whole resource.

    Raises ValueError where the model says something that a structural schema can't.
    """
    raw = model.model_json_schema(by_alias=True)
    schema = _node(raw, raw.get("$defs", {}))
    # The API server knows these; it allows no description of them other than its own.
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": schema["properties"]["spec"],
        # What nobody has looked at yet is not as it should be: whoever compares generations, as kstatus does, sees that.
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
        elif inner in node:  # true or false: extra="forbid", which a CRD says by leaving it out
            del node[inner]
    unknown = raw.keys() - {*_KEYWORDS, "title", "const", "$defs"}
    if unknown or not ("type" in node or "x-kubernetes-int-or-string" in node):
        raise ValueError(f"a structural schema can't express this: {raw}")
    return {key: node[key] for key in _KEYWORDS if key in node}


def _resolved(raw: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    """Without `$ref` and without the null that only means "may be left out"; what stands outside wins."""
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
