"""Renders the account of an audit as one HTML page that loads nothing else: its template, style, drawings and wording.

The page gets finished numbers, so code that counts or judges does not belong here.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delayed_topics_core.audit_window import AuditWindow
from jinja2 import Environment, PackageLoader, select_autoescape

from delayed_topics_audit.account import Account, Result
from delayed_topics_audit.findings import Findings, Row
from delayed_topics_audit.flaws import BROKEN_PROMISES
from delayed_topics_audit.lateness import percentiles
from delayed_topics_audit.report import svg
from delayed_topics_audit.report.times import format_time

MAX_PARTITIONS: Final = 500
"""The maximum number of rows in the table of partitions, so that the page stays small however large the topic is."""

_ALWAYS_SHOWN: Final = ("lost", "early", "doubled_beyond_promise")


@dataclass(frozen=True, kw_only=True)
class PromiseRow:
    """A promise, and how many records broke it."""

    promise: str
    broken: int
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class DelayRow:
    """Lateness of the releases of one delay."""

    name: str
    releases: int
    percentiles_ms: Mapping[str, int]
    histogram: str


def render(window: AuditWindow, result: Result, findings: Findings | None) -> str:
    shown = _shown(window, result.account, findings) if findings is not None and result.account is not None else {}
    return _page("page.html.jinja", window=window, result=result, account=result.account, **shown)


def render_index(topic: str, rows: Sequence[Row], *, older: int, unreadable: int) -> str:
    """Renders the page of a topic. `rows` are rows of the table of audits, the newest first. `older` and `unreadable` are the numbers of
    further audits that are older or can't be read."""
    broken = [check.name for check in BROKEN_PROMISES]
    return _page(
        "index.html.jinja",
        topic=topic,
        rows=rows,
        older=older,
        unreadable=unreadable,
        counts=Counter(row["verdict"] for row in rows),
        verdicts=svg.verdicts([(row["frozen_at_ms"], row["produced"] or 0, row["verdict"]) for row in reversed(rows)]),
        broken=[name for name in broken if name in _ALWAYS_SHOWN or any(row[name] for row in rows)],
    )


def _page(template: str, **shown: object) -> str:
    environment = Environment(
        loader=PackageLoader("delayed_topics_audit.report", "."),
        autoescape=select_autoescape(default=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, time=format_time, ms=duration)
    return environment.get_template(template).render(shown)


def _shown(window: AuditWindow, account: Account, findings: Findings) -> dict[str, object]:
    partitions = sorted(findings.counted.partitions, key=lambda p: (p.topic_letter != "f", p.partition))
    worst_first = sorted(partitions, key=lambda p: -p.lost)[:MAX_PARTITIONS]
    return {
        "percentiles": findings.counted.percentiles_ms,
        "flow": svg.flow(account),
        "promises": _promises(window, account),
        "delays": _delays(findings.lateness),
        "hours": _hours(findings.lateness),
        "pending": svg.bars(
            [(row["due_ms"], row["count"]) for row in _ordered(findings.pending, "due_ms")],
            step_ms=findings.due_step_ms,
        ),
        "timeline": svg.timeline(_ordered(findings.timeline, "at_ms"), findings.causes, step_ms=findings.step_ms),
        "blamed": _blamed(findings),
        "chains": _ordered(findings.chains, "attempts"),
        "partitions": sorted(worst_first, key=lambda p: (p.topic_letter != "f", p.partition)),
        "left_out": len(partitions) - len(worst_first),
    }


def _promises(window: AuditWindow, account: Account) -> list[PromiseRow]:
    within, unknown = account.doubled_within_promise, account.doubled_unknown
    doubled = [
        *([f"{within:,} more were repeated after a crash, as promise 3 allows"] if within else ()),
        *([f"of {unknown:,} more it is unknown why they were repeated"] if unknown else ()),
    ]
    remarks = {
        "doubled_beyond_promise": "; ".join(doubled),
        "over_cap": f"which is {window.retry_cap}",
    }
    return [
        *(
            PromiseRow(promise=check.promise, broken=getattr(account, check.name), remark=remarks.get(check.name, ""))
            for check in BROKEN_PROMISES
        ),
        PromiseRow(
            promise=f"Late by no more than {duration(window.max_lateness_ms)}",
            broken=account.late,
            remark="a goal, not a promise",
        ),
    ]


def duration(ms: float) -> str:
    """Returns a duration such as 7 ms, 1.5 s, 3 min, 2 h or 5 d."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if abs(ms) >= size:
            return f"{ms / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{ms:.0f} ms"


def _delays(lateness: Sequence[Row]) -> list[DelayRow]:
    by_delay: dict[tuple[int | None, bool], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in lateness:
        by_delay[row["delay_ms"], row["asked"]][row["bucket_ms"]] += row["count"]
    known = sorted(by_delay.items(), key=lambda entry: (entry[0][0] is None, entry[0][0] or 0, not entry[0][1]))
    most = max((bound for buckets in by_delay.values() for bound in buckets), default=1)
    return [
        DelayRow(
            name=_name(delay_ms, asked=asked),
            releases=sum(buckets.values()),
            percentiles_ms={**percentiles(buckets.items()), "max": max(buckets)},
            histogram=svg.histogram(buckets, most_ms=most),
        )
        for (delay_ms, asked), buckets in known
    ]


def _name(delay_ms: int | None, *, asked: bool) -> str:
    if delay_ms is not None:
        return duration(delay_ms)
    return "due time of its own" if asked else "delay not known"


def _hours(lateness: Sequence[Row]) -> list[dict[str, object]]:
    by_hour: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in lateness:
        by_hour[row["hour_ms"]][row["bucket_ms"]] += row["count"]
    return [
        {"hour_ms": hour_ms, "releases": sum(buckets.values()), **percentiles(buckets.items()), "max": max(buckets)}
        for hour_ms, buckets in sorted(by_hour.items())[-48:]
    ]


def _blamed(findings: Findings) -> list[tuple[str, int]]:
    """Returns the number of late records for each cause, the worst first. Unexplained ones come last."""
    known = {nr: count for nr, count in findings.blamed.items() if nr is not None}
    explained = [
        (f"{findings.causes[nr].what} at {format_time(findings.causes[nr].from_ms)}", count)
        for nr, count in sorted(known.items(), key=lambda entry: -entry[1])
    ]
    unexplained = findings.blamed.get(None, 0)
    return [*explained[:10], *([("unexplained", unexplained)] if unexplained else [])]


def _ordered(rows: Sequence[Row], column: str) -> list[Row]:
    return sorted(rows, key=lambda row: (row[column] is None, row[column] or 0))


def _number(value: int) -> str:
    return f"{value:,}"
