"""Which rights the users of an API server have used, and which they lacked, by its audit log."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Right", "missed", "used"]

REFUSAL = re.compile(r'User "(.+?)" cannot (\w+) resource "(.+?)" in API group "(.*?)"')
ROLES_UNKNOWN = re.compile(r'clusterrole\.rbac\.authorization\.k8s\.io "system:discovery" not found')
"""An API server that has just started answers before it has read its roles, that of everybody among them."""


class Right(NamedTuple):
    """What a rule of RBAC allows. `group` is empty for the core API; `resource` may have a subresource, as in `pods/status`."""

    group: str
    resource: str
    verb: str


def used(log: Path, user: str, *, begin: int = 0) -> Iterator[Right]:
    """The rights by which requests of `user` were allowed, in the order of the requests. A server-side apply that makes an object
    uses two: patch and create. `begin`: how many bytes of the log to skip."""
    for answered in _answered(log, user, begin):
        about = answered.get("objectRef", {})
        resource = "/".join(part for part in (about.get("resource"), about.get("subresource")) if part)
        code = answered["responseStatus"]["code"]
        if resource and code != 403:
            right = Right(about.get("apiGroup", ""), resource, answered["verb"])
            yield right
            if right.verb == "patch" and code == 201:
                yield right._replace(verb="create")


def missed(log: Path, user: str, *, begin: int = 0) -> Iterator[Right]:
    """The rights for lack of which requests of `user` were refused, in the order of the requests. `begin` as above."""
    for answered in _answered(log, user, begin):
        message = answered["responseStatus"].get("message", "")
        found = REFUSAL.search(message)
        if found is not None and not ROLES_UNKNOWN.search(message):
            _, verb, resource, group = found.groups()
            yield Right(group, resource, verb)


def _answered(log: Path, user: str, begin: int) -> Iterator[dict[str, Any]]:
    """A watch is there twice: when it begins and when it ends."""
    with log.open() as lines:
        lines.seek(begin)
        for line in lines:
            # The last line may still be written to.
            if line.endswith("\n") and user in line and (entry := json.loads(line))["user"]["username"] == user:
                yield entry
