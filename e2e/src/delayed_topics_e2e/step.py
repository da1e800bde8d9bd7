"""A load that is stepped up and down, and observations of its effect over time, for a picture and for counts."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from delayed_topics_core import headers as own
from delayed_topics_devcluster.pace import paced, repeated

__all__ = ["Load", "Releases", "Watch", "draw", "load", "read_releases", "watched"]


@dataclass
class Load:
    """A running load. Set `per_second` to change it. `failed`: records that Kafka has not acknowledged, complete after the block."""

    producer: Producer
    topic: str
    values: tuple[bytes, ...]
    per_second: float = 0.0
    produced: int = 0
    failed: int = 0

    def send(self, number: int) -> None:
        value = self.values[number % len(self.values)]
        while True:
            try:
                self.producer.produce(self.topic, value, b"%d" % number, on_delivery=self._delivered)
                break
            except BufferError:
                self.producer.poll(0.05)
        self.produced = number + 1
        self.producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        self.failed += error is not None


@contextmanager
def load(config: Mapping[str, Any], topic: str, values: tuple[bytes, ...]) -> Iterator[Load]:
    """Produces records until the block ends, with each of `values` in turn. The load begins at 0 records a second."""
    producer = Producer({**config, "linger.ms": 20, "partitioner": "murmur2_random"})
    made = Load(producer, topic, values)
    with paced(made.send, lambda: made.per_second):
        yield made
    made.failed += producer.flush(60)


@dataclass
class Releases:
    """Statistics of the records read from a ready topic: their lateness, by the broker's append time."""

    released: int = 0
    early: int = 0
    latest_ms: dict[int, int] = field(default_factory=dict)
    """The greatest lateness, by second of the broker's clock."""

    def add(self, message: Message) -> None:
        at_ms = message.timestamp()[1]
        late_ms = at_ms - int(dict[str, Any](message.headers() or ())[own.DUE_AT])
        self.released += 1
        self.early += late_ms < 0
        second = at_ms // 1000
        self.latest_ms[second] = max(late_ms, self.latest_ms.get(second, 0))


@contextmanager
def read_releases(config: Mapping[str, Any], topic: str, partitions: int) -> Iterator[Releases]:
    """Reads the ready topic until the block ends."""
    consumer = Consumer({**config, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    releases = Releases()

    def read() -> None:
        for message in consumer.consume(5000, 0.2):
            if message.error() is None:
                releases.add(message)

    with repeated(read):
        yield releases
    consumer.close()


@dataclass
class Watch:
    """A series of figures by name, each with its time (seconds since the epoch)."""

    seen: list[tuple[float, Mapping[str, float]]] = field(default_factory=list)

    def series(self, name: str) -> list[tuple[float, float]]:
        return [(at, figures[name]) for at, figures in self.seen]


@contextmanager
def watched(look: Callable[[], Mapping[str, float]], *, interval_seconds: float) -> Iterator[Watch]:
    """Calls `look` at this interval until the block ends, and records the figures that it returns by name."""
    watch = Watch()
    with paced(lambda _: watch.seen.append((time.time(), look())), lambda: 1 / interval_seconds):
        yield watch


def draw(file: Path, panels: Mapping[str, list[tuple[float, float]]], *, title: str) -> None:
    """Writes an SVG with one panel above the other, over the minutes since the earliest point."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2 * len(panels)), layout="constrained")
    begin = min(at for points in panels.values() for at, _ in points)
    for axes, (name, points) in zip(figure.subplots(len(panels), sharex=True), panels.items(), strict=True):
        axes.plot([(at - begin) / 60 for at, _ in points], [value for _, value in points], color="#08519c", lw=1.2)
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0)
    figure.axes[0].set_title(title)
    figure.axes[-1].set_xlabel("minutes")
    figure.savefig(file, metadata={"Date": None})
