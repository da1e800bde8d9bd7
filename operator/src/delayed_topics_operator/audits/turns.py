"""The turns of audits of one DelayedTopic. One audit at a time reads a topic, a chain has no forks, and later verdicts are about later
windows."""

from datetime import UTC, datetime

from delayed_topics_crds import DelayedTopicAudit
from pydantic import ValidationError

from delayed_topics_operator.connection.usage import runs
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.validation import read


class Turns:
    """Knows whose turn it is. An audit gets its turn in `ahead`, and keeps it until it has its verdict, even if another one is as old and
    has a name that comes first. After a restart of the operator, an audit that has begun gets the turn. Its finalizer, which is added
    before its window, shows that it has begun."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[tuple[str, str], str] = {}
        """The UID of the audit that has the turn, by DelayedTopic."""

    def ahead(self, audit: Manifest) -> str | None:
        """Returns the name of the audit that `audit` waits for. None: `audit` has the turn.

        An audit that waits for the end of its window holds up no other, and neither does one with an invalid spec.
        """
        [topic] = _audited(audit)
        waiting = {
            str(other["metadata"]["uid"]): other
            for other in sorted(self._store.by_index("DelayedTopicAudit", _audited, topic), key=_sort_key)
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
    """For `Store.by_index`: the DelayedTopic that is audited."""
    return ((str(audit["metadata"]["namespace"]), str(audit["spec"]["delayedTopicRef"]["name"])),)


def _undecided(audit: Manifest) -> bool:
    return "verdict" not in (audit.get("status") or {}) and "deletionTimestamp" not in audit["metadata"]


def _may_begin(audit: Manifest) -> bool:
    try:
        end = read(DelayedTopicAudit, audit).spec.window.to
    except (ValidationError, SpecInvalid):
        return False  # its own conditions say so
    return end is None or end <= datetime.now(UTC)


def _sort_key(audit: Manifest) -> tuple[bool, str, str]:
    """An audit that has begun comes before all others. Of the others, the oldest comes first."""
    meta = audit["metadata"]
    return not runs(audit), str(meta.get("creationTimestamp") or ""), str(meta["name"])
