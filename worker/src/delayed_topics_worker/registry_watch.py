"""Follows the registry: what it says about the topics that are served, and what Kafka says if it can't be read."""

import logging
from collections.abc import Callable
from typing import Final

from delayed_topics_core.registry_state import RegistryState
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaCallError, KafkaRefused, RegistryLost
from delayed_topics_kafka.registry import RegistryFollower

from delayed_topics_worker.served import ServedTopics

log = logging.getLogger(__name__)

CATCH_UP_SECONDS: Final = 2.0
ANEW_SECONDS: Final = 10.0
"""The interval at which the worker looks for a new registry, after the one that it followed is gone."""


class RegistryWatch(Closing):
    """Belongs to one thread. `caught_up`: the registry was read to its end once. `refused`: why Kafka does not let the worker read it, or
    that it is lost."""

    def __init__(
        self, connection: Connection, served: ServedTopics, seconds: Callable[[], float], *, client_id: str
    ) -> None:
        self.caught_up = False
        self.refused: KafkaRefused | None = None
        self._served = served
        self._seconds = seconds
        self._connection = connection
        self._client_id = client_id
        self._follower = self._new_follower()
        self._problem: str | None = None
        self._look_at = float("-inf")

    def read(self, *, whole: bool = False) -> set[str]:
        """Reads on, and returns the front topics that have changed. `whole`: waits for everything that was written until now."""
        try:
            if isinstance(self.refused, RegistryLost):
                self._look_for_another()
            elif whole or not self.caught_up:
                self._follower.catch_up(CATCH_UP_SECONDS)
                self.caught_up = True
            else:
                self._follower.poll(0)
        except KafkaCallError as e:
            if str(e) != self._problem:
                log.warning("%s", e)
            self._problem = str(e)
            if isinstance(e, KafkaRefused):
                self.refused = e
            return set()
        if not isinstance(self.refused, RegistryLost):
            self._problem = self.refused = None
        return self._served.follow(self._follower.state)

    def close(self) -> None:
        self._follower.close()

    def _new_follower(self) -> RegistryFollower:
        return RegistryFollower(self._connection, client_id=self._client_id)

    def _look_for_another(self) -> None:
        """Looks for a restored registry. The worker follows it once it has a serving layout for all topics that are served. Before that, an
        operator has to accept it.

        The former registry reports once that it is lost, and then delivers nothing more.
        """
        if self._seconds() < self._look_at:
            return
        self._look_at = self._seconds() + ANEW_SECONDS
        follower = self._new_follower()
        try:
            follower.catch_up(CATCH_UP_SECONDS)
            if not self._serves_all(follower.state):
                return
            follower, self._follower = self._follower, follower
        except KafkaCallError as e:
            log.info("the registry is still lost: %s", e)
            return
        finally:
            follower.close()
        log.info("the registry was restored, and the worker follows it")
        self.refused = None

    def _serves_all(self, state: RegistryState) -> bool:
        serving = [served.topic for served in self._served if served.layout is not None]
        return all((layout := state.layouts.get(topic)) is not None and layout.served is not None for topic in serving)
