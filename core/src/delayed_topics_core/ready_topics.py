"""Ready topics besides the delayed topic's own, as the registry records them for workers, clients and audits."""

from typing import NamedTuple


class AllowedTopic(NamedTuple):
    """A topic that records may request since `from_ms`, and until `until_ms` if this is over. Both are in milliseconds, by the operator's
    clock."""

    topic: str
    from_ms: int
    until_ms: int | None = None
