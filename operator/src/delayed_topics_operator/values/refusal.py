"""What Kafka refused."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A value of a topic's setting that Kafka did not take a while ago, and its words."""

    value: str
    words: str
