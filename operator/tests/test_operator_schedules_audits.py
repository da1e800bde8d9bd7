"""`spec.audit.schedule`: audits are created on time, one after the other, and the oldest are removed."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import parse
from delayed_topics_operator.values.annotations import ACKNOWLEDGED_AUDIT
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.simulation import Simulation, resource

NOON = datetime(2026, 1, 2, 12, 0, 30, tzinfo=UTC)


def scheduled(schedule: str = "0 * * * *", **audit: object) -> Simulation:
    simulation = Simulation(raw=resource(audit={"schedule": schedule, **audit}), now=NOON)
    simulation.raw["metadata"]["creationTimestamp"] = NOON.isoformat()
    simulation.serve()
    return simulation


def audits(simulation: Simulation) -> list[Manifest]:
    return [child for (kind, _), child in sorted(simulation.children.items()) if kind == "DelayedTopicAudit"]


def later(simulation: Simulation, **duration: float) -> Simulation:
    simulation.now += timedelta(**duration)
    simulation.settle()
    return simulation


def conclude(simulation: Simulation, verdict: str = "Verified") -> None:
    for audit in audits(simulation):
        audit["status"] = audit.get("status") or {"verdict": verdict}


def break_promise(simulation: Simulation) -> str:
    """Lets the next audit find a broken promise, and returns the name of the audit."""
    name = str(audits(later(simulation, hours=1))[-1]["metadata"]["name"])
    conclude(simulation, "Violated")
    at = simulation.now.isoformat()
    violation = {"name": name, "startedAt": at, "time": at, "message": "1 lost", "acknowledgeAs": name}
    simulation.raw["status"]["lastViolation"] = violation
    return name


def acknowledge(simulation: Simulation, name: str) -> set[str]:
    """Acknowledges an audit, and returns the names of the audits that still exist."""
    simulation.raw["metadata"]["annotations"][ACKNOWLEDGED_AUDIT] = name
    simulation.settle()
    return {audit["metadata"]["name"] for audit in audits(simulation)}


def test_an_audit_is_made_when_its_time_has_come_and_not_before() -> None:
    simulation = scheduled(maxLatenessMs=50, spark={"memory": "2g"}, output={"claimName": "accounts", "parquet": True})
    assert audits(simulation) == []
    assert later(simulation, minutes=59).settle().wake_seconds == pytest.approx(30)
    assert audits(simulation) == []
    (audit,) = audits(later(simulation, seconds=30))
    assert audit["metadata"]["name"] == f"{simulation.raw['metadata']['name']}-{int(simulation.now.timestamp()) // 60}"
    assert audit["metadata"]["annotations"]["delayedtopics.io/scheduled-for"] == "2026-01-02T13:00:00Z"
    assert audit["spec"]["window"] == {"sinceLast": True}
    assert (audit["spec"]["maxLatenessMs"], audit["spec"]["spark"]["memory"]) == (50, "2g")
    assert audit["spec"]["activeDeadlineSeconds"] == 86_400
    assert audit["spec"]["output"] == {"claimName": "accounts", "parquet": True}
    assert parse("DelayedTopicAudit", audit).spec.delayed_topic_ref.name == simulation.raw["metadata"]["name"]


def test_a_time_that_comes_while_an_audit_runs_is_made_up_for_by_one_after_it() -> None:
    simulation = later(scheduled(), hours=1)
    assert len(audits(later(simulation, hours=3, minutes=5))) == 1
    conclude(simulation)
    simulation.settle()
    assert len(audits(simulation)) == 2
    conclude(simulation)
    simulation.settle()
    assert len(audits(simulation)) == 2, "one audit covers the hours that were missed"
    assert len(audits(later(simulation, hours=1))) == 3


def test_the_last_ones_are_kept_and_one_that_runs_is_never_removed() -> None:
    simulation = scheduled(historyLimit=2)
    for _ in range(4):
        later(simulation, hours=1)
        conclude(simulation)
        simulation.settle()
    kept = [audit["metadata"]["annotations"]["delayedtopics.io/scheduled-for"] for audit in audits(simulation)]
    assert kept == ["2026-01-02T15:00:00Z", "2026-01-02T16:00:00Z"]


def test_the_audit_of_a_broken_promise_is_kept_until_somebody_has_acknowledged_it() -> None:
    simulation = scheduled(historyLimit=1)
    broken = break_promise(simulation)
    for _ in range(3):
        conclude(later(simulation, hours=1))
    simulation.settle()
    assert len(audits(simulation)) == 2
    assert broken in {audit["metadata"]["name"] for audit in audits(simulation)}
    assert broken not in acknowledge(simulation, broken)


@pytest.mark.parametrize("at", [0, 1])
def test_a_broken_promise_that_nobody_has_acknowledged_stays_behind_newer_ones_until_a_later_one_is(at: int) -> None:
    simulation = scheduled(historyLimit=1)
    broken = [break_promise(simulation) for _ in range(3)]
    conclude(later(simulation, hours=1))
    assert set(broken) < acknowledge(simulation, "another")
    assert set(broken[at + 1 :]) == acknowledge(simulation, broken[at]) & set(broken)
    conclude(later(simulation, hours=1))
    assert set(broken[at + 1 :]) == acknowledge(simulation, broken[at]) & set(broken), (
        "although the acknowledged audit is gone"
    )
    assert not acknowledge(simulation, broken[-1]) & set(broken)


def test_an_acknowledged_audit_that_is_not_of_the_schedule_acknowledges_those_before_it() -> None:
    simulation = scheduled(historyLimit=1)
    broken = break_promise(simulation)
    simulation.raw["status"]["lastViolation"] |= {"name": "by-hand", "acknowledgeAs": "by-hand"}
    conclude(later(simulation, hours=1))
    assert broken in acknowledge(simulation, "another")
    assert broken not in acknowledge(simulation, "by-hand")


def test_an_acknowledgement_of_an_audit_of_the_same_name_keeps_the_next_one_that_found_something() -> None:
    simulation = scheduled(historyLimit=1)
    broken = break_promise(simulation)
    simulation.annotate(acknowledged_audit=broken)
    simulation.raw["status"]["lastViolation"]["acknowledgeAs"] = f"{broken}/2026-01-02T13:00:30Z"
    conclude(later(simulation, hours=1))
    simulation.settle()
    assert broken in {audit["metadata"]["name"] for audit in audits(simulation)}
    assert broken not in acknowledge(simulation, f"{broken}/2026-01-02T13:00:30Z")


def test_without_a_schedule_no_audit_is_made_and_those_that_were_made_stay() -> None:
    simulation = later(scheduled(), hours=1)
    del simulation.raw["spec"]["audit"]
    assert len(audits(later(simulation, days=1))) == 1


@pytest.mark.parametrize("schedule", ["61 * * * *", "0 24 * * *", "0 0 31 2 *x", "* * * * 9"])
def test_what_is_no_cron_expression_is_said_with_an_example_and_all_else_is_done(schedule: str) -> None:
    simulation = Simulation.serving(audit={"schedule": schedule})
    simulation.edit(paused=True)
    simulation.settle()
    ready = simulation.condition(Condition.READY)
    assert (ready.status, ready.reason) == ("False", Reason.SPEC_INVALID)
    assert re.search(r"spec\.audit\.schedule .* is not a cron expression .*every day at 3:00", ready.message)
    assert simulation.kafka.registry.layouts["orders"].paused is True
    assert audits(simulation) == []
    simulation.edit(audit={"schedule": "0 * * * *"})
    simulation.settle()
    assert simulation.condition(Condition.READY).reason == Reason.PAUSED


def test_a_schedule_that_never_comes_is_said_and_all_else_is_done() -> None:
    simulation = Simulation.serving(audit={"schedule": "0 3 LW * */7"})  # a last weekday of a month that is a Sunday
    ready = simulation.condition(Condition.READY)
    assert (ready.status, ready.reason) == ("False", Reason.SPEC_INVALID)
    assert "spec.audit.schedule '0 3 LW * */7' never comes" in ready.message
    assert simulation.condition(Condition.TOPICS_READY).status == "True"


@pytest.mark.parametrize("edited", ["soon", "2026-01-02T13:00:00", "9999-12-31T23:59:59Z", ""])
def test_an_annotation_of_an_audit_that_somebody_edited_ends_no_schedule(edited: str) -> None:
    simulation = later(scheduled(), hours=1)
    audits(simulation)[0]["metadata"]["annotations"]["delayedtopics.io/scheduled-for"] = edited
    conclude(simulation)
    assert len(audits(later(simulation, hours=1))) == 2


def test_an_audit_of_somebody_else_with_the_name_of_the_next_one_is_left_alone_and_the_time_after_it_counts() -> None:
    simulation = scheduled()
    taken = f"orders-{int(NOON.timestamp()) // 60 + 60 - NOON.minute}"
    simulation.taken = frozenset({taken})
    plan = later(simulation, hours=1).settle()
    assert audits(simulation) == []
    assert plan.wake_seconds == pytest.approx(3600 - NOON.second)
    assert any(taken in notice.message for notice in plan.notices)
    (audit,) = audits(later(simulation, hours=1))
    assert audit["metadata"]["annotations"]["delayedtopics.io/scheduled-for"] == "2026-01-02T14:00:00Z"


def test_an_audit_that_was_made_before_its_time_under_a_wrong_clock_ends_no_schedule() -> None:
    simulation = later(scheduled(), hours=1)
    (early,) = audits(simulation)
    early["metadata"]["creationTimestamp"] = (simulation.now - timedelta(minutes=10)).isoformat()
    conclude(simulation)
    plan = simulation.settle()
    assert audits(simulation) == [early]
    assert plan.notices == ()
    assert len(audits(later(simulation, hours=1))) == 2


def made_ahead(simulation: Simulation, ahead: timedelta) -> int:
    """Lets the operator look 20 times, with a clock that is ahead of the API server's. Returns how many audits it made."""
    made = 0
    for _ in range(20):
        simulation.settle()
        for audit in audits(simulation):
            if audit["metadata"]["creationTimestamp"] == simulation.now.isoformat():
                audit["metadata"]["creationTimestamp"] = (simulation.now - ahead).isoformat()
                made += 1
        conclude(simulation)
    return made


@pytest.mark.parametrize("history_limit", [1, 7])
def test_an_operator_whose_clock_is_ahead_makes_no_audits_back_to_back_and_none_is_missing_when_it_is_right_again(
    history_limit: int,
) -> None:
    simulation, ahead = scheduled(historyLimit=history_limit), timedelta(days=1)
    simulation.now += ahead
    assert made_ahead(simulation, ahead) == 1, "one audit makes up for the day that seems to have passed"
    simulation.now += timedelta(hours=1)
    assert made_ahead(simulation, ahead) == 1
    simulation.now -= ahead
    for _ in range(3):
        before = {audit["metadata"]["name"] for audit in audits(simulation)}
        after = {audit["metadata"]["name"] for audit in audits(later(simulation, hours=1))}
        assert len(after - before) == 1
        conclude(simulation)
