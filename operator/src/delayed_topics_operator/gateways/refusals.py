"""Settings of topics that Kafka refused, remembered so that the operator does not try them again in each pass."""

import time
from collections.abc import Callable, Mapping

from delayed_topics_operator.values.refusal import Refusal

AGAIN_SECONDS = 600.0
"""The time until a setting is tried again. The owner of Kafka may have allowed it in the meantime."""


class Refusals:
    """The refused settings of one Kafka cluster."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted: dict[str, dict[str, tuple[Refusal, float]]] = {}
        """By topic and setting, with the time of the refusal."""
        self._swept_at = clock()

    def record(self, topic: str, settings: Mapping[str, str], words_of: Mapping[str, str]) -> None:
        """Records refused settings. `settings`: the values by name. `words_of`: Kafka's error message for each refused setting."""
        now = self._clock()
        if now - self._swept_at >= AGAIN_SECONDS:  # of topics that no one asks for any more
            self._swept_at = now
            self._noted = {name: noted for name in self._noted if (noted := self._lasting(name))}
        for name, words in words_of.items():
            self._noted.setdefault(topic, {})[name] = (Refusal(value=settings[name], words=words), now)

    def of(self, topic: str) -> dict[str, Refusal]:
        """Returns the refused settings of a topic by name, without those that are to be tried again."""
        return {name: refusal for name, (refusal, _) in self._lasting(topic).items()}

    def _lasting(self, topic: str) -> dict[str, tuple[Refusal, float]]:
        now = self._clock()
        return {name: entry for name, entry in self._noted.get(topic, {}).items() if now - entry[1] < AGAIN_SECONDS}
