"""The operator does not do over and over what somebody else undoes."""

from datetime import UTC, datetime, timedelta

import pytest
from delayed_topics_operator.delayed_topic.reconcile.undone import Undone
from delayed_topics_operator.values.plan import AlterSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AGAIN_SECONDS = 30.0
ONE = (AlterSettings(topic="orders", settings={"retention.ms": "1"}, present={}),)
OTHER = (AlterSettings(topic="payments", settings={"retention.ms": "1"}, present={}),)


def begun(undone: Undone, *, later_seconds: float = 0) -> Undone:
    undone.begin(NOW + timedelta(seconds=later_seconds), again_seconds=AGAIN_SECONDS)
    return undone


@pytest.mark.parametrize("changed", [True, False])
def test_what_was_done_in_a_pass_and_is_planned_again_was_undone(changed: bool) -> None:
    undone = begun(Undone())
    assert not undone.has(ONE)
    undone.done(ONE, NOW, changed=changed)
    assert undone.has(ONE)
    assert not undone.has(OTHER)
    undone.done(OTHER, NOW, changed=changed)
    assert (undone.has(ONE), undone.has(OTHER)) == (False, True), "the last actions count"


def test_where_nothing_is_planned_nothing_was_undone() -> None:
    undone = begun(Undone())
    assert not undone.has(())
    undone.done((), NOW, changed=True)
    assert not undone.has(())


def test_what_changed_something_is_done_again_in_the_next_pass() -> None:
    undone = begun(Undone())
    undone.done(ONE, NOW, changed=True)
    assert not begun(undone).has(ONE)
    assert undone.in_vain == ()


def test_what_changed_nothing_is_done_again_with_the_next_resync_only() -> None:
    undone = begun(Undone())
    undone.done(ONE, NOW, changed=False)
    assert begun(undone, later_seconds=AGAIN_SECONDS - 1).has(ONE)
    assert not begun(undone, later_seconds=AGAIN_SECONDS).has(ONE)
    assert undone.in_vain == ONE, "these actions are known until others change nothing"
    undone.done(ONE, NOW + timedelta(seconds=AGAIN_SECONDS), changed=False)
    assert begun(undone, later_seconds=2 * AGAIN_SECONDS - 1).has(ONE)


def test_of_what_changed_nothing_the_last_is_known() -> None:
    undone = begun(Undone())
    undone.done(ONE, NOW, changed=False)
    undone.done(OTHER, NOW, changed=False)
    assert undone.in_vain == OTHER
    assert (begun(undone).has(ONE), begun(undone).has(OTHER)) == (False, True)
