"""Audits of one DelayedTopic take turns: a chain has no forks, later verdicts are of later windows, and a topic is read once at a time."""

from datetime import UTC, datetime

from delayed_topics_crds import parse
from pydantic import ValidationError

from delayed_topics_operator.connection.usage import runs
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.values.manifest import Manifest


class Turns:
    """Whose turn it is. An audit keeps the turn until it has its verdict, even if another one is as old and has a name that comes first. It
    has the turn from when it is asked about here. After a restart of the operator, one that has begun has it: its finalizer, which it gets
    before its window, shows that."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[tuple[str, str], str] = {}
        """By DelayedTopic the uid of an audit."""

    def ahead(self, audit: Manifest) -> str | None:
        """The name of the audit that `audit` waits for; None: it is its turn now.

        One that waits for the end of its window holds up no other, nor does one whose spec can't be followed.
        """
        [topic] = _audited(audit)
        waiting = {
            str(other["metadata"]["uid"]): other
            for other in sorted(self._store.by_index("DelayedTopicAudit", _audited, topic), key=_place)
            if _undecided(other) and _may_begin(other)
        }
        if not waiting:
            self._held.pop(topic, None)
            return None
        if self._held.get(topic) not in waiting:
            self._held[topic] = next(iter(waiting))
        held = self._held[topic]
        return None if held == audit["metadata"]["uid"] else str(waiting[held]["metadata"]["name"])


def _audited(audit: Manifest) -> tuple[tuple[str, str]]:
    """For `Store.by_index`: the DelayedTopic that it is of."""
    return ((str(audit["metadata"]["namespace"]), str(audit["spec"]["delayedTopicRef"]["name"])),)


def _undecided(audit: Manifest) -> bool:
    return "verdict" not in (audit.get("status") or {}) and "deletionTimestamp" not in audit["metadata"]


def _may_begin(audit: Manifest) -> bool:
    try:
        end = parse("DelayedTopicAudit", audit).spec.window.to
    except ValidationError:
        return False  # it says so itself
    return end is None or end <= datetime.now(UTC)


def _place(audit: Manifest) -> tuple[bool, str, str]:
    """One that has begun comes before all others, then the oldest does."""
    meta = audit["metadata"]
    return not runs(audit), str(meta.get("creationTimestamp") or ""), str(meta["name"])
