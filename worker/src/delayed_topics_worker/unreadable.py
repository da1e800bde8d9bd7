"""How far the client has read a partition."""

from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from delayed_topics_worker.owned import Owned


class Span(NamedTuple):
    """What is unread of a partition: from `position` up to `end`, as far as the client knows without asking. An end below 0
    isn't known."""

    position: int
    end: int

    @property
    def unread(self) -> int:
        return max(0, self.end - self.position)


def unread_span(consumer: Consumer, owned: Owned) -> Span:
    """Markers of transactions count as read: the client passes them in silence, and tells by its own position only."""
    if owned.window is None:
        return Span(0, -1)
    position, place = owned.window.position, TopicPartition(owned.topic, owned.partition)
    try:
        _, end = consumer.get_watermark_offsets(place, cached=True)
        if owned.takes_in and end > position:
            position = max(position, consumer.position([place])[0].offset)
    except KafkaException:
        return Span(position, -1)
    return Span(position, end)
