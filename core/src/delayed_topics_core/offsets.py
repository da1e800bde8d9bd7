"""A partition, and what a consumer group commits for it, under the names that Kafka uses."""

from typing import NamedTuple

TopicPartitionKey = tuple[str, int]
"""Topic and partition. The client's TopicPartition can't be a key, because it has further fields."""


class OffsetAndMetadata(NamedTuple):
    """The lowest unfinished offset, and the text that was committed with it (see commit_metadata)."""

    offset: int
    metadata: str = ""
