"""The turns of audits of one DelayedTopic. One audit at a time reads a topic, a chain has no forks, and later verdicts are about later
windows."""

from collections.abc import Callable
from datetime import UTC, datetime

from delayed_topics_crds import DelayedTopicAudit
from delayed_topics_crds.audit import Window
from pydantic import ValidationError

from delayed_topics_operator.audits.reconcile.auditable import early
from delayed_topics_operator.connection.usage import runs
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.validation import read

Topic = tuple[str, str]
"""The namespace and name of a DelayedTopic."""


class Turns:
    """Knows whose turn it is. An audit gets its turn in `ahead`, and keeps it until it has its verdict, even if another one is as old and
    has a name that comes first. After a restart of the operator, an audit that has begun gets the turn. Its finalizer, which is added
    before its window, shows that it has begun.

    The audits of a topic are compared only when the turn goes to another one, because people may create any number of them."""

    def __init__(self, store: Store, *, gets_turn: Callable[[Key], None]) -> None:
        """`gets_turn`: called with each audit that gets the turn."""
        self._store = store
        self._gets_turn = gets_turn
        self._held: dict[Topic, tuple[Key, str]] = {}
        """The key and the UID of the audit that has the turn."""

    def ahead(self, audit: Manifest) -> str | None:
        """Returns the name of the audit that `audit` waits for. None: `audit` has the turn. `audit` must not wait for the end of its
        window: such an audit holds up no other, and neither does one with an invalid spec."""
        holder = self._holder(_audited(audit)[0])
        if holder is None or holder["metadata"]["uid"] == audit["metadata"]["uid"]:
            return None
        return str(holder["metadata"]["name"])

    def pass_on(self, key: Key) -> None:
        """Passes the turn on if this audit had it, and its turn is over."""
        # more than one topic if the audit was deleted and created again for another
        for topic in [topic for topic, (holder, _) in self._held.items() if holder == key]:
            self._holder(topic)

    def _holder(self, topic: Topic) -> Manifest | None:
        """Returns the audit that has the turn. If that of the former one is over, this is the next one."""
        held = self._held.get(topic)
        if held is not None:
            key, uid = held
            found = self._store.get(*key)
            if found is not None and found["metadata"]["uid"] == uid and _may_begin(found):
                return found
            del self._held[topic]
        queued = sorted(self._store.by_index("DelayedTopicAudit", _audited, topic), key=_sort_key)
        first = next(filter(_may_begin, queued), None)
        if first is not None:
            self._held[topic] = _key(first), first["metadata"]["uid"]
            self._gets_turn(_key(first))
        return first


def _key(audit: Manifest) -> Key:
    return Key("DelayedTopicAudit", audit["metadata"]["namespace"], audit["metadata"]["name"])


def _audited(audit: Manifest) -> tuple[Topic]:
    """For `Store.by_index`: the DelayedTopic that is audited."""
    return ((str(audit["metadata"]["namespace"]), str(audit["spec"]["delayedTopicRef"]["name"])),)


def _may_begin(audit: Manifest) -> bool:
    if "verdict" in (audit.get("status") or {}) or "deletionTimestamp" in audit["metadata"]:
        return False
    try:
        # the window alone first, which takes far less time, because many audits may wait for the ends of their windows
        window = Window.model_validate(audit["spec"].get("window") or {}, by_alias=True, by_name=False, extra="ignore")
        if early(window, datetime.now(UTC)) is not None:
            return False
        read(DelayedTopicAudit, audit)
    except (ValidationError, SpecInvalid):
        return False  # its own conditions say so
    return True


def _sort_key(audit: Manifest) -> tuple[bool, str, str]:
    """An audit that has begun comes before all others. Of the others, the oldest comes first."""
    meta = audit["metadata"]
    return not runs(audit), str(meta.get("creationTimestamp") or ""), str(meta["name"])
