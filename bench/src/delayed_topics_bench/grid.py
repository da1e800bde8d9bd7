"""Tables of figures as text."""

from collections.abc import Sequence
from dataclasses import dataclass

from delayed_topics_bench.results import Figure

__all__ = ["Grid", "count", "hundredth", "percent", "tenth"]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table as text. The first column has names, and all others have figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def count(figure: Figure | None) -> str:
    return _formatted(figure, "{:,.0f}")


def tenth(figure: Figure | None) -> str:
    return _formatted(figure, "{:,.1f}")


def hundredth(figure: Figure | None) -> str:
    return _formatted(figure, "{:,.2f}")


def percent(figure: Figure | None) -> str:
    return _formatted(figure, "{:.0%}")


def _formatted(figure: Figure | None, form: str) -> str:
    if figure is None:
        return "-"
    middle, low, high = (form.format(value) for value in figure)
    return middle if low == high else f"{middle} ({low} to {high})"
