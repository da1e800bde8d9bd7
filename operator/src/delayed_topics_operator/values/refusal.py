"""A setting that Kafka refused."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A value of a topic's setting that Kafka refused a while ago. `words`: Kafka's error message."""

    value: str
    words: str
