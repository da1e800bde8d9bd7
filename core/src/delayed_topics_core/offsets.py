"""A partition and what a consumer group commits for it, by the names that Kafka has for them."""

from typing import NamedTuple

TopicPartitionKey = tuple[str, int]
"""Topic and partition. A TopicPartition of Kafka's client has more fields, and can't be a key."""


class OffsetAndMetadata(NamedTuple):
    """The lowest unfinished offset, and the text that was committed with it: see commit_metadata."""

    offset: int
    metadata: str = ""
