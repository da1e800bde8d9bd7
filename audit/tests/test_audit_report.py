"""The page's drawings, by what a person reads in them."""

import re

from delayed_topics_audit.report import svg

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
