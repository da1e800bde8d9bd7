"""Finds records that wait because a broker has appended them with a time that has not come yet: its clock was wrong, or still is."""

from collections.abc import Iterable, Mapping
from typing import Final

from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.reasons import Reason
from delayed_topics_engine import MAX_SPAN

from delayed_topics_worker.alarms import Alarm, lasting
from delayed_topics_worker.assigned import AssignedPartition, of_topics

MARGIN_MS: Final = 1000
"""Added to what brokers' clocks may differ by, because the brokers' time is an estimate."""


class AheadWatch:
    """Remembers what it has seen, because the record that waits is not the next one at every look if many records come in."""

    def __init__(self) -> None:
        self._until: dict[TopicPartitionKey, tuple[int, float]] = {}
        """By partition, its first unfinished offset, and until when the record there waits."""

    def alarms(self, owned: Iterable[AssignedPartition], *, now: float) -> list[Alarm]:
        """Returns one alarm for each topic, but none for paused topics: they release nothing anyway. `now`: seconds of any steady clock."""
        waiting = {o: until - now for o in owned if not o.served.paused and (until := self._waits_until(o, now)) > now}
        self._until = {o.place: self._until[o.place] for o in waiting}
        return [
            Alarm(topic, Reason.NOT_RELEASING, _message(parts, waiting), about=("ahead", *sorted(map(str, parts))))
            for topic, parts in of_topics(waiting).items()
        ]

    def _waits_until(self, owned: AssignedPartition, now: float) -> float:
        """Returns until when the first unfinished record waits; a time before `now` if it does not wait."""
        if owned.seen is None:
            return 0.0
        offset = owned.seen.lowest_unfinished
        if owned.seen.ahead_ms > owned.served.skew_ms + MARGIN_MS:
            self._until[owned.place] = offset, now + owned.seen.ahead_ms / 1000
        known, until = self._until.get(owned.place, (offset, 0.0))
        return until if known == offset else 0.0


def _message(owned: Iterable[AssignedPartition], waiting: Mapping[AssignedPartition, float]) -> str:
    worst = max(owned, key=lambda o: waiting[o])
    assert worst.seen is not None, "it was seen"
    return (
        f"records of {worst} from offset {worst.seen.lowest_unfinished} on wait, because Kafka has appended them with a time that is "
        f"{lasting(int(waiting[worst] * 1000))} ahead of the brokers' time. They come out when that time has come. If more than {MAX_SPAN} "
        "offsets follow, the records there wait too. The clock of the broker that leads the partition was wrong, or is. Check that all "
        "brokers synchronize their clocks"
    )
