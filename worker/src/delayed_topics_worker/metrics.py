"""All metrics of the worker, declared once."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from delayed_topics_core.reasons import DeadLetterReason
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from delayed_topics_worker.served import ServedTopics

LATENESS_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 30_000, 300_000)


class Lateness(Collector):
    """A histogram that costs a release 0.1 µs: prometheus_client's own takes a lock and ten times as long."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums_ms: dict[str, int] = {}

    def observe_ms(self, topic: str, late_ms: int, records: int = 1) -> None:
        counts = self._counts.get(topic)
        if counts is None:
            self._sums_ms[topic] = 0
            counts = self._counts[topic] = [0] * (len(LATENESS_BOUNDS_MS) + 1)
        counts[bisect_left(LATENESS_BOUNDS_MS, late_ms)] += records
        self._sums_ms[topic] += late_ms * records

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(
            "delayedtopics_lateness_seconds",
            "From the due time to the release, in broker time as the worker knows it",
            labels=["topic"],
        )
        for topic, counts in list(self._counts.items()):
            buckets: list[tuple[str, float]] = []
            total = 0
            for bound, count in zip((*(b / 1000 for b in LATENESS_BOUNDS_MS), float("inf")), counts, strict=True):
                total += count
                buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
            family.add_metric([topic], buckets, sum_value=self._sums_ms[topic] / 1000)
        return [family]


class Tallies(Collector):
    """What was done with records, from the plain numbers that the worker's thread keeps."""

    def __init__(self, served: ServedTopics) -> None:
        self._served = served

    def collect(self) -> Iterable[Metric]:
        taken_in = CounterMetricFamily("delayedtopics_taken_in", "Records taken in", labels=["topic"])
        released = CounterMetricFamily("delayedtopics_released", "Copies to the ready topic", labels=["topic"])
        hopped = CounterMetricFamily("delayedtopics_hopped", "Copies to a delays partition", labels=["topic"])
        misrouted = CounterMetricFamily(
            "delayedtopics_misrouted", "Records that a client hashed into the delays topic", labels=["topic"]
        )
        dead_lettered = CounterMetricFamily(
            "delayedtopics_dead_lettered", "Copies to the dead-letter topic", labels=["topic", "reason"]
        )
        for served in self._served:
            tally = served.tally
            taken_in.add_metric([served.topic], tally.taken_in)
            released.add_metric([served.topic], tally.released)
            hopped.add_metric([served.topic], tally.hopped)
            misrouted.add_metric([served.topic], tally.misrouted)
            for reason in DeadLetterReason:
                dead_lettered.add_metric([served.topic, reason.value], tally.dead_lettered[reason])
        return [taken_in, released, hopped, misrouted, dead_lettered]


class Metrics:
    """`topic` is the front topic everywhere."""

    def __init__(self, served: ServedTopics) -> None:
        self.registry = CollectorRegistry()
        self.lateness = Lateness()
        self.registry.register(self.lateness)
        self.registry.register(Tallies(served))
        self.rebalances = self._counter("rebalances", "Partitions assigned, revoked or lost", "topic", "change")
        self.failed_commits = self._counter("failed_commits", "Commits that were refused, and tried again")
        self.waiting = self._gauge("waiting_records", "Records that are held and not released", "topic")
        self.due_lag = self._gauge("due_lag_records", "Records that are due and not released and acknowledged", "topic")
        self.unread = self._gauge("unread_records", "Records of assigned partitions that are not taken in", "topic")
        self.partitions = self._gauge("partitions", "Assigned partitions", "topic")
        self.held_bytes = self._gauge("held_bytes", "Memory that held records count for")
        self.alarms = self._gauge("alarms", "1 while an alarm is raised", "topic", "reason")
        self.clock_fresh = self._gauge("clock_fresh", "1 while the broker's time is known")
        self.fence_open = self._gauge("fence_open", "1 while the last accepted commit allows to release")
        self.events_failed = self._gauge("events_failed", "Events that could not be written")
        self.barrier_seconds = Histogram(
            "delayedtopics_barrier_seconds",
            "From the last record that is sent to the last acknowledgement",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 30),
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"delayedtopics_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"delayedtopics_{name}", text, labels, registry=self.registry)
