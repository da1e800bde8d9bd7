"""Follows what the registry says about a delayed topic, for sending to it. Sending does not depend on the registry: while the registry
can't be read or is lost, the client uses the layout that it read last."""

import logging
import threading
import time
from dataclasses import replace
from typing import Final

from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaCallError
from delayed_topics_kafka.registry import RegistryFollower

from delayed_topics.errors import NotDelayedTopic
from delayed_topics.producers import WITHOUT_STATISTICS

log = logging.getLogger(__name__)

ANEW_SECONDS: Final = 10.0
"""How long after an error of the registry, or an outage of all brokers, the client reads it again. It uses a new follower, because the old
one may be stranded."""


def registry_follower(connection: Connection) -> RegistryFollower:
    # only `send` polls the follower, so its statistics would pile up in an application that does not send, see stranded.py
    without_statistics = replace(connection, further={**connection.further, **WITHOUT_STATISTICS})
    return RegistryFollower(without_statistics, client_id="delayed-topics-client")


class FollowedLayout(Closing):
    """The layout of one topic, for many threads. `follower` has read `layout`, and `close` closes it."""

    def __init__(self, connection: Connection, follower: RegistryFollower, layout: LayoutRecord) -> None:
        self._connection = connection
        self._follower: RegistryFollower | None = follower
        self._layout = layout
        self._looking = threading.Lock()
        self._look_at = self._looked_at = time.monotonic()
        self._has_topic = True
        """Whether the follower has read a record of this topic. A registry that was restored may not have one yet."""
        self._removed = False
        self._in_trouble = False

    def get(self, *, age_seconds: float = 0.0) -> LayoutRecord:
        """Returns the layout as of `age_seconds` ago or later. Raises NotDelayedTopic while the topic is removed from the registry."""
        now = time.monotonic()
        if now >= max(self._looked_at + age_seconds, self._look_at) and self._looking.acquire(blocking=False):
            try:  # if another thread holds the lock, it reads the registry
                self._looked_at = now
                self._look()
            finally:
                self._looking.release()
        if self._removed:
            raise not_there(self._layout.topic, self._connection)
        return self._layout

    def close(self) -> None:
        with self._looking:
            self._look_at = float("inf")
            self._drop()

    def _look(self) -> None:
        try:
            follower = self._follower
            if follower is None:
                follower = self._follower = registry_follower(self._connection)
                self._has_topic = False
            follower.poll(0)
            follower.check_brokers()
        except KafkaCallError as e:
            if not self._in_trouble:
                what = "the client of topic %s can't follow the registry, and goes by what it said last: %s"
                log.warning(what, self._layout.topic, e)
            self._in_trouble = True
            self._look_at = time.monotonic() + ANEW_SECONDS
            self._drop()
            return
        if not follower.at_end:
            return
        record = follower.state.layouts.get(self._layout.topic)
        if record is not None:
            self._layout = record.served or self._layout
            self._has_topic, self._removed, self._in_trouble = True, False, False
        elif self._has_topic:
            self._removed = True

    def _drop(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None


def not_there(topic: str, connection: Connection) -> NotDelayedTopic:
    return NotDelayedTopic(
        f"topic {topic} is not in {REGISTRY_TOPIC} of Kafka at {connection.bootstrap_servers}. "
        "Either create a DelayedTopic resource for it, or connect to the Kafka cluster that has it"
    )
