"""Writes a status, but only if that changes anything.

Conditions are a map by type. Each controller owns its conditions there, with a field manager of its own.
"""

import json
from typing import Any

from delayed_topics_crds import to_dict
from delayed_topics_crds.base import Status

from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.errors import Undeclared, reason_of
from delayed_topics_operator.values.field_managers import FIELD_MANAGER
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import Notice


async def write_status(
    context: ControllerContext, resource: Manifest, status: Status, *, field_manager: str = FIELD_MANAGER
) -> bool:
    """Returns whether the status was written. `resource`: the resource as last known. If the CRD does not have a field of the status, an
    Event says so, because no condition can. Raises KubeError."""
    wanted = as_written(status)
    if wanted_is_live(wanted, resource, field_manager):
        return False
    meta = resource["metadata"]
    body: dict[str, Any] = {
        "apiVersion": resource["apiVersion"],
        "kind": resource["kind"],
        "metadata": {"name": meta["name"], "uid": meta["uid"]},
        "status": wanted,
    }
    if meta.get("namespace"):
        body["metadata"]["namespace"] = meta["namespace"]
    try:
        context.store.put(await context.kube.apply(body, subresource="status", field_manager=field_manager))
    except Undeclared as e:
        await context.recorder.record(resource, Notice(type="Warning", reason=reason_of(e), message=str(e)))
        raise
    return True


def as_written(status: Status) -> dict[str, Any]:
    """Returns the status as JSON values, without empty lists. They would claim a field that another controller may own, and never equal its
    value."""
    return {key: value for key, value in to_dict(status).items() if value != []}


def wanted_is_live(wanted: dict[str, Any], resource: Manifest, field_manager: str) -> bool:
    """Whether the resource has the wanted status. Conditions are compared by type, because those of other managers stand between ours."""
    live = resource.get("status") or {}
    ours = {c["type"]: c for c in wanted.get("conditions", ())}
    theirs = {c["type"]: c for c in live.get("conditions", ())}
    rest = {key: value for key, value in wanted.items() if key != "conditions"}
    fields, conditions = _owned(resource, field_manager)
    return (
        all(theirs.get(kind) == condition for kind, condition in ours.items())
        and all(live.get(key) == value for key, value in rest.items())
        and fields <= wanted.keys()
        and conditions <= ours.keys()
    )


def _owned(resource: Manifest, field_manager: str) -> tuple[set[str], set[str]]:
    """Returns the fields of the status, and the types of conditions, that this manager wrote before."""
    fields: set[str] = set()
    conditions: set[str] = set()
    for entry in resource["metadata"].get("managedFields") or ():
        if entry.get("manager") == field_manager and entry.get("subresource") == "status":
            owned = (entry.get("fieldsV1") or {}).get("f:status", {})
            fields |= {field.removeprefix("f:") for field in owned if field.startswith("f:")}
            keys = (key.removeprefix("k:") for key in owned.get("f:conditions", {}) if key.startswith("k:"))
            conditions |= {json.loads(key)["type"] for key in keys}
    return fields, conditions
