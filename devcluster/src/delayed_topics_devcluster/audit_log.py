"""Reads from the audit log of an API server which rights its users have used, and which they lacked."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Right", "missed", "used"]

REFUSAL = re.compile(r'User "(.+?)" cannot (\w+) resource "(.+?)" in API group "(.*?)"')


class Right(NamedTuple):
    """A permission, as a rule of RBAC grants it. `group` is empty for the core API; `resource` may name a subresource, as in
    `pods/status`."""

    group: str
    resource: str
    verb: str


def used(log: Path, user: str, *, begin: int = 0) -> Iterator[Right]:
    """Yields the rights that requests of `user` have used, in the order of the requests. A server-side apply that creates an object
    uses two: patch and create. `begin`: how many bytes of the log to skip."""
    for answered in _answered(log, user, begin):
        about = answered.get("objectRef", {})
        resource = "/".join(part for part in (about.get("resource"), about.get("subresource")) if part)
        code = answered["responseStatus"]["code"]
        ended_watch = answered["verb"] == "watch" and answered["stage"] == "ResponseComplete"
        # a watch that ends after `begin` may belong to a client that was killed before `begin`
        if resource and code != 403 and not ended_watch:
            right = Right(about.get("apiGroup", ""), resource, answered["verb"])
            yield right
            if right.verb == "patch" and code == 201:
                yield right._replace(verb="create")


def missed(log: Path, user: str, *, begin: int = 0, unready: Sequence[range] = ()) -> Iterator[Right]:
    """Yields the rights whose lack made the server refuse requests of `user`, in the order of the requests. `begin`: as in `used`.
    `unready`: byte ranges to skip, written before the server was ready: it answers requests before it has read roles and bindings."""
    for answered in _answered(log, user, begin, unready):
        found = REFUSAL.search(answered["responseStatus"].get("message", ""))
        if found is not None:
            _, verb, resource, group = found.groups()
            yield Right(group, resource, verb)


def _answered(log: Path, user: str, begin: int, unready: Sequence[range] = ()) -> Iterator[dict[str, Any]]:
    """Yields the log's entries for requests of `user`. A watch has two entries: one when it begins and one when it ends."""
    with log.open("rb") as lines:
        end = lines.seek(begin)
        for line in lines:
            at, end = end, end + len(line)
            # The server may not have finished writing the last line.
            if not line.endswith(b"\n") or user.encode() not in line or any(at in before for before in unready):
                continue
            entry = json.loads(line)
            if entry["user"]["username"] == user:
                yield entry
