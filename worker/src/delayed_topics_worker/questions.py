"""Requests to Kafka about many partitions."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeVar

from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_kafka.errors import KafkaCallError

T = TypeVar("T")

AT_ONCE: Final = 100
"""Partitions of one request. An answer about a thousand would hold Python's global interpreter lock for 20 ms and more, and block the
worker's thread."""


def ask(
    question: Callable[[list[TopicPartitionKey]], Mapping[TopicPartitionKey, T | KafkaCallError]],
    places: Collection[TopicPartitionKey],
) -> dict[TopicPartitionKey, T]:
    """Returns the answers without those that are errors."""
    answers = (answer for part in _parts(list(places)) for answer in question(part).items())
    return {place: answer for place, answer in answers if not isinstance(answer, KafkaCallError)}


def _parts(places: list[TopicPartitionKey]) -> Iterator[list[TopicPartitionKey]]:
    for at in range(0, len(places), AT_ONCE):
        yield places[at : at + AT_ONCE]
