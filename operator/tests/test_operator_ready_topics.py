"""Other ready topics: what the registry says about them, and who may have records released into which of them."""

from datetime import timedelta
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import Grant
from delayed_topics_crds.pods import LabelSelector
from delayed_topics_operator_testing.simulation import Simulation, resource, usable


def declared(*topics: str, **further: Any) -> Simulation:
    return Simulation(resource(ready={"allowedTopics": list(topics)}), **further)


def granted(*prefixes: str) -> Grant:
    return Grant(namespace_selector=LabelSelector(), topic_prefixes=("",), ready_topic_prefixes=prefixes)


def test_workers_and_audits_are_told_which_ready_topics_records_may_ask_for() -> None:
    simulation = declared("shipments", "invoices", "invoices")
    simulation.settle()
    layout = simulation.kafka.registry.layouts["orders"]
    assert (layout.targets, layout.outage_budget_seconds) == (("invoices", "shipments"), 604_800)
    simulation.edit(ready={"allowedTopics": ["invoices"]}, outageBudgetSeconds=3600)
    simulation.settle()
    layout = simulation.kafka.registry.layouts["orders"]
    assert (layout.targets, layout.outage_budget_seconds) == (("invoices",), 3600)
    former = [allowed.topic for allowed in layout.ready_topics if allowed.until_ms is not None]
    assert former == ["shipments"]


def test_of_former_ready_topics_the_newest_are_kept() -> None:
    simulation = declared("always")
    for n in range(70):
        simulation.edit(ready={"allowedTopics": ["always", f"t{n}"]})
        simulation.settle()
        simulation.now += timedelta(hours=1)
    layout = simulation.kafka.registry.layouts["orders"]
    recorded = layout.ready_topics
    assert [allowed.topic for allowed in recorded] == ["always", *(f"t{n}" for n in range(11, 70))]
    assert layout.ready_topics_forgotten_ms == recorded[1].from_ms, "when t11 took the place of t10"
    assert [allowed.topic for allowed in recorded if allowed.until_ms is None] == ["always", "t69"]


def test_a_topic_that_is_allowed_again_is_noted_again() -> None:
    simulation = declared("invoices")
    for topics in ([], ["invoices"]):
        simulation.settle()
        simulation.now += timedelta(hours=1)
        simulation.edit(ready={"allowedTopics": topics})
    simulation.settle()
    first, again = simulation.kafka.registry.layouts["orders"].ready_topics
    assert (first.topic, again.topic, again.until_ms) == ("invoices", "invoices", None)
    assert first.until_ms is not None
    assert first.until_ms - first.from_ms == again.from_ms - first.until_ms == 3_600_000


def test_the_operator_makes_none_of_them() -> None:
    simulation = declared("invoices")
    simulation.settle()
    assert "invoices" not in simulation.kafka.topics


@pytest.mark.parametrize("prefixes", [("invo",), ("x", "")])
def test_the_connections_owner_grants_them_by_their_beginning(prefixes: tuple[str, ...]) -> None:
    simulation = declared("invoices", connection=usable(granted(*prefixes)))
    simulation.settle()
    assert simulation.condition(Condition.CLAIMED).status == "True"
    assert simulation.kafka.registry.layouts["orders"].targets == ("invoices",)


@pytest.mark.parametrize("prefixes", [(), ("shop.",)])
def test_what_is_not_granted_is_refused_by_name_and_nothing_is_made(prefixes: tuple[str, ...]) -> None:
    simulation = declared("shop.invoices", "bank.transfers", connection=usable(granted(*prefixes)))
    simulation.settle()
    condition = simulation.condition(Condition.CLAIMED)
    assert (condition.status, condition.reason) == ("False", Reason.NOT_ALLOWED)
    assert "bank.transfers" in condition.message
    assert ("shop.invoices" in condition.message) == (prefixes == ())
    assert "spec.allow[].readyTopicPrefixes" in condition.message
    assert simulation.kafka.topics == {}


def test_a_topic_into_which_its_own_records_would_come_in_again_is_refused_and_what_is_served_can_be_paused() -> None:
    simulation = declared("invoices", "orders")
    simulation.settle()
    assert (ready_condition(simulation), simulation.kafka.topics) == (("False", Reason.SPEC_INVALID), {})
    simulation.edit(ready={"allowedTopics": ["invoices"]})
    simulation.serve()
    simulation.edit(ready={"allowedTopics": ["invoices", "orders"]}, paused=True)
    simulation.settle()
    assert ready_condition(simulation) == ("False", Reason.SPEC_INVALID)
    layout = simulation.kafka.registry.layouts["orders"]
    assert (layout.targets, layout.paused) == (("invoices",), True)


def ready_condition(simulation: Simulation) -> tuple[str, str]:
    ready = simulation.condition(Condition.READY)
    assert "spec.ready.allowedTopics has the front topic orders," in ready.message
    return ready.status, ready.reason
