"""All metrics of the worker, declared once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from delayed_topics_core.reasons import WORKER_REASONS
from delayed_topics_engine import DURATION_BOUNDS_MS, Histogram, Tally
from delayed_topics_kafka.due import DUE_WITHIN_SECONDS
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from delayed_topics_worker.pending import Pending


class TopicWork(NamedTuple):
    """What this worker has of a delayed topic: assigned partitions, and records that are held, that are due, and that are not taken in."""

    partitions: int
    waiting: int
    due: int
    unread: int


class EngineMetrics(Collector):
    """The counts of the engine, as the worker's thread last left them here. Each field is replaced as a whole."""

    def __init__(self) -> None:
        self.tallies: Sequence[tuple[str, Tally]] = ()
        """Front topics, and what was done for each."""
        self.work: Mapping[str, TopicWork] = {}
        """By front topic."""
        self.commits: Histogram | None = None
        self.failed_commits = 0

    def collect(self) -> Iterable[Metric]:
        taken_in = CounterMetricFamily("delayedtopics_taken_in", "Records taken in", labels=["topic"])
        released = CounterMetricFamily("delayedtopics_released", "Copies to the ready topic", labels=["topic"])
        hopped = CounterMetricFamily("delayedtopics_hopped", "Copies to a delays partition", labels=["topic"])
        misrouted = CounterMetricFamily(
            "delayedtopics_misrouted", "Records that a client hashed into the delays topic", labels=["topic"]
        )
        dead_lettered = CounterMetricFamily(
            "delayedtopics_dead_lettered", "Copies of workers to the dead-letter topic", labels=["topic", "reason"]
        )
        lateness = HistogramMetricFamily(
            "delayedtopics_lateness_seconds",
            "From the due time to the release, in broker time as the worker knows it",
            labels=["topic"],
        )
        waiting = _of_topic("waiting_records", "Records that are held and not released")
        due_lag = _of_topic(
            "due_lag_records", "Records that are held, due, and not released and acknowledged or committed"
        )
        unread = _of_topic("unread_records", "Records of assigned partitions that are not taken in")
        partitions = _of_topic("partitions", "Assigned partitions")
        for topic, work in self.work.items():
            waiting.add_metric([topic], work.waiting)
            due_lag.add_metric([topic], work.due)
            unread.add_metric([topic], work.unread)
            partitions.add_metric([topic], work.partitions)
        for topic, tally in self.tallies:
            taken_in.add_metric([topic], tally.taken_in)
            released.add_metric([topic], tally.released)
            hopped.add_metric([topic], tally.hopped)
            misrouted.add_metric([topic], tally.misrouted)
            for reason in WORKER_REASONS:
                dead_lettered.add_metric([topic, reason.value], tally.dead_lettered.get(reason.value, 0))
            lateness.add_metric([topic], _buckets(tally.lateness), sum_value=tally.lateness.sum_ms / 1000)
        commits = HistogramMetricFamily(
            "delayedtopics_commit_seconds",
            "From sending offsets, or from ending a transaction, until Kafka has accepted it",
        )
        if self.commits is not None:
            commits.add_metric([], _buckets(self.commits), sum_value=self.commits.sum_ms / 1000)
        failed = CounterMetricFamily("delayedtopics_failed_commits", "Commits that were refused, and tried again")
        failed.add_metric([], self.failed_commits)
        counted = [taken_in, released, hopped, misrouted, dead_lettered, lateness, commits, failed]
        return [*counted, waiting, due_lag, unread, partitions]


def _of_topic(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"delayedtopics_{name}", text, labels=["topic"])


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*(str(bound_ms / 1000) for bound_ms in DURATION_BOUNDS_MS), "+Inf"]
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


class PendingMetrics(Collector):
    """The pending records, as the worker's thread last left them here. `found` is replaced as a whole."""

    def __init__(self) -> None:
        self.found: Pending = {}

    def collect(self) -> Iterable[Metric]:
        pending = GaugeMetricFamily(
            "delayedtopics_pending_records",
            "Records in delays partitions that have their turn within so many seconds",
            labels=["topic", "delay_seconds", "due_within_seconds"],
        )
        bounds = [*map(str, DUE_WITHIN_SECONDS), "+Inf"]
        for (topic, delay_seconds), counts in self.found.items():
            for bound, count in zip(bounds, counts, strict=True):
                pending.add_metric([topic, str(delay_seconds), bound], count)
        return [pending]


M = TypeVar("M", Counter, Gauge)


class Metrics:
    """The metrics of a worker. The label `topic` is always the front topic."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.engine = EngineMetrics()
        self.registry.register(self.engine)
        self.pending = PendingMetrics()
        self.registry.register(self.pending)
        self._of_topics: list[Counter | Gauge] = []
        self.partition_changes = self._counter(
            "partition_changes", "Partitions assigned, revoked or lost", "topic", "change"
        )
        self.control_requests = self._gauge(
            "control_requests", "Requests to cancel or reschedule a record that are in force", "topic"
        )
        self.held_bytes = self._gauge("held_bytes", "Memory that held records count for")
        self.alarms = self._gauge("alarms", "1 while an alarm is raised", "topic", "reason")
        self.clock_fresh = self._gauge("clock_fresh", "1 while the broker's time is known")
        self.fence_open = self._gauge("fence_open", "1 while the last accepted commit allows to release")
        self.events_failed = self._counter("events_failed", "Events that could not be written")

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def forget(self, topic: str) -> None:
        """Removes the series of a topic that were set here. The collectors drop theirs when the worker's thread leaves the topic out."""
        for metric in self._of_topics:
            metric.remove_by_labels({"topic": topic})

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return self._tracked(Counter(f"delayedtopics_{name}", text, labels, registry=self.registry), labels)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return self._tracked(Gauge(f"delayedtopics_{name}", text, labels, registry=self.registry), labels)

    def _tracked(self, metric: M, labels: Sequence[str]) -> M:
        if "topic" in labels:
            self._of_topics.append(metric)
        return metric
