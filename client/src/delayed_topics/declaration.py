"""A handler that declares the delayed topic that it needs."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from delayed_topics_core.names import check_topic_name
from delayed_topics_kafka.connection import Connection

from delayed_topics.handlers import Handler, check_handler
from delayed_topics.record import Record
from delayed_topics.topic import DelayedTopic


class DeclaredHandler:
    """A handler and the delayed topic that it consumes. It can be called like the function that it was made from."""

    def __init__(self, handler: Handler, *, topic: str, delay_seconds: Sequence[int], retry_cap: int) -> None:
        """Raises IllegalTopicName, ValueError for an empty delay list, and TypeError as Consumer does."""
        check_topic_name(topic)
        check_handler(handler)
        if not delay_seconds:
            raise ValueError(
                "delay_seconds must have at least one entry. The first is the wait before the first attempt, which may be 0"
            )
        self._handler = handler
        self.topic = topic
        self.delay_seconds = tuple(delay_seconds)
        self.retry_cap = retry_cap
        self.__doc__ = handler.__doc__

    def __call__(self, record: Record) -> object:
        return self._handler(record)

    def manifest(self) -> str:
        """Returns the DelayedTopic resource that this handler needs, as YAML."""
        name = re.sub(r"[^a-z0-9]+", "-", self.topic.lower()).strip("-")
        spec: dict[str, Any] = {} if name == self.topic else {"topic": self.topic}
        spec |= {"delaySeconds": list(self.delay_seconds), "retryCap": self.retry_cap}
        resource = {
            "apiVersion": "delayedtopics.io/v1alpha1",
            "kind": "DelayedTopic",
            "metadata": {"name": name},
            "spec": spec,
        }
        return yaml.safe_dump(resource, sort_keys=False)

    def run(self, bootstrap: str | Mapping[str, Any] | Connection, group: str, *, member: str | None = None) -> None:
        """Connects, and consumes until SIGTERM or SIGINT. Raises what DelayedTopic.connect and DelayedTopic.consume raise."""
        with DelayedTopic.connect(bootstrap, self.topic) as topic:
            topic.consume(group, self, member=member)


def delayed_topic(*, topic: str, delay_seconds: Sequence[int], retry_cap: int) -> Callable[[Handler], DeclaredHandler]:
    """Decorates a handler with the delayed topic that it consumes.

    @delayed_topic(topic="orders", delay_seconds=[0, 10, 60], retry_cap=5)
    def ship(record: Record) -> None: ...

    print(ship.manifest())
    ship.run("kafka:9092", group="shipping")
    """

    def declare(handler: Handler) -> DeclaredHandler:
        return DeclaredHandler(handler, topic=topic, delay_seconds=delay_seconds, retry_cap=retry_cap)

    return declare
