"""Ends the transactions that former producers have left open."""

from collections.abc import Mapping, Sequence
from functools import partial

from confluent_kafka import Producer

from delayed_topics_kafka.calls import AdminCalls, Wait, nothing
from delayed_topics_kafka.errors import KafkaCallError


class FencingCalls(AdminCalls):
    """Admin calls about transactional ids."""

    def fence(self, transactional_ids: Sequence[str]) -> dict[str, KafkaCallError | None]:
        """Ends the open transactions of the producers with these ids, and fences these producers. The client library has no admin
        call for that, so this begins a producer with each id."""

        deadline = self._deadline()

        def send(pending: list[str], _: float) -> Mapping[str, Wait]:
            return {name: partial(begin_as, name) for name in pending}

        def begin_as(name: str, _: float) -> None:
            producer = Producer({**self._config, "transactional.id": name})
            producer.init_transactions(max(0.1, deadline.remaining_seconds))

        return self._many(transactional_ids, send, lambda name: f"fencing transactional id {name}", nothing, deadline)
