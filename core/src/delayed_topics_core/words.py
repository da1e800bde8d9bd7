"""Words that several messages need."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """`1 record`, `1,200 records`. `noun`: one whose plural ends in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def shortened(names: Sequence[str], most: int = 5) -> str:
    """`a, b`, or `a, b and 3 more` when there are more than `most`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
