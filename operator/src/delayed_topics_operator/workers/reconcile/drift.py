"""Compares live objects with the manifests that were applied. Pure.

The API server fills in defaults, and other writers add fields of their own. An object has drifted only if a field of the manifest is
missing or has another value.
"""

from collections.abc import Sequence
from typing import Any

from delayed_topics_operator.values.quantity import quantity

MERGE_KEYS = ("uid", "mountPath", "containerPort", "topologyKey", "name", "port")
"""The keys by which Kubernetes distinguishes the entries of a list of objects. The first key that all entries have with different values
counts. Lists without such a key are compared in order, for example those of affinity, where two terms may have the same topologyKey."""


def drifted(wanted: Any, live: Any, path: str = "") -> str | None:
    """Returns the path of the first field of `wanted` that has another value in `live`, or None if there is none."""
    if isinstance(wanted, dict):
        if not isinstance(live, dict):
            return None if not wanted and live is None else path
        for key, value in wanted.items():
            if key not in live and _empty(value):
                continue  # the API server omits empty fields
            found = drifted(value, live.get(key), f"{path}.{key}")
            if found:
                return found
        return None
    if isinstance(wanted, list | tuple):
        if not isinstance(live, list):
            return None if not wanted and live is None else path
        key = _merge_key(wanted)
        if key is not None:
            return _drifted_by(key, wanted, live, path)
        if len(wanted) != len(live):
            return path
        return next(
            (
                found
                for i, (w, x) in enumerate(zip(wanted, live, strict=True))
                if (found := drifted(w, x, f"{path}[{i}]"))
            ),
            None,
        )
    if wanted == live:
        return None
    if any(part in path for part in (".requests.", ".limits.")):
        left, right = quantity(wanted), quantity(live)
        return None if left is not None and left == right else path
    return path


def _merge_key(wanted: Sequence[Any]) -> str | None:
    return next((key for key in MERGE_KEYS if wanted and _identifies(key, wanted)), None)


def _identifies(key: str, wanted: Sequence[Any]) -> bool:
    values = [entry[key] for entry in wanted if isinstance(entry, dict) and key in entry]
    return len({str(value) for value in values}) == len(wanted)


def _drifted_by(key: str, wanted: Sequence[Any], live: Sequence[Any], path: str) -> str | None:
    """Compares lists by this key. Entries that others added (a sidecar, a variable) can't be removed by applying, and are ignored, even if
    they have the same key as an entry of the manifest."""
    for i, entry in enumerate(wanted):
        same = [found for found in live if isinstance(found, dict) and found.get(key) == entry[key]]
        at = [drifted(entry, found, f"{path}[{i}]") for found in same or ({},)]
        if None not in at:
            return at[0]
    return None


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, dict | list | tuple | str) and len(value) == 0)
