"""Reads resources from the API server, and puts into words what can't be parsed or carried out, or is ignored."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from delayed_topics_crds import API_VERSION, KINDS
from delayed_topics_crds.base import Resource
from pydantic import ValidationError

from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator.values.plan import Notice
from delayed_topics_operator.values.slim import MAX_SPEC_CHARACTERS, TOO_LARGE

SHOWN = 5
R = TypeVar("R", bound=Resource)


def read(model: type[R], raw: Mapping[str, Any]) -> R:
    """Returns the resource. Fields that this version does not have are ignored: CRDs of a newer version may even give each resource such a
    field, by a default. Raises ValidationError, SpecInvalid."""
    if _is_too_large(raw):
        raise SpecInvalid(
            f"spec has more than {MAX_SPEC_CHARACTERS} characters, which the operator does not read. Shorten it"
        )
    whole = {"apiVersion": API_VERSION, "kind": model.__name__, **raw}
    return model.model_validate(whole, by_alias=True, by_name=False, extra="ignore")


def ignored(raw: Mapping[str, Any]) -> tuple[Notice, ...]:
    """Returns what to tell people about the fields that `read` ignores."""
    try:
        KINDS[raw["kind"]].model.model_validate(raw, by_alias=True, by_name=False)
    except ValidationError as e:
        paths = [_path(error["loc"]) for error in e.errors(include_url=False) if error["type"] == "extra_forbidden"]
        if paths and not _is_too_large(raw):
            message = (
                f"the operator ignores {_some(paths, ', ')}, because the installed CRDs are newer than the operator. Upgrade the operator "
                "to the version of the CRDs"
            )
            return (Notice(type="Warning", reason="FieldsIgnored", message=message, of_installation=True),)
    return ()


def in_words(error: ValidationError | SpecInvalid) -> str:
    return f"this resource is invalid: {problems(error)}" if isinstance(error, ValidationError) else str(error)


def problems(error: ValidationError | SpecInvalid) -> str:
    if isinstance(error, SpecInvalid):
        return str(error)
    return _some([f"{_path(e['loc'])}: {e['msg']}" for e in error.errors(include_url=False)], "; ")


def _is_too_large(raw: Mapping[str, Any]) -> bool:
    return TOO_LARGE in (raw.get("spec") or {})


def _path(loc: Iterable[int | str]) -> str:
    return ".".join(str(part) for part in loc)


def _some(every: list[str], separator: str) -> str:
    more = f"{separator}and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return f"{separator.join(every[:SHOWN])}{more}"
