"""The drawings of the page, as SVG text. Colours come from the page's CSS classes. Only names need escaping; the rest are numbers."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from delayed_topics_audit.account import Account
from delayed_topics_audit.blame import Cause
from delayed_topics_audit.report.times import format_time

WIDTH: Final = 960
MAX_CAUSES: Final = 40
DAY_MS: Final = 86_400_000
CLOCK: Final = "%H:%M:%S"


def flow(account: Account) -> str:
    """Draws the records that came in on the left, and their fates on the right. The width of a band shows the number of records. A band
    that is not empty is at least a line."""
    terms = [
        (name, getattr(account, name), name.replace("_", "-"))
        for name in ("released", "hopped", "dead_lettered", "cancelled", "pending", "lost")
    ]
    shown = [(name, count, label) for name, count, label in terms if count or name in ("released", "pending", "lost")]
    height, gap, top = 250, 14, 14
    room = height - gap * (len(shown) - 1)
    total = max(1, sum(count for _, count, _ in shown))
    heights = [max(3.0 if count else 1.0, room * count / total) for _, count, _ in shown]
    scale = room / sum(heights)
    heights = [h * scale for h in heights]
    drawn = [f'<text x="0" y="{top + height / 2 - 6:.0f}" class="big">{account.produced:,}</text>']
    drawn.append(f'<text x="0" y="{top + height / 2 + 14:.0f}" class="label">came in</text>')
    left = top + (height - room) / 2
    right = float(top)
    for (name, count, label), h in zip(shown, heights, strict=True):
        x0, x1, middle = 190, 640, 415
        path = (
            f"M{x0} {left:.1f} C{middle} {left:.1f} {middle} {right:.1f} {x1} {right:.1f} "
            f"V{right + h:.1f} C{middle} {right + h:.1f} {middle} {left + h:.1f} {x0} {left + h:.1f} Z"
        )
        drawn.append(f'<path d="{path}" class="band {name}{" none" if not count else ""}"/>')
        y = right + h / 2 + 5
        drawn.append(
            f'<text x="652" y="{y:.1f}" class="label {name}"><tspan class="count">{count:,}</tspan> {label}</text>'
        )
        left += h
        right += h + gap
    return _svg(drawn, height + 2 * top + 6, "produced = " + " + ".join(label for _, _, label in terms))


def histogram(buckets: Mapping[int, int], *, most_ms: int) -> str:
    """Draws a narrow histogram on a logarithmic axis up to `most_ms`, which all delays share."""
    columns, width, height = 60, 420, 34
    top = math.log1p(max(1, most_ms)) or 1.0
    heights = [0.0] * columns
    for bound, count in buckets.items():
        heights[min(columns - 1, int(math.log1p(max(0, bound)) / top * columns))] += count
    tallest = max(heights, default=0) or 1
    bars = [
        f'<rect x="{at * width / columns:.1f}" y="{height - _root(h / tallest) * height:.1f}" width="{width / columns - 1:.1f}" '
        f'height="{_root(h / tallest) * height:.1f}" class="bar"/>'
        for at, h in enumerate(heights)
        if h
    ]
    return _svg(
        [f'<line x1="0" x2="{width}" y1="{height}" y2="{height}" class="axis"/>', *bars], height + 1, "lateness", width
    )


def bars(points: Sequence[tuple[int | None, int]], *, step_ms: int) -> str:
    """Draws counts over time."""
    known = [(at, count) for at, count in points if at is not None]
    if not known:
        return ""
    first, last = known[0][0], known[-1][0] + step_ms
    tallest = max(count for _, count in known)
    width_each = max(1.5, (WIDTH - 70) * step_ms / (last - first) - 0.5)
    drawn = [
        f'<rect x="{_x(at, first, last):.1f}" y="{120 - 105 * count / tallest:.1f}" width="{width_each:.1f}" '
        f'height="{105 * count / tallest:.1f}" class="bar pending"/>'
        for at, count in known
    ]
    return _svg(
        [*drawn, *_time_axis(first, last, 120), *_scale(tallest, 15, 120)], 142, "records that wait, by due time"
    )


def verdicts(audits: Sequence[tuple[int, int, str]]) -> str:
    """Draws a bar for each audit, at the time when the operator froze its offsets. The height is the number of records that it judged."""
    if not audits:
        return ""
    width = max(2.0, min(24.0, (WIDTH - 70) / len(audits) - 1))
    first, last = audits[0][0], audits[-1][0]
    tallest = max(1, *(count for _, count, _ in audits))
    drawn = []
    for at_ms, count, verdict in audits:
        height = max(4.0, 105 * count / tallest)
        x = 60 + (WIDTH - 70 - width) * (at_ms - first) / max(1, last - first)
        drawn.append(
            f'<rect x="{x:.1f}" y="{120 - height:.1f}" width="{width:.1f}" height="{height:.1f}" class="verdict {escape(verdict)}">'
            f"<title>{escape(verdict)} {format_time(at_ms)}: {count:,} records</title></rect>"
        )
    return _svg([*drawn, *_time_axis(first, last, 120), *_scale(tallest, 15, 120)], 142, "verdicts over time")


def timeline(rows: Sequence[Mapping[str, Any]], causes: Sequence[Cause], *, step_ms: int) -> str:
    """Draws the records that came in and came out in each step, late ones in red, with marks for what happened to the workers."""
    if not rows:
        return ""
    first, last = rows[0]["at_ms"], rows[-1]["at_ms"] + step_ms
    tallest = max(max(row["came_in"], row["came_out"]) for row in rows) or 1
    floor, ceiling = 200, 40

    def y(count: int) -> float:
        return floor - (floor - ceiling) * count / tallest

    def line(column: str) -> str:
        counts = {row["at_ms"]: row[column] for row in rows}  # a step without records has no row
        steps = range(first, last, step_ms)
        points = " ".join(f"{_x(at + step_ms / 2, first, last):.1f},{y(counts.get(at, 0)):.1f}" for at in steps)
        return f'<polyline points="{points}" class="line {column}"/>'

    width = max(1.5, (WIDTH - 70) * step_ms / (last - first) - 0.5)
    late = [
        f'<rect x="{_x(row["at_ms"], first, last):.1f}" y="{y(row["late"]):.1f}" width="{width:.1f}" '
        f'height="{floor - y(row["late"]):.1f}" class="bar late"/>'
        for row in rows
        if row["late"]
    ]
    marks = []
    inside = [cause for cause in causes if cause.to_ms >= first and cause.from_ms <= last][-MAX_CAUSES:]
    for at, cause in enumerate(inside):
        x0, x1 = _x(max(first, cause.from_ms), first, last), _x(min(last, cause.to_ms), first, last)
        title = f"<title>{escape(cause.what)} {format_time(cause.from_ms, CLOCK)}</title>"
        marks.append(
            f'<rect x="{x0:.1f}" y="{ceiling}" width="{max(1.5, x1 - x0):.1f}" height="{floor - ceiling}" class="cause">{title}</rect>'
        )
        if len(inside) <= 12:
            marks.append(f'<text x="{x0:.1f}" y="{12 + 11 * (at % 3)}" class="small">{escape(cause.what)}</text>')
    drawn = [
        *marks,
        *late,
        line("came_in"),
        line("came_out"),
        *_time_axis(first, last, floor),
        *_scale(tallest, ceiling, floor),
    ]
    return _svg(drawn, floor + 22, "came in and came out over time")


def _root(share: float) -> float:
    """Returns the height of a bar. It grows with the square root, so that one late record among millions is still visible."""
    return max(0.06, math.sqrt(share))


def _x(at_ms: float, first: int, last: int) -> float:
    return 60 + (WIDTH - 70) * (at_ms - first) / max(1, last - first)


def _time_axis(first: int, last: int, y: float) -> list[str]:
    ticks = [first + (last - first) * part // 4 for part in range(5)]
    form = CLOCK if last - first < DAY_MS else "%d %b %H:%M"
    labels = [
        f'<text x="{_x(at, first, last):.1f}" y="{y + 16}" class="small {"end" if at == last else "middle" if at != first else ""}">'
        f"{format_time(at, form)}</text>"
        for at in ticks
    ]
    return [f'<line x1="60" x2="{WIDTH - 10}" y1="{y}" y2="{y}" class="axis"/>', *labels]


def _scale(tallest: int, top: float, bottom: float) -> list[str]:
    return [
        f'<text x="54" y="{top + 4}" class="small end">{tallest:,}</text>',
        f'<text x="54" y="{bottom + 4}" class="small end">0</text>',
    ]


def _svg(drawn: Sequence[str], height: float, title: str, width: int = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'style="max-width:{width}px">{"".join(drawn)}</svg>'
    )
