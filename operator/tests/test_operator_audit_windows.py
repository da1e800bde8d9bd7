"""An existing window is no permission: the operator checks again whose topic it is about and what the connection grants."""

import base64
import gzip

import pytest
from delayed_topics_core.audit_window import MAX_BYTES
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_operator.audits.reconcile.manifests import WINDOW_KEY, window_of
from delayed_topics_operator.audits.reconcile.observation import Refused
from delayed_topics_operator_testing.audit_simulation import (
    AuditSimulation,
    large_window,
    topic_resource,
)
from delayed_topics_operator_testing.simulation import Stopped


def test_a_delayed_topic_that_is_made_again_meanwhile_is_not_audited_by_the_window_of_the_one_before() -> None:
    simulation = AuditSimulation()
    with pytest.raises(Stopped):
        simulation.settle(actions=2)
    assert (simulation.config_map is not None, simulation.secret) == (True, None)
    successor = topic_resource()
    successor["metadata"] |= {"uid": "another", "creationTimestamp": "2026-01-02T00:00:30Z"}
    simulation.topic = successor
    simulation.settle()
    assert simulation.status["verdict"] == "Unknown"
    assert "DelayedTopic shop/orders was deleted and created again while it was audited" in simulation.status["message"]
    assert (simulation.job, simulation.secret, simulation.config_map) == (None, None, None)
    assert simulation.topic_model().status.last_audit is None, "the verdict is not reported on the new DelayedTopic"


def test_a_window_is_no_permission_to_run_what_the_connection_does_not_grant() -> None:
    simulation = AuditSimulation(files=Refused(message="ask its owner to add an entry to spec.allow"))
    simulation.settle()
    assert (simulation.status["verdict"], simulation.job, simulation.secret) == ("Unknown", None, None)
    complete = simulation.condition(Condition.COMPLETE)
    assert (complete.reason, complete.message) == (Reason.NOT_ALLOWED, "ask its owner to add an entry to spec.allow")


def test_a_window_that_no_config_map_holds_is_a_verdict_and_holds_up_no_other_audit() -> None:
    """Kubernetes would refuse such a ConfigMap on every attempt."""
    simulation = AuditSimulation(frozen=large_window(partitions=10_000, offsets=(0, 10**15)))
    simulation.settle()
    assert (simulation.status["verdict"], simulation.config_map, simulation.job) == ("Unknown", None, None)
    assert "a ConfigMap holds at most 1,048,576" in simulation.status["message"]


def test_a_window_that_somebody_has_filled_with_nothing_is_none() -> None:
    """A megabyte of gzip may be a gigabyte of JSON."""
    packed = gzip.compress(b" " * (MAX_BYTES + 1) + b"{}")
    assert window_of({"binaryData": {WINDOW_KEY: base64.b64encode(packed).decode()}}) is None
    assert window_of({"binaryData": {WINDOW_KEY: "?"}}) is None
