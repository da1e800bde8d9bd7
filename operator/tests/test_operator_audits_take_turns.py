"""If a DelayedTopic has several audits, only one at a time freezes its offsets and has a Job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_operator.audits.reconcile.auditable import WAIT_SECONDS
from delayed_topics_operator.audits.turns import Turns
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audit_simulation import WINDOW, AuditSimulation, audit_resource


def audit(name: str, *, made: str = "2026-01-01T00:00:00Z", topic: str = "orders", **spec: Any) -> Manifest:
    resource = audit_resource(name, **{"delayedTopicRef": {"name": topic}, **spec})
    resource["metadata"]["creationTimestamp"] = made
    return resource


def stored(*audits: Manifest) -> Store:
    store = Store()
    for one in audits:
        store.put(one)
    return store


def ignore(_: Key) -> None: ...


def test_the_oldest_comes_first_and_each_waits_for_the_verdict_of_the_one_before() -> None:
    every = [audit("b", made="2026-01-01T00:00:02Z"), audit("a", made="2026-01-01T00:00:03Z"), audit("c")]
    turns = Turns(stored(*every), gets_turn=ignore)
    assert [turns.ahead(one) for one in every] == ["c", "c", None]
    every[2]["status"]["verdict"] = "Unknown"
    assert [turns.ahead(one) for one in every[:2]] == [None, "b"]


def test_an_audit_that_has_its_turn_keeps_it_against_one_that_comes_in_the_same_second() -> None:
    """The newcomer's name sorts first, and no object shows yet that the other audit has begun."""
    late, early = audit("a"), audit("b")
    store = stored(early)
    turns = Turns(store, gets_turn=ignore)
    assert turns.ahead(early) is None
    store.put(late)
    assert turns.ahead(late) == "b"
    assert turns.ahead(early) is None


def test_an_operator_that_restarts_goes_on_with_the_one_that_has_begun() -> None:
    """An audit gets its finalizer before its window, so the finalizer shows that it has begun."""
    late, early = audit("a"), audit("b")
    early["metadata"]["finalizers"] = [FINALIZER]
    assert Turns(stored(late, early), gets_turn=ignore).ahead(late) == "b"


def test_an_audit_that_is_deleted_or_made_anew_or_waits_for_the_end_of_its_window_holds_up_nobody() -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    gone, waiting, other, last = audit("a"), audit("b", window={"to": tomorrow}), audit("c", topic="other"), audit("d")
    store = stored(gone, waiting, other, last)
    turns = Turns(store, gets_turn=ignore)
    assert turns.ahead(gone) is None
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:09Z"
    store.put(gone)
    assert turns.ahead(last) is None
    again = audit("a")
    again["metadata"]["uid"] = "another"
    store.put(again)
    assert turns.ahead(again) == "d"


def test_an_audit_that_is_made_anew_for_another_topic_passes_on_the_turns_at_both() -> None:
    gone, waiting = audit("a"), audit("b")
    store, notified = stored(gone, waiting), list[str]()
    turns = Turns(store, gets_turn=lambda key: notified.append(key.name))
    assert turns.ahead(waiting) == "a"
    again = audit("a", topic="other")
    again["metadata"]["uid"] = "another"
    store.put(again)
    assert turns.ahead(again) is None
    turns.pass_on(Key("DelayedTopicAudit", "shop", "a"))
    assert notified == ["a", "a", "b"]


@pytest.mark.parametrize("end", ["2026-01-01T00:00:00+25:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59z"])
def test_a_window_whose_end_is_written_in_another_way_holds_up_no_other(end: str) -> None:
    odd, other = audit("a", window={"to": end}), audit("b")
    assert Turns(stored(odd, other), gets_turn=ignore).ahead(other) is None


class CountingStore(Store):
    """Counts the objects that are read."""

    reads = 0

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        self.reads += 1
        return super().get(kind, namespace, name)


