"""The base of all models: naming, strictness, and limits that are declared once.

A limit on a field is an annotation (`limits`, `matches`, `entries`) that checks the value in Python and writes a CEL rule into the CRD. It
is a CEL rule, and not OpenAPI's `minimum`, `pattern` or `minItems`, because its message is written here and tells the user what to do.
The API server refuses a CRD whose rules could cost too much, so a string or list that a CEL rule walks through has an OpenAPI maximum as
well. This is `HEADROOM` times the real limit, so that users normally see the CEL message.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

RULES = "x-kubernetes-validations"
HEADROOM = 2
_DNS_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_KEY = rf"({_DNS_NAME}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"

JsonSchema = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A CEL rule for the API server, used in `rules` of a model or as an annotation of a field.

    `message` contains "must" and says what to do. `field_path` (".topic") names the field to which a model's rule refers.
    """

    cel: str
    message: str
    field_path: str | None = None

    def to_schema(self) -> JsonSchema:
        path = {"fieldPath": self.field_path} if self.field_path else {}
        return {"rule": self.cel, "message": self.message, **path}

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return _with_rules(handler(schema), self)


@dataclass(frozen=True, eq=False)  # hashed by identity: `X | None` hashes the annotations of X
class Checked:
    """Requires that a value satisfies all rules of `checks`. The CRD has the rules in this order, together with the OpenAPI `keywords`, and
    Python calls the functions.

    `inner` is the schema of the value before these checks. Unless set, this is the schema of its type.
    """

    checks: Mapping[Rule, Callable[[Any], bool]]
    keywords: Mapping[str, int] = field(default_factory=dict)
    inner: CoreSchema | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._validate, self.inner or handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {**_with_rules(handler(schema), *self.checks), **self.keywords}

    def _validate(self, value: Any) -> Any:
        for rule, fits in self.checks.items():
            if not fits(value):
                raise ValueError(rule.message)
        return value


def limits(minimum: int, maximum: int, unit: str) -> Checked:
    """Requires an integer from `minimum` to `maximum`, both included. `unit` ends the message ("seconds (30 days)")."""
    rule = Rule(
        cel=f"self >= {minimum} && self <= {maximum}", message=f"must be between {minimum} and {maximum} {unit}"
    )
    return Checked({rule: lambda value: minimum <= value <= maximum}, inner=core_schema.int_schema(strict=True))


def matches(pattern: str, message: str, max_length: int, too_long: str = "", headroom: int = HEADROOM) -> Checked:
    """Requires a string that matches `pattern` as a whole. RE2 and Python must interpret the pattern in the same way."""
    matching = Rule(cel=f"self.matches(r'^({pattern})$')", message=message)
    short = Rule(cel=f"size(self) <= {max_length}", message=too_long or f"must have at most {max_length} characters")
    return Checked(
        {
            matching: lambda value: re.fullmatch(pattern, value) is not None,
            short: lambda value: len(value) <= max_length,
        },
        {"maxLength": headroom * max_length},
    )


def entries(minimum: int, maximum: int, what: str) -> Checked:
    """Requires a list of `minimum` to `maximum` entries, which the message calls `what` ("delays")."""
    if minimum == 0:
        rule = Rule(cel=f"size(self) <= {maximum}", message=f"must list at most {maximum} {what}")
    else:
        rule = Rule(
            cel=f"size(self) >= {minimum} && size(self) <= {maximum}",
            message=f"must list {minimum} to {maximum} {what}",
        )
    return Checked({rule: lambda value: minimum <= len(value) <= maximum}, {"maxItems": HEADROOM * maximum})


def keys(names: tuple[str, ...], why: str) -> Checked:
    """Requires a map without other keys than `names`. `why` ends the message ("the operator controls the other settings")."""
    rule = Rule(
        cel=f"self.all(name, name in {list(names)})",
        message=f"must have no other keys than {', '.join(names)}: {why}",
    )
    return Checked({rule: lambda value: set(value) <= set(names)}, {"maxProperties": HEADROOM * len(names)})


def label_keys(maximum: int, what: str) -> Checked:
    """Requires a map of at most `maximum` entries, which the message calls `what` ("labels"), with keys that Kubernetes allows for labels
    and annotations."""
    few = Rule(cel=f"size(self) <= {maximum}", message=f"must have at most {maximum} {what}")
    legal = Rule(
        cel=f"self.all(key, key.matches(r'^({_LABEL_KEY})$'))",
        message=(
            "must have keys of at most 63 letters, digits, '-', '_' and '.' that begin and end with a letter or digit. A DNS name "
            "and '/' may come first, as in example.com/team"
        ),
    )
    return Checked(
        {
            few: lambda value: len(value) <= maximum,
            legal: lambda value: all(re.fullmatch(_LABEL_KEY, key) for key in value),
        },
        {"maxProperties": HEADROOM * maximum},
    )


@dataclass(frozen=True)
class ListMap:
    """Makes a list a map of its entries by the field `key`, so that several writers can own one entry each."""

    key: str

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {**handler(schema), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.key]}


def _with_rules(schema: JsonSchema, *rules: Rule) -> JsonSchema:
    return {**schema, RULES: [*schema.get(RULES, ()), *(rule.to_schema() for rule in rules)]}


def _whole_second(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC).replace(microsecond=0)
    except OverflowError as e:
        raise ValueError("must be between the years 1 and 9999 in UTC") from e


Time = Annotated[AwareDatetime, AfterValidator(_whole_second)]
"""A point in time as Kubernetes writes it: UTC, whole seconds."""


def _add_rules(schema: JsonSchema, model: type[BaseModel]) -> None:
    rules: tuple[Rule, ...] = getattr(model, "rules", ())
    if rules:
        schema[RULES] = [rule.to_schema() for rule in rules]


class _Model(BaseModel):
    """Models are frozen. Their fields have snake_case names in Python and camelCase names in manifests. The docstring below a field is its
    description in the CRD."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        use_attribute_docstrings=True,
        json_schema_extra=_add_rules,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()


class Spec(_Model):
    """The part that a user writes. An unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


class Status(_Model):
    """The part that the operator writes. Unknown fields, which a newer version may have written, are ignored."""

    model_config = ConfigDict(extra="ignore")


class ObjectMeta(_Model):
    """The part of `metadata` that this project reads. All other fields are kept unchanged."""

    model_config = ConfigDict(extra="allow")

    name: str
    namespace: str | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    finalizers: tuple[str, ...] = ()


class Resource(_Model):
    """A whole object. Subclasses add `kind`, `spec` and `status`."""

    model_config = ConfigDict(extra="forbid")

    api_version: str
    metadata: ObjectMeta
