"""Of several audits of one DelayedTopic one at a time freezes its offsets and has a Job."""

from datetime import UTC, datetime, timedelta
from typing import Any

from delayed_topics_operator.audits.turns import Turns
from delayed_topics_operator.store import Manifest, Store
from delayed_topics_operator.translate import FINALIZER
from delayed_topics_operator_testing.audit_world import audit_resource


def audit(name: str, *, made: str = "2026-01-01T00:00:00Z", topic: str = "orders", **spec: Any) -> Manifest:
    resource = audit_resource(name, **{"delayedTopicRef": {"name": topic}, **spec})
    resource["metadata"]["creationTimestamp"] = made
    return resource


def stored(*audits: Manifest) -> Store:
    store = Store()
    for one in audits:
        store.put(one)
    return store


def test_the_oldest_comes_first_and_each_waits_for_the_verdict_of_the_one_before() -> None:
    every = [audit("b", made="2026-01-01T00:00:02Z"), audit("a", made="2026-01-01T00:00:03Z"), audit("c")]
    turns = Turns(stored(*every))
    assert [turns.ahead(one) for one in every] == ["c", "c", None]
    every[2]["status"]["verdict"] = "Unknown"
    assert [turns.ahead(one) for one in every[:2]] == [None, "b"]


def test_one_that_has_its_turn_keeps_it_against_one_that_comes_in_the_same_second() -> None:
    """Though its name comes first, and while nothing that it has begun can be seen."""
    late, early = audit("a"), audit("b")
    store = stored(early)
    turns = Turns(store)
    assert turns.ahead(early) is None
    store.put(late)
    assert turns.ahead(late) == "b"
    assert turns.ahead(early) is None


def test_an_operator_that_restarts_goes_on_with_the_one_that_has_begun() -> None:
    """It has its finalizer before its window."""
    late, early = audit("a"), audit("b")
    early["metadata"]["finalizers"] = [FINALIZER]
    assert Turns(stored(late, early)).ahead(late) == "b"


def test_one_that_is_deleted_or_made_anew_or_waits_for_the_end_of_its_window_holds_up_nobody() -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    gone, waiting, other, last = audit("a"), audit("b", window={"to": tomorrow}), audit("c", topic="other"), audit("d")
    store = stored(gone, waiting, other, last)
    turns = Turns(store)
    assert turns.ahead(gone) is None
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:09Z"
    assert turns.ahead(last) is None
    again = audit("a")
    again["metadata"]["uid"] = "another"
    store.put(again)
    assert turns.ahead(again) == "d"
