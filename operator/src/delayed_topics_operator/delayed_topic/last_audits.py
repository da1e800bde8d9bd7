"""Sets the metrics about the last audit of each DelayedTopic.

The counts come from the audit itself, so they disappear when it is deleted. All metrics about a DelayedTopic disappear with it.
"""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Any, Final, get_args

from delayed_topics_crds.base import Time
from delayed_topics_crds.common import Verdict
from pydantic import TypeAdapter, ValidationError

from delayed_topics_operator import metrics
from delayed_topics_operator.delayed_topic.reconcile.schedule import times
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator.values.manifest import Manifest

COUNTED: Final = ("lost", "early", "doubled", "overdue", "late")
"""The fields of an audit's account that become metrics."""
_TIME: Final = TypeAdapter[datetime](Time)


def expose(store: Store, topics: Iterable[Manifest]) -> None:
    """Replaces all values of these metrics with those of the given DelayedTopics."""
    for gauge in (metrics.AUDIT_VERDICT, metrics.AUDIT_RECORDS, metrics.AUDIT_TIME, metrics.AUDIT_EXPECTED):
        gauge.clear()
    for topic in topics:
        labels = (topic["metadata"]["namespace"], topic["metadata"]["name"])
        last: dict[str, Any] = (topic.get("status") or {}).get("lastAudit") or {}
        if last:
            for verdict in get_args(Verdict):
                metrics.AUDIT_VERDICT.labels(*labels, verdict).set(verdict == last["verdict"])
            if (ended := _time(last["time"])) is not None:
                metrics.AUDIT_TIME.labels(*labels).set(ended.timestamp())
            audit = store.get("DelayedTopicAudit", labels[0], last["name"]) or {}
            account = (audit.get("status") or {}).get("account") or {}
            for counted in COUNTED:
                if counted in account:
                    metrics.AUDIT_RECORDS.labels(*labels, counted).set(account[counted])
        expected = _expected(topic, last)
        if expected is not None:
            metrics.AUDIT_EXPECTED.labels(*labels).set(expected.timestamp())


def _expected(topic: Manifest, last: dict[str, Any]) -> datetime | None:
    """Returns the time by which there should be a later verdict. A scheduled audit has until the next scheduled time to reach its
    verdict."""
    schedule = (topic["spec"].get("audit") or {}).get("schedule")
    if schedule is None:
        return None
    since = _time(last["startedAt"] if last else topic["metadata"]["creationTimestamp"])
    try:
        _, expected = islice(times(schedule, since), 2) if since is not None else (None, None)
        return expected
    except (SpecInvalid, OverflowError):
        return None  # the condition Ready of the DelayedTopic reports the invalid schedule


def _time(given: str) -> datetime | None:
    """Returns None if the time can't be parsed: the API server accepts more formats than pydantic does, and anyone who may write a status
    can use them."""
    try:
        return _TIME.validate_python(given)
    except ValidationError:
        return None
