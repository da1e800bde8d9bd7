"""The table that an audit of a chain hands on to the next audit, as the registry and the frozen window refer to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """A table that an audit of a chain has written for the next one: the name of its folder, and the hash that the reader verifies."""

    folder: str
    sha256: str


def decode_carried(body: Mapping[str, Any] | None) -> Carried | None:
    """Raises KeyError, TypeError."""
    return Carried(folder=body["folder"], sha256=body["sha256"]) if body else None
