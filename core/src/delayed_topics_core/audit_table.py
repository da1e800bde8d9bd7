"""The parts of an audit's table of places on which its writer and its readers must agree. docs/audit-table.md lists the columns.

A place is a topic, a partition and an offset in one number: six bits for the topic, 14 for the partition, 43 for the offset. At a hundred
thousand records a second, a partition reaches the highest offset in just under three years. Within a partition, places ascend with
offsets, so comparing places compares offsets.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.errors import UnreadableRecord

VERSION: Final = 1
"""Raise this with each change that an older reader would misread. A reader ignores columns that it does not know, and shows a flaw that it
does not know by its bit."""

OFFSET_BITS: Final = 43
PARTITION_BITS: Final = 14
MAX_OFFSET: Final = 2**OFFSET_BITS - 1
MAX_PARTITION: Final = 2**PARTITION_BITS - 1

TOPIC_LETTERS: Final = ("f", "d", "r", "dead-letter")
"""The first part of a place's name, for the front, delays, ready and dead-letter topic. The index is the topic number; the numbers of other
ready topics follow."""
FRONT, DELAYS, READY, DEAD_LETTER = range(len(TOPIC_LETTERS))

PENDING: Final = "pending"
LOST: Final = "lost"
FATES: Final = ("released", "dead_lettered", "hopped", PENDING, LOST, "cancelled")
"""The number of a fate is its index. Never change these numbers, because tables that are kept contain them. A record that has outcomes of
two kinds is counted once in the account; the flaw `doubled` shows the other outcome."""

FLAW_MEANINGS: Final[Mapping[str, str]] = {
    "lost": "The record is committed, and came out nowhere.",
    "forged": (
        "An outcome names this record as its origin, but the record was not there, or has another root. "
        "Or the record is a hop without an origin."
    ),
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
    "wrongly_released": "The record was released, although a worker has to refuse it because of its headers.",
}
FLAW_NAMES: Final = tuple(FLAW_MEANINGS)
"""The bit of a flaw is 1 << its index. Never change these bits, because tables that are kept contain them."""

DESCRIBED: Final = "delayed_topics"
"""The key, in the metadata of the column `place`, of the description of the table. See TableDescription."""

INDEX: Final = "audits"
"""The folder, beside the folders of the audits, that has one row for each audit."""


def index_file(topic: str, frozen_at_ms: int, audit: str) -> str:
    """Returns the path of an audit's row below the folder of all audits. The file name begins with the time, so that a reader finds the
    newest audits without opening every file."""
    return f"{INDEX}/topic={topic}/{frozen_at_ms:013}-{audit}.parquet"


@dataclass(frozen=True, kw_only=True, slots=True)
class TableDescription:
    """Says which audit wrote a table, and which topics it covers.

    audit          the name of the audit's Job
    frozen_at_ms   when the operator froze the offsets, in milliseconds since the epoch
    topics         the topics, by topic number
    topic_ids      Kafka's ids of these topics
    sample_one_in  the table has one record in so many, with its copies
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
        """Returns the metadata of the column `place`, in the form that Spark needs."""
        return {DESCRIBED: asdict(self)}

    @classmethod
    def decode(cls, schema: str) -> "TableDescription":
        """Reads the description from the JSON of Spark's schema, which each Parquet file of the table contains. Raises UnreadableRecord."""
        try:
            (column,) = (column for column in json.loads(schema)["fields"] if column["name"] == "place")
            description = column["metadata"][DESCRIBED]
            version = int(description["version"])
            table = cls._of_this_version(description) if version == VERSION else None
        except (ValueError, TypeError, KeyError, RecursionError) as e:
            raise UnreadableRecord("it does not say which audit wrote it, so no audit did") from e
        if table is None:
            raise UnreadableRecord(
                f"it has version {version}, and this program reads version {VERSION}. Use the version that the audit has"
            )
        return table

    @classmethod
    def _of_this_version(cls, description: Mapping[str, Any]) -> "TableDescription":
        return cls(
            audit=str(description["audit"]),
            frozen_at_ms=int(description["frozen_at_ms"]),
            topics=tuple(map(str, description["topics"])),
            topic_ids=tuple(map(str, description["topic_ids"])),
            sample_one_in=int(description["sample_one_in"]),
        )
