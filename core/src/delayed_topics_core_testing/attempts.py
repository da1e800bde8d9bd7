"""The attempt number that a record's headers give it. The engine and the audit must agree on each of these cases."""

from typing import Final

from delayed_topics_core.headers import Header

ATTEMPTS: Final[tuple[tuple[tuple[Header, ...], int], ...]] = (
    ((), 0),
    ((("dt-attempt", b"007"),), 7),
    ((("dt-attempt", b"1"), ("dt-released", b"1:6")), 2),
    ((("dt-attempt", b"9"), ("dt-released", b"4:6")), 9),
    ((("dt-released", b"4:"),), 5),
    ((("dt-released", b"4:6"), ("dt-released", b"8:6")), 9),
    ((("dt-released", b"forged"), ("dt-released", b"2:6")), 3),
    ((("dt-released", b"2147483646:1"),), 2147483647),
    # A value that no worker would have written is ignored.
    ((("dt-released", b"4"),), 0),
    ((("dt-attempt", b"1"), ("dt-released", b"5")), 1),
    ((("dt-released", b" 4:6"),), 0),
    ((("dt-released", b"+4:6"),), 0),
    ((("dt-released", b"-4:6"),), 0),
    ((("dt-released", b"00000000004:6"),), 0),
    ((("dt-released", b"2147483648:6"),), 0),
    ((("dt-released", b":6"),), 0),
    ((("dt-released", None),), 0),
    ((("Dt-Released", b"4:6"),), 0),
)
"""Pairs of a record's headers and its attempt number."""
