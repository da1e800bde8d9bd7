"""What the registry says of a delayed topic, for whoever sends to it. Sending does not depend on the registry: while it can't be read,
or is lost, the client goes by what it said last."""

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

log = logging.getLogger(__name__)

ANEW_SECONDS: Final = 10.0
"""How long after trouble with the registry to look again, with a new follower. The former one may never get anything again."""


def registry_follower(connection: Connection) -> RegistryFollower:
    # polled only by who sends: nobody would take the statistics of an application that doesn't
    seldom_asked = replace(connection, further={**connection.further, "statistics.interval.ms": "0"})
    return RegistryFollower(seldom_asked, client_id="delayed-topics-client")


class FollowedLayout(Closing):
    """Of one topic, from any number of threads. `follower` has read `layout`, and is closed with this."""

    def __init__(self, connection: Connection, follower: RegistryFollower, layout: LayoutRecord) -> None:
        self._connection = connection
        self._follower: RegistryFollower | None = follower
        self._layout = layout
        self._looking = threading.Lock()
        self._look_at = self._looked_at = time.monotonic()
        self._has_topic = True
        """The follower has read of it. A registry that was restored may not have the topic yet."""
        self._removed = False
        self._in_trouble = False

    def get(self, *, age_seconds: float = 0.0) -> LayoutRecord:
        """What the registry said that long ago or later. Raises NotDelayedTopic once the topic was removed, until it is there again."""
        now = time.monotonic()
        if now >= max(self._looked_at + age_seconds, self._look_at) and self._looking.acquire(blocking=False):
            try:  # else another thread does
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
