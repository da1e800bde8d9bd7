"""Alarms that follow from the offsets of partitions: retention may remove waiting records, or a partition is silent for too long."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import cast

import pytest
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.reasons import Reason
from delayed_topics_core.settings import topic_settings
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaCallError, KafkaUnreachable
from delayed_topics_worker.alarms import Alarm, Unreadable, joined, lasting, of_unreadable
from delayed_topics_worker.assigned import AssignedPartition
from delayed_topics_worker.known_offsets import Offsets
from delayed_topics_worker.questions import AT_ONCE
from delayed_topics_worker.retention import RetentionWatch, Risk, Unreleased, margin_ms
from delayed_topics_worker.served import Served
from delayed_topics_worker.unreadable import UNREADABLE_SECONDS, SilentPartitions, Span
from hypothesis import given
from hypothesis import strategies as st

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NOW_MS = 1_700_000_000_000
LANE = ("orders.delays", 3)


class Log:
    """Stands in for Kafka, with partitions whose records have the given ages. `largest_request` counts the partitions of a lookup."""

    def __init__(
        self, retention_ms: int, ages_ms: Mapping[TopicPartitionKey, Sequence[int]], *, start: int = 0
    ) -> None:
        self.retention_ms: int | KafkaCallError = retention_ms
        self.appended_ms = {place: [NOW_MS - age for age in ages] for place, ages in ages_ms.items()}
        self.start = start
        self.silent = False
        self.largest_request = 0

    def topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, str] | KafkaCallError]:
        known = self.retention_ms
        return {name: known if isinstance(known, KafkaCallError) else {"retention.ms": str(known)} for name in names}

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartitionKey, int]
    ) -> dict[TopicPartitionKey, int | KafkaCallError | None]:
        assert all(at_ms >= 0 for at_ms in times_ms.values()), (
            "Kafka takes a negative time for one of its special offsets"
        )
        self.largest_request = max(self.largest_request, len(times_ms))
        if self.silent:
            return dict.fromkeys(times_ms, KafkaUnreachable("nobody is there"))
        found = {place: max(self.start, bisect_left(self.appended_ms[place], at)) for place, at in times_ms.items()}
        return {place: at if at < len(self.appended_ms[place]) else None for place, at in found.items()}

    def list_offsets(self, places: Sequence[TopicPartitionKey], which: str) -> dict[TopicPartitionKey, int]:
        return {place: self.start if which == "earliest" else len(self.appended_ms[place]) for place in places}


class Retained:
    """A `RetentionWatch` of the partitions of a `Log`."""

    def __init__(self, log: Log, *, delay_ms: int = 0) -> None:
        self._delay_ms = delay_ms
        self._places = list(log.appended_ms)
        self._watch = RetentionWatch(cast(KafkaAdmin, log))

    def look(self, unreleased: int = 0, *, later_ms: int = 0) -> dict[TopicPartitionKey, Risk]:
        """Returns what is at risk while no record from the offset `unreleased` on is released."""
        partitions = [Unreleased(place, unreleased, self._delay_ms, 2 * DAY_MS) for place in self._places]
        self._watch.see(partitions, NOW_MS + later_ms)
        return dict(self._watch.risks)


@given(
    st.integers(0, 30 * DAY_MS // 1000),
    st.integers(60, 31_536_000),
    st.floats(0, 1),
)
def test_a_record_that_waits_for_its_delay_is_never_at_risk(delay: int, budget: int, waited: float) -> None:
    settings = topic_settings(
        role="delays",
        delay_seconds=(0, delay),
        outage_budget_seconds=budget,
        dead_letter_retention_seconds=0,
        replication_factor=1,
    )
    age_ms = int(waited * delay * 1000)
    log = Log(int(settings["retention.ms"]), {LANE: [age_ms]})

    assert Retained(log, delay_ms=delay * 1000).look() == {}


def test_the_time_is_told_at_which_the_first_unreleased_record_may_be_removed() -> None:
    ages = [40 * DAY_MS, 32 * DAY_MS, 31 * DAY_MS, 0]
    retained = Retained(Log(33 * DAY_MS, {LANE: ages}), delay_ms=30 * DAY_MS)
    margin = margin_ms(33 * DAY_MS, 30 * DAY_MS)

    gone, two_days_late, one_day_late = (retained.look(unreleased=n).get(LANE) for n in range(3))

    assert gone is not None
    assert gone.removable_at_ms == NOW_MS
    assert two_days_late is None, "the record is less than three quarters of three days late"
    assert one_day_late is None
    at_risk = retained.look(unreleased=1, later_ms=DAY_MS // 2)[LANE]
    assert (at_risk.first, at_risk.below) == (1, 2)
    assert 0 <= NOW_MS + DAY_MS - at_risk.removable_at_ms <= margin / 200


def test_what_retention_has_removed_is_at_risk_no_more_and_what_follows_is() -> None:
    log = Log(4 * DAY_MS, {LANE: [5 * DAY_MS, 5 * DAY_MS, 3 * DAY_MS + HOUR_MS, 0]}, start=2)

    risk = Retained(log).look(unreleased=0)[LANE]

    assert (risk.first, risk.below) == (2, 3)
    assert abs(NOW_MS + 23 * HOUR_MS - risk.removable_at_ms) < 10 * MINUTE_MS
    log.start = 3
    assert Retained(log).look(unreleased=0) == {}


@pytest.mark.parametrize("retention_ms", [-1, 2**63 - 1])
def test_what_is_kept_for_ever_is_never_at_risk(retention_ms: int) -> None:
    assert Retained(Log(retention_ms, {LANE: [1000 * DAY_MS]})).look() == {}


def test_while_kafka_does_not_answer_what_is_known_stays() -> None:
    log = Log(DAY_MS, {LANE: [23 * HOUR_MS]})
    retained = Retained(log)
    risks = retained.look()
    assert LANE in risks

    log.silent, log.retention_ms = True, KafkaUnreachable("nobody is there")

    assert retained.look() == risks
    log.silent = False
    assert retained.look(unreleased=1) == {}


def test_a_record_that_comes_while_kafka_is_asked_is_not_at_risk() -> None:
    class Growing(Log):
        def offsets_for_times(
            self, times_ms: Mapping[TopicPartitionKey, int]
        ) -> dict[TopicPartitionKey, int | KafkaCallError | None]:
            found = super().offsets_for_times(times_ms)
            self.appended_ms[LANE].append(NOW_MS)
            return found

    assert Retained(Growing(DAY_MS, {LANE: []})).look() == {}


def test_a_thousand_partitions_are_asked_about_in_parts() -> None:
    log = Log(DAY_MS, {("orders", n): [23 * HOUR_MS] for n in range(1000)})

    assert len(Retained(log).look()) == 1000
    assert log.largest_request == AT_ONCE


READS, REWINDS, HELD_BACK = "reads", "rewinds", "is held back"
UNREAD = Span(5, 9)


def silent_seconds(*looks: tuple[float, str, Span]) -> float:
    """Returns for how many seconds the partition is reported as silent at the last of these looks, 0 if it is not. Each look is the time in
    seconds, what the partition does, and its unread offsets."""
    silence = SilentPartitions()
    silent_for: dict[TopicPartitionKey, float] = {}
    for at, does, span in looks:
        reading, rewinding = ({LANE: span} if does == READS else {}), ([LANE] if does == REWINDS else [])
        silent_for = {silent.place: silent.seconds for silent in silence.look(reading, rewinding, now=at)}
    return silent_for.get(LANE, 0.0)


def every_half_second(
    seconds: float, does: str = READS, span: Span = UNREAD, *, since: float = 0.0
) -> list[tuple[float, str, Span]]:
    return [(since + n / 2, does, span) for n in range(int(seconds * 2) + 1)]


def test_a_partition_that_gives_nothing_of_what_it_has_is_silent() -> None:
    assert silent_seconds(*every_half_second(40)) == 40


@pytest.mark.parametrize(
    ("what", "last"),
    [
        ("a record was read", (40.5, READS, Span(6, 9))),
        ("all records were read", (40.5, READS, Span(5, 5))),
        ("the end is not known", (40.5, READS, Span(5, -1))),
        ("it is stopped, held back by the memory bound, or another worker's", (40.5, HELD_BACK, UNREAD)),
    ],
)
def test_the_silence_ends_at_once(what: str, last: tuple[float, str, Span]) -> None:
    looks = every_half_second(40)
    assert silent_seconds(*looks, last) == 0, what
    assert silent_seconds(*looks, last, (41.0, READS, UNREAD), (41.5, READS, UNREAD)) == 0, what


def test_what_was_empty_for_long_is_silent_only_from_its_first_record_on() -> None:
    idle = every_half_second(600, span=Span(5, 5))
    assert silent_seconds(*idle, *every_half_second(20, since=600.5)) == 20


def test_a_partition_out_of_reach_is_silent_even_if_it_is_not_known_to_have_more() -> None:
    away, back = Span(5, 5, out_of_reach=True), Span(5, 5)
    looks = [*every_half_second(600, span=back), *every_half_second(40, span=away, since=600.5)]
    assert silent_seconds(*looks) == 40
    assert silent_seconds(*looks, (641.0, READS, back)) == 0


def test_a_partition_that_goes_back_is_not_silent_meanwhile_and_was_before() -> None:
    """The engine places a silent partition at the same offset again and again. Time that passes meanwhile does not count."""
    looks = [*every_half_second(20), *every_half_second(100, REWINDS, since=20.5), *every_half_second(10, since=121)]
    assert silent_seconds(*looks) == 30.5


def test_a_worker_that_stood_still_has_not_waited_meanwhile() -> None:
    assert silent_seconds(*every_half_second(20), (3600, READS, UNREAD)) == 22


def unreadable(partition: int, seconds: float, offsets: Offsets | KafkaCallError | None) -> Unreadable:
    served = Served.of("orders")
    owned = AssignedPartition(
        served=served, topic="orders", partition=partition, generation=1, group_generation=1, assigned_at=0
    )
    return Unreadable(owned, Span(5, 9), seconds, offsets, "kafka:9092")


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        (Offsets(0, 5), "a transaction is open there"),
        (
            Offsets(0, 9),
            "although Kafka has committed records up to offset 9. The Kafka client has reported no error",
        ),
        (KafkaUnreachable("Kafka at kafka:9092 did not answer in time"), "Kafka at kafka:9092 did not answer in time"),
        (None, "Kafka has not answered yet"),
    ],
)
def test_an_unreadable_partition_is_told_with_what_kafka_says_of_it(
    offsets: Offsets | KafkaCallError | None, reason: str
) -> None:
    (alarm,) = of_unreadable([unreadable(1, UNREADABLE_SECONDS, None), unreadable(3, 47.2, offsets)])

    assert (alarm.topic, alarm.reason) == ("orders", Reason.NOT_RELEASING)
    assert "the worker could not read anything from orders [3] at offset 5 for 47 s" in alarm.message
    assert reason in alarm.message
    assert alarm.message.endswith(". The same applies to 1 more partition")


def test_of_a_partition_out_of_reach_people_hear_what_to_check() -> None:
    away = unreadable(3, 47.2, None)._replace(span=Span(5, 5, out_of_reach=True))
    (alarm,) = of_unreadable([away])
    assert "orders [3] at offset 5 for 47 s, because the worker has no connection to a leader" in alarm.message
    assert "with kafka-topics.sh --bootstrap-server kafka:9092 --describe --topic orders" in alarm.message


def test_two_things_that_are_wrong_for_one_reason_are_both_told() -> None:
    alarms = [Alarm("orders", Reason.NOT_RELEASING, text) for text in ("one", "two")]
    other = Alarm("parcels", Reason.NOT_RELEASING, "three")

    assert joined([*alarms, other]) == [Alarm("orders", Reason.NOT_RELEASING, "one. Also, two"), other]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (119_400, "119 s"),
        (2 * MINUTE_MS, "2 min"),
        (119 * MINUTE_MS, "119 min"),
        (6 * HOUR_MS + 20 * MINUTE_MS, "6.3 h"),
        (47 * HOUR_MS, "47 h"),
        (3 * DAY_MS + 2000, "3 days"),
        (100 * DAY_MS, "100 days"),
    ],
)
def test_times_are_told_in_units_that_a_person_reads(ms: int, text: str) -> None:
    assert lasting(ms) == text
