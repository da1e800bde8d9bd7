"""Two controllers write parts of one status: neither writes again what is there already."""

from datetime import UTC, datetime

from delayed_topics_crds import DelayedTopicStatus
from delayed_topics_crds.delayed_topic_status import LastAudit
from delayed_topics_operator.engine.status import as_written, wanted_is_live

AUDITS = "delayed-topics-operator-audits"
AT = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_verdict_that_stands_in_the_status_is_not_written_again() -> None:
    last = LastAudit(
        name="nightly", verdict="Verified", started_at=AT, time=AT, reason="EveryRecordAccounted", message="12"
    )
    wanted = as_written(DelayedTopicStatus(last_audit=last))
    live = {"metadata": {}, "status": {**wanted, "topics": [{"role": "front", "name": "orders"}]}}
    assert wanted_is_live(wanted, live, AUDITS)
    assert not wanted_is_live(wanted, {"metadata": {}, "status": {"topics": []}}, AUDITS)
