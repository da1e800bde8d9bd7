"""Wording that several messages share."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Returns `1 record` or `1,200 records`. The plural of `noun` must end in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def shortened(names: Sequence[str], most: int = 5) -> str:
    """Returns `a, b`, or `a, b and 3 more` if there are more than `most` names."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
