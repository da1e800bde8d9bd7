"""What all models share: naming, strictness, and limits that are declared once.

A limit on a field is an annotation (`Limits`, `Matches`, `Entries`) that checks in Python and writes a CEL rule into the
CRD. It is CEL and not OpenAPI's `minimum`, `pattern` or `minItems` because a user reads the message: CEL's is ours and
says what to do. Lengths that CEL walks have an OpenAPI maximum as well, since the API server refuses a CRD whose rules
could cost too much; it is `HEADROOM` times the real limit, so that what a user sees is the CEL message.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    """A CEL rule for the API server: in `rules` of a model, or an annotation of a field.

    `message` contains "must" and says what to do. `field_path` (".topic") names the field of a rule on a model.
    """

    cel: str
    message: str
    field_path: str | None = None

    def to_schema(self) -> JsonSchema:
        path = {"fieldPath": self.field_path} if self.field_path else {}
        return {"rule": self.cel, "message": self.message, **path}

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return _with_rule(handler(schema), self)


@dataclass(frozen=True)
class Limits:
    """An integer from `minimum` to `maximum`, both included; `unit` ends the message ("seconds (30 days)")."""

    minimum: int
    maximum: int
    unit: str

    @property
    def rule(self) -> Rule:
        return Rule(
            cel=f"self >= {self.minimum} && self <= {self.maximum}",
            message=f"must be between {self.minimum} and {self.maximum} {self.unit}",
        )

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _checked(
            lambda value: self.minimum <= value <= self.maximum, self.rule, core_schema.int_schema(strict=True)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return _with_rule(handler(schema), self.rule)


@dataclass(frozen=True)
class Matches:
    """A string that matches `pattern` as a whole (an expression that RE2 and Python read alike)."""

    pattern: str
    message: str
    max_length: int
    too_long: str = ""
    headroom: int = HEADROOM

    @property
    def pattern_rule(self) -> Rule:
        return Rule(cel=f"self.matches(r'^({self.pattern})$')", message=self.message)

    @property
    def length_rule(self) -> Rule:
        message = self.too_long or f"must have at most {self.max_length} characters"
        return Rule(cel=f"size(self) <= {self.max_length}", message=message)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        short = _checked(lambda value: len(value) <= self.max_length, self.length_rule, handler(source))
        return _checked(lambda value: re.fullmatch(self.pattern, value) is not None, self.pattern_rule, short)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        both = _with_rule(_with_rule(handler(schema), self.pattern_rule), self.length_rule)
        return {**both, "maxLength": self.headroom * self.max_length}


@dataclass(frozen=True)
class Entries:
    """A list of `minimum` to `maximum` entries, called `what` ("delays") in the message."""

    minimum: int
    maximum: int
    what: str

    @property
    def rule(self) -> Rule:
        if self.minimum == 0:
            return Rule(cel=f"size(self) <= {self.maximum}", message=f"must list at most {self.maximum} {self.what}")
        return Rule(
            cel=f"size(self) >= {self.minimum} && size(self) <= {self.maximum}",
            message=f"must list {self.minimum} to {self.maximum} {self.what}",
        )

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _checked(lambda value: self.minimum <= len(value) <= self.maximum, self.rule, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {**_with_rule(handler(schema), self.rule), "maxItems": HEADROOM * self.maximum}


@dataclass(frozen=True)
class Keys:
    """A map of at most all of `names`, which ends the message with why ("the rest is the operator's")."""

    names: tuple[str, ...]
    why: str

    @property
    def rule(self) -> Rule:
        listed = ", ".join(self.names)
        return Rule(
            cel=f"self.all(name, name in {list(self.names)})",
            message=f"must have no other keys than {listed}: {self.why}",
        )

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _checked(lambda value: set(value) <= set(self.names), self.rule, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {**_with_rule(handler(schema), self.rule), "maxProperties": HEADROOM * len(self.names)}


@dataclass(frozen=True)
class LabelKeys:
    """A map of at most `maximum` entries, called `what` ("labels") in the message, with keys that Kubernetes takes for those of labels
    and annotations."""

    maximum: int
    what: str

    @property
    def rules(self) -> tuple[Rule, Rule]:
        return (
            Rule(cel=f"size(self) <= {self.maximum}", message=f"must have at most {self.maximum} {self.what}"),
            Rule(
                cel=f"self.all(key, key.matches(r'^({_LABEL_KEY})$'))",
                message=(
                    "must have keys of at most 63 letters, digits, '-', '_' and '.' that begin and end with a letter or digit. A DNS name "
                    "and '/' may come first, as in example.com/team"
                ),
            ),
        )

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        few, legal = self.rules
        counted = _checked(lambda value: len(value) <= self.maximum, few, handler(source))
        return _checked(lambda value: all(re.fullmatch(_LABEL_KEY, key) for key in value), legal, counted)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        made = handler(schema)
        for rule in self.rules:
            made = _with_rule(made, rule)
        return {**made, "maxProperties": HEADROOM * self.maximum}


@dataclass(frozen=True)
class ListMap:
    """A list whose entries are told apart by the field `key`, so that several writers can own one entry each."""

    key: str

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {**handler(schema), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.key]}


def _with_rule(schema: JsonSchema, rule: Rule) -> JsonSchema:
    return {**schema, RULES: [*schema.get(RULES, ()), rule.to_schema()]}


def _checked(fits: Callable[[Any], bool], rule: Rule, inner: CoreSchema) -> CoreSchema:
    def check(value: Any) -> Any:
        if not fits(value):
            raise ValueError(rule.message)
        return value

    return core_schema.no_info_after_validator_function(check, inner)


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
    """Frozen; snake_case in Python, camelCase in manifests; a docstring below a field is its description."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        use_attribute_docstrings=True,
        json_schema_extra=_add_rules,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()


class Spec(_Model):
    """What a user writes: a field nobody knows is an error."""

    model_config = ConfigDict(extra="forbid")


class Status(_Model):
    """What the operator writes: fields of a newer version are ignored."""

    model_config = ConfigDict(extra="ignore")


class ObjectMeta(_Model):
    """The part of `metadata` that is read; the rest is kept as it came."""

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
    """A whole object: the subclasses add kind, spec and status."""

    model_config = ConfigDict(extra="forbid")

    api_version: str
    metadata: ObjectMeta
