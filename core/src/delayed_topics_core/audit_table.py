"""The table of places that an audit writes, as far as its writer and its readers have to agree. docs/audit-table.md has its columns.

A place is a topic, a partition and an offset in one number: six bits for the topic, 14 for the partition, 43 for the offset. A hundred
thousand records a second fill a partition of that size in under three years. The same number is ascending within a partition, so
that comparing places compares offsets.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.errors import UnreadableRecord

VERSION: Final = 1
"""To be raised with whatever a reader of before would misread. It passes over further columns, and shows further flaws by their bit."""

OFFSET_BITS: Final = 43
PARTITION_BITS: Final = 14
MAX_OFFSET: Final = 2**OFFSET_BITS - 1
MAX_PARTITION: Final = 2**PARTITION_BITS - 1

TOPIC_LETTERS: Final = ("f", "d", "r", "dead-letter")
"""How names of places begin, for front, delays, ready and dead-letter topic. The index is the topic number; other ready topics follow."""
FRONT, DELAYS, READY, DEAD_LETTER = range(len(TOPIC_LETTERS))

PENDING: Final = "pending"
LOST: Final = "lost"
FATES: Final = ("released", "dead_lettered", "hopped", PENDING, LOST, "cancelled")
"""The number of a fate is its index, in tables that are kept. A record that has outcomes of two kinds is in the account of one of them;
`doubled` tells of the other."""

FLAW_MEANINGS: Final[Mapping[str, str]] = {
    "lost": "The record is committed, and came out nowhere.",
    "forged": "An outcome names this record as its origin, but the record was not there, or has another root.",
    "early": "The record was released before it was due.",
    "late": "The record was released more than maxLatenessMs after it was due.",
    "doubled": "The record came out, or hopped, more than once.",
    "changed": "The key, the value or a header of a copy differs.",
    "wrong_partition": "The record was released in another ready topic or partition than its own.",
    "wrong_attempt": "dt-attempt of a release is not what it has to be.",
    "over_cap": "The record was released above the retry cap.",
    "foreign": "The record at this place of the ready topic is not a worker's.",
    "overdue": "The record is pending, and has been due for more than maxLatenessMs.",
    "wrongly_dead_lettered": "The record or the control topic contradicts dt-reason.",
    "perhaps_unasked": (
        "The record was released at another time than it was to, and it is not known whether anyone asked for that."
    ),
}
FLAW_NAMES: Final = tuple(FLAW_MEANINGS)
"""The bit of a flaw is 1 << its index, in tables that are kept."""

DESCRIBED: Final = "delayed_topics"
"""Metadata of this name, of the column `place`, describe the table: see TableDescription."""

INDEX: Final = "audits"
"""The folder beside those of the audits that has a row for each of them."""


def index_file(topic: str, frozen_at_ms: int, audit: str) -> str:
    """Of an audit's row, below the folder of all audits. It begins with the time: the newest are found without a look into all of them."""
    return f"{INDEX}/topic={topic}/{frozen_at_ms:013}-{audit}.parquet"


@dataclass(frozen=True, kw_only=True, slots=True)
class TableDescription:
    """Which audit wrote a table, and of what.

    audit          the name of its Job; frozen_at_ms: when the operator froze the offsets
    topics         by topic number
    topic_ids      Kafka's ids of these
    sample_one_in  one record in so many is in the table, with its copies
    """

    audit: str
    frozen_at_ms: int
    topics: tuple[str, ...]
    topic_ids: tuple[str, ...]
    sample_one_in: int = 1
    version: int = VERSION

    @classmethod
    def of(cls, window: AuditWindow, audit: str) -> "TableDescription":
        return cls(
            audit=audit,
            frozen_at_ms=window.frozen_at_ms,
            topics=window.topics,
            topic_ids=tuple(window.topic_ids.get(topic, "") for topic in window.topics),
            sample_one_in=window.sample_one_in,
        )

    def metadata(self) -> dict[str, Any]:
        """Of the column `place`, for Spark."""
        return {DESCRIBED: asdict(self)}

    @classmethod
    def decode(cls, schema: str) -> "TableDescription":
        """From the JSON of Spark's schema, which each of its Parquet files has. Raises UnreadableRecord."""
        try:
            (column,) = (column for column in json.loads(schema)["fields"] if column["name"] == "place")
            said = column["metadata"][DESCRIBED]
            version = int(said["version"])
            table = cls._of_this_version(said) if version == VERSION else None
        except (ValueError, TypeError, KeyError, RecursionError) as e:
            raise UnreadableRecord("it does not say which audit wrote it, so no audit did") from e
        if table is None:
            raise UnreadableRecord(
                f"it has version {version}, and this program reads version {VERSION}. Use the version that the audit has"
            )
        return table

    @classmethod
    def _of_this_version(cls, said: Mapping[str, Any]) -> "TableDescription":
        return cls(
            audit=str(said["audit"]),
            frozen_at_ms=int(said["frozen_at_ms"]),
            topics=tuple(map(str, said["topics"])),
            topic_ids=tuple(map(str, said["topic_ids"])),
            sample_one_in=int(said["sample_one_in"]),
        )
