"""Which takeovers the events of the workers report, and in which times the workers reported nothing."""

from dataclasses import replace

import pytest
from delayed_topics_audit.findings import WorkerEvents
from delayed_topics_audit.repeats import Takeover, reported_spans, takeovers
from delayed_topics_audit_testing.doubles import repeated
from delayed_topics_audit_testing.rows import AT_MS, judged
from delayed_topics_core.audit_table import DELAYS, FRONT, PARTITION_BITS
from delayed_topics_core.events import Event, EventKind
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FRONT_0, DELAYS_1 = FRONT << PARTITION_BITS, (DELAYS << PARTITION_BITS) + 1
SERVED = {"places": ["orders[0]", "orders.delays[1]"], "generation": 4}


def event_of(kind: EventKind, ms: int, **detail: object) -> Event:
    return Event(kind=kind, topic="orders", member="b", at_ms=AT_MS + ms, detail=detail)


CAUGHT_UP = event_of("rebalance", 35_000, change="caught-up", took_ms=5_000, delayed=3, **SERVED)
ASSIGNED = event_of("assignment", 30_000, group="g", **SERVED)


def test_what_happened_is_known_for_a_day_after_an_event_of_the_topic() -> None:
    hour_ms = 3_600_000
    at_ms = [0, 20 * hour_ms, 40 * hour_ms, 100 * hour_ms]
    events = [Event(kind="assignment", topic="orders", member="a", at_ms=ms, detail={}) for ms in at_ms]
    other = Event(kind="assignment", topic="invoices", member="a", at_ms=80 * hour_ms, detail={})
    spans = [(0, 65 * hour_ms), (100 * hour_ms, 125 * hour_ms)]
    assert reported_spans([other, *reversed(events)], "orders") == spans


@pytest.mark.parametrize("places", [["orders[x]"], ["orders[0-999999999]"], ["orders[131072]"], [7], "orders[0]"])
def test_what_an_event_says_that_cannot_be_is_no_takeover(places: object) -> None:
    """The audit once ended in a traceback."""
    detail = {"places": places, "took_ms": 1 << 64}
    event = Event(kind="producers-replaced", topic="orders", member="a", at_ms=9, detail=detail)
    assert takeovers([event], "orders") == []


@pytest.mark.slow
@pytest.mark.parametrize("left", [CAUGHT_UP, ASSIGNED], ids=["caught up", "assigned"])
def test_a_crash_whose_takeover_one_lost_event_does_not_tell_is_no_broken_promise(
    spark: SparkSession, left: Event
) -> None:
    """Kafka accepted no events when the worker died. Because of the other events of that day, the verdict was once `Violated`."""
    events = [event_of("worker-started", 1_000), left]
    known = WorkerEvents(takeovers=takeovers(events, "orders"), known=reported_spans(events, "orders"))
    result = judged(repeated(spark), known)
    assert (result.verdict, "doubled within the promise" in result.message) == ("Verified", True), result.message


def test_a_takeover_of_which_several_events_tell_is_one() -> None:
    served = event_of("rebalance", 30_400, change="assigned", took_ms=400, **SERVED)
    again = event_of("assignment", 90_000, **SERVED, repeated=True)
    other = replace(CAUGHT_UP, member="c")
    crash = Takeover(lines=frozenset({FRONT_0, DELAYS_1}), from_ms=AT_MS + 30_000, to_ms=AT_MS + 30_400)
    late = replace(crash, to_ms=AT_MS + 30_000)
    assert takeovers([ASSIGNED, served, CAUGHT_UP, again], "orders") == [crash]
    assert takeovers([ASSIGNED, CAUGHT_UP, again], "orders") == [late]
    assert takeovers([served, other], "orders") == [crash, late], "another worker took over the same partitions"
    in_part = replace(served, detail={**served.detail, "places": ["orders[0]"]})
    assert [takeover.lines for takeover in takeovers([in_part, CAUGHT_UP], "orders")] == [
        frozenset({FRONT_0}),
        frozenset({DELAYS_1}),
    ]
    nowhere = {name: value for name, value in CAUGHT_UP.detail.items() if name != "places"}
    assert takeovers([replace(CAUGHT_UP, detail=nowhere)], "orders") == []


def test_takeovers_are_read_from_the_events_with_their_partitions() -> None:
    def event(change: str, **detail: object) -> Event:
        return Event(kind="rebalance", topic="orders", member="a", at_ms=9_000, detail={"change": change, **detail})

    events = [
        event("assigned", took_ms=3_000, places=["orders[0]", "orders.delays[1]", "other[5]"]),
        Event(
            kind="producers-replaced", topic="orders", member="a", at_ms=9_000, detail={"places": ["orders.delays[1]"]}
        ),
        event("revoked", places=["orders[0]"]),
        Event(kind="worker-started", topic="orders", member="a", at_ms=1, detail={}),
        replace(event("lost"), topic="invoices"),
    ]
    events.append(events[0])  # a worker that does not know whether Kafka has the event sends it again
    assert takeovers(events, "orders") == [
        Takeover(lines=frozenset({FRONT_0, DELAYS_1}), from_ms=6_000, to_ms=9_000),
        Takeover(lines=frozenset({DELAYS_1}), from_ms=9_000, to_ms=9_000),
    ]
