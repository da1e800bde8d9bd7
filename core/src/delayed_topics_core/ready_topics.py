"""Ready topics besides the delayed topic's own, as the registry notes them for workers, clients and audits."""

from typing import NamedTuple


class AllowedTopic(NamedTuple):
    """A topic that records may ask for: since when, and until when if that is over, by the operator's clock."""

    topic: str
    from_ms: int
    until_ms: int | None = None
