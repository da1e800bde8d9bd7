"""A record as the independent reader saw it."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

EXPECT: Final = "faults-expect"
"""The header by which a fault run's producer says what has to become of a record: `ready:<delay in ms>`, `dead:<reason>`,
`either:<delay in ms>` for ready or too large; `race:<delay in ms>` for ready or cancelled;
`at:<ms since the epoch>` for ready then; `moved:<delay in ms>:<ms since the epoch>` for ready after the delay or then."""


class Copy(NamedTuple):
    """`own`: headers of ours, and EXPECT; of one that is there twice the last. Checksums include the length."""

    partition: int
    offset: int
    at_ms: int
    log_append: bool
    key: str
    value: str
    foreign: str
    own: Mapping[str, str]

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset


def read_line(line: str) -> Copy:
    """Of what Dump.java prints."""
    partition, offset, at_ms, kind, key, value, foreign, *own = line.split("\t")
    headers = {name: unquote(text) for name, _, text in (header.partition("=") for header in own)}
    return Copy(int(partition), int(offset), int(at_ms), kind == "L", key, value, foreign, headers)
