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
        self._noted: dict[tuple[str, str], tuple[Refusal, float]] = {}

    def record(self, topic: str, settings: Mapping[str, str], words_of: Mapping[str, str]) -> None:
        """Records refused settings. `settings`: the values by name. `words_of`: Kafka's error message for each refused setting."""
        for name, words in words_of.items():
            self._noted[topic, name] = (Refusal(value=settings[name], words=words), self._clock())

    def of(self, topic: str) -> dict[str, Refusal]:
        """Returns the refused settings of a topic by name. Forgets those that are to be tried again."""
        now = self._clock()
        self._noted = {key: entry for key, entry in self._noted.items() if now - entry[1] < AGAIN_SECONDS}
        return {name: refusal for (of, name), (refusal, _) in self._noted.items() if of == topic}
