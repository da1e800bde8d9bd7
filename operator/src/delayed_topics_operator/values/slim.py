"""Reduces objects to what the operator reads of them, because anyone who may create an object can fill the rest. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from delayed_topics_crds import GROUP, KINDS

from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.field_managers import AUDITS_FIELD_MANAGER, ELSEWHERE_FIELD_MANAGER, FIELD_MANAGER
from delayed_topics_operator.values.manifest import Manifest

MAX_SPEC_CHARACTERS = 65_536
"""A hundred times a usual spec. Only a worker template can be as large."""
TOO_LARGE = "too large"
"""No field of a CRD and no finalizer can have this name."""
MAX_ANNOTATION_CHARACTERS = 4096
MAX_ANNOTATIONS = 20
MAX_FINALIZERS = 20
MAX_OWNERS = 10
MAX_OBJECT_BYTES = 2 * MAX_SPEC_CHARACTERS
"""Of an object of another kind, as it is in memory."""
MAX_LARGE_OBJECT_BYTES = 524_288
"""Of a Secret: a bundle with the certificates of all public authorities has 300,000 bytes in base64. Of a StatefulSet: it contains a
template, of which each character may take four bytes."""
MAX_FIELDS = 100
MAX_FIELD_CHARACTERS = 200
_SMALL_CHARACTERS = 1024


def slim(manifest: Manifest) -> Manifest:
    """Returns the object without the annotations of others, with only those parts of `managedFields` that say what the operator wrote, with
    few owners, and, of our own kinds, without labels. The result must never be written back as a whole.

    Of a spec that is too large, and of too many finalizers, only what is small is left, with an entry that says so.
    """
    meta = dict(manifest["metadata"])
    if "annotations" in meta:
        meta["annotations"] = dict(islice(_annotations(meta["annotations"] or {}), MAX_ANNOTATIONS))
    if "managedFields" in meta:
        meta["managedFields"] = list(islice(_managers(meta["managedFields"] or ()), MAX_FIELDS))
    if "finalizers" in meta:
        meta["finalizers"] = _finalizers(meta["finalizers"] or ())
    if "ownerReferences" in meta:
        meta["ownerReferences"] = _owners(meta["ownerReferences"] or ())
    kind = KINDS.get(manifest["kind"])
    if kind is None:
        return {**manifest, "metadata": meta}
    meta.pop("labels", None)
    spec = manifest.get("spec") or {}
    if kind.namespaced and len(json.dumps(spec)) > MAX_SPEC_CHARACTERS:
        small = {key: value for key, value in spec.items() if len(json.dumps(value)) <= _SMALL_CHARACTERS}
        return {**manifest, "metadata": meta, "spec": {**small, TOO_LARGE: True}}
    return {**manifest, "metadata": meta}


def bounded(manifest: Manifest) -> Manifest:
    """Returns the object. If one of another kind is too large, it lacks its large fields, which count as drift if the operator has written
    them. For what is kept in memory: the window of an audit, for example, is larger."""
    kind = manifest["kind"]
    most = MAX_LARGE_OBJECT_BYTES if kind in ("Secret", "StatefulSet") else MAX_OBJECT_BYTES
    # if a namespace had no labels, it might be granted more
    if kind in KINDS or kind == "Namespace" or _bytes(manifest) <= most:
        return manifest
    labels = {
        key: value
        for key, value in (manifest["metadata"].get("labels") or {}).items()
        if key.startswith((f"{GROUP}/", "app.kubernetes.io/"))
    }
    contents = {field: _small(manifest[field]) for field in ("data", "binaryData", "spec") if manifest.get(field)}
    if kind == "StatefulSet":
        contents.setdefault("spec", {}).setdefault("template", {"metadata": {}, "spec": {"containers": []}})
    return {**manifest, "metadata": {**manifest["metadata"], "labels": _small(labels)}, **contents}


def _finalizers(given: Sequence[str]) -> list[str]:
    if len(given) <= MAX_FINALIZERS:
        return list(given)
    return [TOO_LARGE, *([FINALIZER] if FINALIZER in given else [])]


def _owners(given: Iterable[Manifest]) -> list[Manifest]:
    """Returns the first owners, those of our own kinds before all others."""
    small = (owner for owner in given if _bytes(owner) <= _SMALL_CHARACTERS)
    return sorted(small, key=lambda owner: owner.get("kind") not in KINDS)[:MAX_OWNERS]


def _small(fields: Mapping[str, Any]) -> Manifest:
    small = (
        (key, value)
        for key, value in fields.items()
        if len(key) <= MAX_FIELD_CHARACTERS and _bytes(value) <= _SMALL_CHARACTERS
    )
    return dict(islice(small, MAX_FIELDS))


def _bytes(value: Any) -> int:
    """Returns about how much memory the value takes. One character can make each of a text take four bytes."""
    text = json.dumps(value, ensure_ascii=False)
    return len(text) * (1 if text.isascii() else 4)


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
