"""Quantities of Kubernetes as numbers. `1000m` and `1` are equal, and the API server writes the shorter one."""

from decimal import Decimal
from typing import Any

from kubernetes.utils import parse_quantity

MIN_DIGIT, MAX_DIGIT = -30, 18
"""Powers of ten that the first digit of a quantity may stand for; Kubernetes itself caps them at 2^63."""


def quantity(value: Any) -> Decimal | None:
    """Returns the number. None: it is no quantity, or more or less than any machine has (a tenant's `1e99999999` has a hundred million
    digits as an integer)."""
    try:
        exact: Decimal = parse_quantity(str(value))  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return exact if exact.is_finite() and MIN_DIGIT <= exact.adjusted() <= MAX_DIGIT else None
