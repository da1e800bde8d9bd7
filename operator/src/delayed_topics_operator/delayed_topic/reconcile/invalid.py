"""Handles a resource that the API server accepted and the operator can't read, because another version of the CRD is installed. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from delayed_topics_core.reasons import Reason
from pydantic import ValidationError

from delayed_topics_operator.delayed_topic.reconcile.failures import not_ready
from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.plan import Notice, Plan, RemoveFinalizer
from delayed_topics_operator.values.validation import in_words

_FOR_DELETION = ("topic", "connectionRef", "deletionPolicy")


def reconcile_invalid(raw: Mapping[str, Any], error: ValidationError | SpecInvalid, now: datetime) -> Plan:
    """Reports what is wrong, and leaves everything that was made for an earlier spec as it is. If the resource is being deleted, the
    finalizer is removed."""
    message = in_words(error)
    meta = raw["metadata"]
    if meta.get("deletionTimestamp"):
        if FINALIZER not in meta.get("finalizers", ()):
            return Plan()
        notice = Notice(
            type="Warning",
            reason=Reason.SPEC_INVALID,
            message=f"{message}. Everything of this resource in Kafka stays there",
        )
        return Plan(actions=(RemoveFinalizer(),), notices=(notice,))
    return Plan(status=not_ready(raw, Reason.SPEC_INVALID, message, now))


def enough_to_delete(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the resource with only those fields of its spec that say what is to be deleted, and how."""
    spec = {key: value for key, value in (raw.get("spec") or {}).items() if key in _FOR_DELETION}
    return {**raw, "spec": {**spec, "delaySeconds": [0]}, "status": {}}
