"""Percentiles of lateness, from counts in buckets."""

from collections.abc import Iterable, Mapping
from typing import Final

PERCENTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


def percentiles(buckets: Iterable[tuple[int, int]]) -> dict[str, int]:
    """Returns the percentiles in milliseconds, by name. `buckets` has the lower bound of each bucket in milliseconds, and its count.

    A percentile is at most 3 % below the true value. The result is empty if nothing was counted.
    """
    ordered = sorted(buckets)
    total = sum(count for _, count in ordered)
    found: dict[str, int] = {}
    seen = 0
    for bound, count in ordered:
        seen += count
        for name, share in PERCENTILES.items():
            if name not in found and seen >= share * total:
                found[name] = bound
    return found
