"""The drawings and sentences of the report page, as a reader sees them."""

import re
from dataclasses import replace

import pytest
from delayed_topics_audit.account import Counted, judge
from delayed_topics_audit.blame import causes
from delayed_topics_audit.findings import Findings
from delayed_topics_audit.report import render, svg
from delayed_topics_audit_testing.topics import whole_window
from delayed_topics_core.events import Event
from delayed_topics_core.names import TopicNames

NAMES = TopicNames.of("orders")
WINDOW = whole_window(
    NAMES,
    topic_ids={},
    delay_seconds=[0],
    retry_cap=3,
    max_lateness_ms=1000,
    committed_offsets={},
    end_offsets=dict.fromkeys(NAMES.topics, (0,)),
)
FAR_MS = 9_000_000_000_000_000_000
DAY_MS = 86_400_000


def labels(drawing: str) -> list[str]:
    return re.findall(r'class="small[^"]*">([^<]*)</text>', drawing)


def test_a_time_in_which_nothing_came_is_drawn_as_nothing() -> None:
    busy = {"came_in": 9, "came_out": 9, "late": 0}
    drawing = svg.timeline([{"at_ms": 0, **busy}, {"at_ms": 4000, **busy}], [], step_ms=1000)
    points = re.findall(r'<polyline points="([^"]*)" class="line came_in"', drawing)[0].split()
    assert [float(point.split(",")[1]) for point in points] == [40, 200, 200, 200, 40]


def test_times_of_more_than_a_day_have_their_date() -> None:
    hour, month = (svg.bars([(0, 1), (span, 1)], step_ms=1000) for span in (DAY_MS // 24, 30 * DAY_MS))
    assert labels(hour)[:2] == ["00:00:00", "00:15:00"]
    assert labels(month)[:2] == ["01 Jan 00:00", "08 Jan 12:00"]


def test_a_time_that_no_calendar_has_is_told_as_such() -> None:
    """A producer can request any due time, and a forged release can claim any."""
    assert labels(svg.bars([(0, 1), (FAR_MS, 1)], step_ms=1000))[:5] == ["01 Jan 00:00", *["after 9999"] * 4]
    bucket = {"delay_ms": None, "asked": True, "bucket_ms": 0, "count": 1}
    counted = Counted(topic="orders", partitions=[])
    hours = Findings(counted=counted, lateness=[{**bucket, "hour_ms": hour_ms} for hour_ms in (0, FAR_MS)])
    page = render(WINDOW, judge(counted), hours)
    assert [time in page for time in ("1970-01-01 00:00:00", "after 9999")] == [True, True]


def test_the_report_calls_no_double_allowed_of_which_the_verdict_does_not_know() -> None:
    counted = Counted(topic="orders", partitions=[], flaws={"doubled": 7, "set_back": 3, "untold": 2})
    page = render(WINDOW, judge(counted), Findings(counted=counted))
    assert "2 more were repeated after a crash, as promise 3 allows; of 5 more it is unknown why" in page
    unknown = replace(counted, flaws={"doubled": 3, "set_back": 3})
    result = judge(unknown)
    assert "as promise 3 allows" not in render(WINDOW, result, Findings(counted=unknown))
    assert result.account is not None
    assert (result.account.doubled, result.account.doubled_unknown) == (3, 3)


@pytest.mark.parametrize("took_ms", [1 << 64, -(1 << 64), 7_001, "3000", True, None])
def test_an_event_that_cannot_have_taken_so_long_is_drawn_at_its_time(took_ms: object) -> None:
    """Everyone who may write events can write such a duration. Once, no audit of the following week reached a verdict."""
    event = Event(kind="worker-stopped", topic="orders", member="a", at_ms=7_000, detail={"took_ms": took_ms})
    rows = [{"at_ms": at_ms, "came_in": 1, "came_out": 1, "late": 0} for at_ms in (0, 9_000)]
    drawing = svg.timeline(rows, causes([event], "orders"), step_ms=1000)
    assert "<title>worker stopped 00:00:07</title>" in drawing
