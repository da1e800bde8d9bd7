"""A record as the independent reader saw it."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

EXPECT: Final = "faults-expect"
"""The header in which the producer of a trial says what has to become of a record: `ready:<delay in ms>`; `dead:<reason>`;
`either:<delay in ms>`: released after the delay, or dead as too large; `race:<delay in ms>`: released after the delay, or cancelled;
`at:<ms since the epoch>`: released at that time; `moved:<delay in ms>:<ms since the epoch>`: released after the delay or at that time."""


class Copy(NamedTuple):
    """One record of a topic.

    `key`, `value` and `foreign` (the foreign headers) are checksums; those of key and value include the length. `own` has this project's
    headers and EXPECT; of a header that occurs twice, the last one.
    """

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
    """Parses one line that Dump.java prints."""
    partition, offset, at_ms, kind, key, value, foreign, *own = line.split("\t")
    headers = {name: unquote(text) for name, _, text in (header.partition("=") for header in own)}
    return Copy(int(partition), int(offset), int(at_ms), kind == "L", key, value, foreign, headers)
