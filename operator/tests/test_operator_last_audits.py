"""What the metrics say of the last audit of each DelayedTopic."""

from datetime import UTC, datetime

import pytest
from delayed_topics_operator.delayed_topic.last_audits import expose
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.values.manifest import Manifest
from prometheus_client import REGISTRY

HOURLY = "0 * * * *"
PREFIX = "delayedtopics_operator_audit_"


def topic(name: str, schedule: str | None = None, /, **last: str) -> Manifest:
    return {
        "kind": "DelayedTopic",
        "metadata": {"namespace": "shop", "name": name, "uid": name, "creationTimestamp": "2026-01-02T10:20:00Z"},
        "spec": {"audit": {"schedule": schedule}} if schedule else {},
        "status": {"lastAudit": last} if last else {},
    }


def audit(name: str, **account: int) -> Manifest:
    meta = {"namespace": "shop", "name": name, "uid": name}
    return {"kind": "DelayedTopicAudit", "metadata": meta, "spec": {}, "status": {"account": account}}


def samples(*manifests: Manifest) -> dict[tuple[str, str, str], float]:
    """Returns the exposed samples by metric, DelayedTopic, and verdict or finding."""
    store = Store()
    for manifest in manifests:
        store.put(manifest)
    expose(store, store.all("DelayedTopic"))
    return {
        (
            sample.name.removeprefix(PREFIX),
            sample.labels["resource_name"],
            sample.labels.get("verdict") or sample.labels.get("found", ""),
        ): sample.value
        for family in REGISTRY.collect()
        if family.name.startswith(PREFIX)
        for sample in family.samples
    }


def test_the_last_verdict_is_told_and_goes_with_its_delayed_topic() -> None:
    orders = topic(
        "orders", name="first", verdict="Violated", startedAt="2026-01-02T12:00:10Z", time="2026-01-02T12:04:00Z"
    )
    assert samples(orders, topic("silent"), audit("first", produced=9, lost=1, late=0), audit("second", lost=5)) == {
        ("verdict", "orders", "Verified"): 0,
        ("verdict", "orders", "Violated"): 1,
        ("verdict", "orders", "Unknown"): 0,
        ("records", "orders", "lost"): 1,
        ("records", "orders", "late"): 0,
        ("timestamp_seconds", "orders", ""): datetime(2026, 1, 2, 12, 4, tzinfo=UTC).timestamp(),
    }
    assert ("verdict", "orders", "Violated") in samples(orders), "the verdict stays although the audit was deleted"
    assert samples() == {}


@pytest.mark.parametrize(
    ("last", "hour"),
    [
        ({}, 12),  # created at 10:20, so the first audit is at 11
        ({"startedAt": "2026-01-02T12:00:10Z", "time": "2026-01-02T13:30:00Z"}, 14),
    ],
)
def test_a_verdict_of_a_schedule_is_expected_before_the_time_after_the_next(last: dict[str, str], hour: int) -> None:
    named = {"name": "first", "verdict": "Verified", **last} if last else {}
    exposed = samples(topic("orders", HOURLY, **named))
    assert exposed["expected_timestamp_seconds", "orders", ""] == datetime(2026, 1, 2, hour, tzinfo=UTC).timestamp()


def test_a_schedule_that_is_none_is_passed_over() -> None:
    assert samples(topic("orders", "61 * * * *")) == {}


@pytest.mark.parametrize("time", ["2026-01-02T13:30:00+25:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z"])
def test_a_time_that_somebody_wrote_into_a_status_ends_no_metrics(time: str) -> None:
    odd = topic("odd", HOURLY, name="first", verdict="Verified", startedAt=time, time=time)
    at = "2026-01-02T13:30:00Z"
    orders = topic("orders", name="first", verdict="Verified", startedAt=at, time=at)
    exposed = samples(odd, orders)
    assert exposed["verdict", "odd", "Verified"] == 1
    assert ("timestamp_seconds", "orders", "") in exposed
    assert ("expected_timestamp_seconds", "odd", "") not in exposed
