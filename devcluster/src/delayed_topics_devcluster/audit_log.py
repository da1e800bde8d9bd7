"""Which rights the users of an API server have used, and which they lacked, by its audit log."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Right", "missed", "used"]

REFUSAL = re.compile(r'User "(.+?)" cannot (\w+) resource "(.+?)" in API group "(.*?)"')


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
        ended_watch = answered["verb"] == "watch" and answered["stage"] == "ResponseComplete"
        # the end of a watch may be that of a client which was killed before `begin`
        if resource and code != 403 and not ended_watch:
            right = Right(about.get("apiGroup", ""), resource, answered["verb"])
            yield right
            if right.verb == "patch" and code == 201:
                yield right._replace(verb="create")


def missed(log: Path, user: str, *, begin: int = 0, unready: Sequence[range] = ()) -> Iterator[Right]:
    """The rights for lack of which requests of `user` were refused, in the order of the requests. `begin` as above. `unready`: bytes
    that the server wrote before it was ready: it answers before it has read its roles and who has them."""
    for answered in _answered(log, user, begin, unready):
        found = REFUSAL.search(answered["responseStatus"].get("message", ""))
        if found is not None:
            _, verb, resource, group = found.groups()
            yield Right(group, resource, verb)


def _answered(log: Path, user: str, begin: int, unready: Sequence[range] = ()) -> Iterator[dict[str, Any]]:
    """A watch is there twice: when it begins and when it ends."""
    with log.open("rb") as lines:
        end = lines.seek(begin)
        for line in lines:
            at, end = end, end + len(line)
            # The last line may still be written to.
            if not line.endswith(b"\n") or user.encode() not in line or any(at in before for before in unready):
                continue
            entry = json.loads(line)
            if entry["user"]["username"] == user:
                yield entry
