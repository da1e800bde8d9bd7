"""Words that several messages need."""


def counted(number: int, noun: str) -> str:
    """`1 record`, `1,200 records`. `noun`: one whose plural ends in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
