"""Reduces objects to what the operator reads of them, because anyone who may create an object can fill the rest. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from delayed_topics_crds import GROUP, KINDS

from delayed_topics_operator.values.field_managers import AUDITS_FIELD_MANAGER, ELSEWHERE_FIELD_MANAGER, FIELD_MANAGER
from delayed_topics_operator.values.manifest import Manifest

MAX_SPEC_CHARACTERS = 65_536
"""A hundred times a usual spec. Only a worker template can be as large."""
TOO_LARGE = "too large"
"""No field of a CRD can have this name."""
MAX_ANNOTATION_CHARACTERS = 4096
MAX_FIELDS = 100
MAX_FIELD_CHARACTERS = 200
_SMALL_CHARACTERS = 1024


def slim(manifest: Manifest) -> Manifest:
    """Returns the object without the annotations of others, with only those parts of `managedFields` that say what the operator wrote, and,
    of our own kinds, without labels. The result must never be written back as a whole.

    Of a spec that is too large, only small fields are left, with a field that says so.
    """
    meta = dict(manifest["metadata"])
    if "annotations" in meta:
        meta["annotations"] = dict(_annotations(meta["annotations"] or {}))
    if "managedFields" in meta:
        meta["managedFields"] = list(islice(_managers(meta["managedFields"] or ()), MAX_FIELDS))
    kind = KINDS.get(manifest["kind"])
    if kind is None:
        return {**manifest, "metadata": meta}
    meta.pop("labels", None)
    spec = manifest.get("spec") or {}
    if kind.namespaced and len(json.dumps(spec)) > MAX_SPEC_CHARACTERS:
        small = {key: value for key, value in spec.items() if len(json.dumps(value)) <= _SMALL_CHARACTERS}
        return {**manifest, "metadata": meta, "spec": {**small, TOO_LARGE: True}}
    return {**manifest, "metadata": meta}


def _annotations(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    # one character beyond ASCII can make a whole text take four bytes for each
    return (
        (key, value)
        for key, value in given.items()
        if key.startswith(f"{GROUP}/") and value.isascii() and len(value) <= MAX_ANNOTATION_CHARACTERS
    )


def _managers(entries: Iterable[Mapping[str, Any]]) -> Iterator[Manifest]:
    for entry in entries:
        if entry.get("manager") == FIELD_MANAGER and "subresource" not in entry:
            yield {"manager": FIELD_MANAGER}
        elif entry.get("manager") in (FIELD_MANAGER, AUDITS_FIELD_MANAGER, ELSEWHERE_FIELD_MANAGER):
            status = (entry.get("fieldsV1") or {}).get("f:status") or {}
            fields: Manifest = {name: {} for name in _names(status)}
            if "f:conditions" in fields:
                fields["f:conditions"] = {name: {} for name in _names(status["f:conditions"])}
            written = {"fieldsV1": {"f:status": fields}} if fields else {}
            yield {"manager": entry["manager"], "subresource": entry.get("subresource"), **written}


def _names(fields: Mapping[str, Any]) -> Iterator[str]:
    return (name for name in islice(fields, MAX_FIELDS) if len(name) <= MAX_FIELD_CHARACTERS)
