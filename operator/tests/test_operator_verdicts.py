"""What a DelayedTopic reports about its audits."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_operator.audits.reconcile.observation import Unauditable
from delayed_topics_operator.connection.reconcile.usable import Unusable
from delayed_topics_operator.values.annotations import ACKNOWLEDGED_AUDIT
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audit_simulation import (
    BEGIN,
    WINDOW,
    AuditSimulation,
    audit_resource,
    topic_resource,
)
from delayed_topics_operator_testing.simulation import Simulation, resource

AT = "2026-01-01T00:00:00Z"


def audited(verdict: str, name: str = "first", reason: str = "EveryRecordAccounted", **status: Any) -> Simulation:
    simulation = Simulation(raw=resource())
    last = {"name": name, "verdict": verdict, "startedAt": AT, "time": AT, "reason": reason, "message": "12 records"}
    simulation.raw["status"] = {"lastAudit": last, **status}
    simulation.settle()
    return simulation


def violated(verdict: str = "Violated", name: str = "first") -> Simulation:
    broken = {"name": "first", "startedAt": AT, "time": AT, "message": "1 lost", "acknowledgeAs": "first"}
    return audited(verdict, name, "PromiseBroken", lastViolation=broken)


def begun(simulation: AuditSimulation) -> AuditSimulation:
    simulation.settle()
    return simulation


def delivery_verified(simulation: Simulation) -> tuple[str, str, str]:
    found = simulation.condition(Condition.DELIVERY_VERIFIED)
    return found.status, found.reason, found.message


@pytest.mark.parametrize(
    ("verdict", "reason", "truth"),
    [("Verified", "EveryRecordAccounted", "True"), ("Unknown", "AuditFailed", "Unknown")],
)
def test_the_condition_says_the_latest_verdict(verdict: str, reason: str, truth: str) -> None:
    assert delivery_verified(audited(verdict, reason=reason)) == (truth, reason, "audit first: 12 records")


def test_before_the_first_audit_has_ended_it_says_nothing() -> None:
    simulation = Simulation(raw=resource())
    simulation.settle()
    assert Condition.DELIVERY_VERIFIED not in {c["type"] for c in simulation.raw["status"]["conditions"]}


@pytest.mark.parametrize(("verdict", "name"), [("Violated", "first"), ("Verified", "second")])
def test_a_broken_promise_stays_said_whatever_later_audits_find(verdict: str, name: str) -> None:
    status, reason, message = delivery_verified(violated(verdict, name))
    assert (status, reason) == ("False", Reason.PROMISE_BROKEN)
    assert message.startswith("audit first: 1 lost")
    assert ("The verdict of the later audit second is Verified" in message) == (name == "second")
    command = f"kubectl annotate dtopic orders -n shop --overwrite {ACKNOWLEDGED_AUDIT}=first"
    assert message.endswith(command)


def test_when_it_was_acknowledged_the_audits_after_it_count() -> None:
    simulation = violated()
    simulation.raw["metadata"]["annotations"][ACKNOWLEDGED_AUDIT] = "first"
    simulation.settle()
    assert delivery_verified(simulation)[:2] == ("Unknown", Reason.VIOLATION_ACKNOWLEDGED)
    simulation.raw["status"]["lastAudit"] |= {"name": "second", "verdict": "Verified", "reason": "EveryRecordAccounted"}
    simulation.settle()
    assert delivery_verified(simulation)[:2] == ("True", Reason.EVERY_RECORD_ACCOUNTED)
    simulation.raw["status"]["lastViolation"] |= {"name": "third", "acknowledgeAs": "third"}
    simulation.settle()
    assert delivery_verified(simulation)[:2] == ("False", Reason.PROMISE_BROKEN)


def acknowledge(simulation: Simulation) -> str:
    """Acknowledges the violation as the command in the condition does, and returns the value of the annotation."""
    value = delivery_verified(simulation)[2].rpartition(f"{ACKNOWLEDGED_AUDIT}=")[2]
    simulation.raw["metadata"]["annotations"][ACKNOWLEDGED_AUDIT] = value
    simulation.settle()
    return value


def test_an_acknowledgement_is_of_one_violation_and_not_of_later_ones_that_audits_of_the_same_name_find() -> None:
    simulation = Simulation(raw=topic_resource())

    def audit(hour: int, verdict: str) -> None:
        audit = begun(
            AuditSimulation(raw=audit_resource("first"), topic=simulation.raw, now=BEGIN + timedelta(hours=hour))
        )
        audit.job_reports(verdict)
        audit.settle()
        simulation.settle()

    values = []
    for hour in (1, 2, 3):
        audit(hour, "Violated")
        assert delivery_verified(simulation)[:2] == ("False", Reason.PROMISE_BROKEN)
        values.append(acknowledge(simulation))
        assert delivery_verified(simulation)[:2] == ("Unknown", Reason.VIOLATION_ACKNOWLEDGED)
    assert len(set(values)) == 3
    audit(4, "Verified")
    assert delivery_verified(simulation)[:2] == ("True", Reason.EVERY_RECORD_ACCOUNTED)


def test_a_command_that_was_copied_before_the_same_audit_found_more_acknowledges_nothing() -> None:
    simulation = Simulation(raw=topic_resource())
    for hour in (1, 2):
        audit = begun(
            AuditSimulation(raw=audit_resource("first"), topic=simulation.raw, now=BEGIN + timedelta(hours=hour))
        )
        audit.job_reports("Violated")
        audit.settle()
    simulation.raw["metadata"]["annotations"][ACKNOWLEDGED_AUDIT] = "first"
    simulation.settle()
    assert delivery_verified(simulation)[:2] == ("False", Reason.PROMISE_BROKEN)
    acknowledge(simulation)
    assert delivery_verified(simulation)[:2] == ("Unknown", Reason.VIOLATION_ACKNOWLEDGED)


def test_a_broken_promise_is_said_of_a_resource_that_can_not_be_served_too() -> None:
    simulation = violated()
    simulation.raw["metadata"]["annotations"][ACKNOWLEDGED_AUDIT] = "first"
    simulation.connection = Unusable(reason=Reason.KAFKA_UNREACHABLE, message="away", since=BEGIN)
    simulation.settle()
    assert delivery_verified(simulation)[:2] == ("Unknown", Reason.VIOLATION_ACKNOWLEDGED)


@pytest.mark.parametrize(
    "part",
    [
        {"sample": {"oneIn": 5}},
        {"window": {"from": "2026-01-01T00:00:00Z"}},
        {"window": {"to": "2026-01-01T00:00:00Z"}},
    ],
)
def test_an_audit_of_a_part_says_of_the_delayed_topic_only_that_a_promise_was_broken(part: Manifest) -> None:
    for verdict in ("Verified", "Unknown", "Violated"):
        simulation = begun(AuditSimulation(raw=audit_resource(**part)))
        simulation.job_reports(verdict)
        simulation.settle()
        topic = simulation.topic_model().status
        assert topic.last_audit is None
        assert (topic.last_violation is not None) == (verdict == "Violated")


def test_a_later_verdict_leaves_a_violation_where_it_is_and_a_later_violation_takes_its_place() -> None:
    first = begun(AuditSimulation(raw=audit_resource("first")))
    first.job_reports("Violated")
    first.settle()
    for hour, name, verdict, violated_by in ((2, "second", "Verified", "first"), (3, "third", "Violated", "third")):
        simulation = begun(
            AuditSimulation(raw=audit_resource(name), topic=first.topic, now=BEGIN + timedelta(hours=hour))
        )
        simulation.job_reports(verdict)
        simulation.settle()
        first.settle()
        topic = simulation.topic_model().status
        assert topic.last_audit is not None
        assert topic.last_violation is not None
        assert (topic.last_audit.name, topic.last_violation.name) == (name, violated_by)


@pytest.mark.parametrize(
    "frozen",
    [
        replace(WINDOW, frozen_at_ms=WINDOW.frozen_at_ms + 86_400_000),
        Unauditable(message="topic orders.ready was deleted and created again"),
    ],
)
def test_after_an_operator_whose_clock_was_a_day_ahead_the_next_verdict_is_the_last_one(
    frozen: AuditWindow | Unauditable,
) -> None:
    first = AuditSimulation(raw=audit_resource("first"), frozen=frozen, operator_ahead=timedelta(days=1))
    first.settle()
    if first.job is not None:
        first.job_reports("Violated")
        first.settle()
    second = begun(AuditSimulation(raw=audit_resource("second"), topic=first.topic, now=BEGIN + timedelta(hours=1)))
    second.job_reports("Verified")
    second.settle()
    last = second.topic_model().status.last_audit
    assert last is not None
    assert (last.name, last.verdict) == ("second", "Verified")