def reads_for_each(*audits: Manifest) -> float:
    """Returns how many objects are read for each of the audits that asks whose turn it is, once all of them have asked."""
    store = CountingStore()
    for one in audits:
        store.put(one)
    turns = Turns(store, gets_turn=ignore)
    for one in audits:
        turns.ahead(one)
    store.reads = 0
    assert {turns.ahead(one) for one in audits} == {None, "0"}
    return store.reads / len(audits)


def test_to_see_whose_turn_it_is_takes_no_longer_the_more_audits_wait() -> None:
    """In the past, some hundred audits of a DelayedTopic, which need not exist, took all time of the operator."""
    few, many = ([audit(str(n)) for n in range(count)] for count in (2, 500))
    assert reads_for_each(*many) == reads_for_each(*few)


def test_the_next_audit_is_looked_at_as_soon_as_the_one_before_has_its_verdict_or_is_gone() -> None:
    every = [audit(name) for name in "abcd"]
    store, woken = stored(*every), list[str]()
    turns = Turns(store, gets_turn=lambda key: woken.append(key.name))
    assert [turns.ahead(one) for one in every] == [None, "a", "a", "a"]
    turns.pass_on(Key("DelayedTopicAudit", "shop", "b"))
    assert woken == ["a"]
    store.put({**every[0], "status": {"verdict": "Unknown"}})
    turns.pass_on(Key("DelayedTopicAudit", "shop", "a"))
    store.gone(every[1])
    turns.pass_on(Key("DelayedTopicAudit", "shop", "b"))
    store.gone(every[2])
    assert turns.ahead(every[3]) is None
    assert woken == ["a", "b", "c", "d"]


def test_an_audit_that_has_waited_long_is_looked_at_less_often_and_at_the_end_of_its_window() -> None:
    simulation = AuditSimulation(topic=None)
    assert simulation.settle().wake_seconds == pytest.approx(WAIT_SECONDS)
    simulation.later(3600)
    assert (simulation.settle().wake_seconds or 0) >= 60
    end = simulation.now + timedelta(seconds=20)
    waiting = AuditSimulation(raw=audit_resource(window={"to": end.isoformat()}), topic=None, now=simulation.now)
    assert (waiting.settle().wake_seconds or 0) == pytest.approx(20, abs=2)


def begun(simulation: AuditSimulation) -> AuditSimulation:
    simulation.settle()
    assert simulation.job is not None
    return simulation


def test_two_audits_of_one_delayed_topic_take_turns() -> None:
    simulation = AuditSimulation(ahead="first")
    simulation.settle()
    assert simulation.config_map is None
    complete = simulation.condition(Condition.COMPLETE)
    assert (complete.status, complete.reason) == ("False", Reason.AUDIT_WAITING)
    assert "waits until audit first of the same DelayedTopic has its verdict" in complete.message
    simulation.ahead = None
    simulation.settle()
    assert simulation.job is not None


@pytest.mark.parametrize("verdict", ["Verified", "Violated"])
def test_the_verdict_of_an_earlier_window_does_not_replace_that_of_a_later_one_though_it_came_last(
    verdict: str,
) -> None:
    first = begun(AuditSimulation(raw=audit_resource("first")))
    later = replace(WINDOW, frozen_at_ms=WINDOW.frozen_at_ms + 60_000)
    second = begun(AuditSimulation(raw=audit_resource("second"), frozen=later))
    second.topic = first.topic
    second.job_reports("Violated")
    second.settle()
    first.job_reports(verdict)
    assert first.job is not None
    first.job["status"]["completionTime"] = "2026-01-02T02:00:00Z"
    first.settle()
    status = first.topic_model().status
    assert status.last_audit is not None
    assert status.last_violation is not None
    assert (status.last_audit.name, status.last_audit.verdict, status.last_violation.name) == (
        "second",
        "Violated",
        "second",
    )
    second.settle()
    assert first.topic_model().status == status
