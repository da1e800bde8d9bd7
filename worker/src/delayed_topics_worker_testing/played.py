"""The parts of a worker that send and commit, with clients and a clock that do what a test says and no broker does."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.registry import LayoutRecord, Owner
from delayed_topics_core.window import Window
from delayed_topics_kafka.commits import OffsetsReader
from delayed_topics_worker.assignment import Assignment
from delayed_topics_worker.barrier import Barrier
from delayed_topics_worker.committed import CommittedReader
from delayed_topics_worker.metrics import Lateness, Metrics
from delayed_topics_worker.outbox import Outbox
from delayed_topics_worker.owned import Held, Owned
from delayed_topics_worker.release import Releaser
from delayed_topics_worker.served import Served, ServedTopics
from delayed_topics_worker.transactions import Transactions

NOW_MS = 1_700_000_000_000


class Record:
    """A message, which only the client library can make; `partition` 0 of `orders`."""

    def __init__(self, offset: int, at_ms: int = NOW_MS) -> None:
        self._offset, self._at_ms = offset, at_ms

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_LOG_APPEND_TIME, self._at_ms

    def __len__(self) -> int:
        return 1


class Kafka:
    """Stands for producer and consumer: answers when and what the test says, which no broker does."""

    def __init__(self) -> None:
        self.hangs = False
        self.failed = False
        self.room = 10**9
        self.sent: list[Held] = []
        self.committed: list[TopicPartition] = []
        self.offered: list[TopicPartition] = []
        self.refuses_transactions = False
        self.paused: set[int] = set()

    def produce(self, *arguments: Any, **named: Any) -> None:
        if not self.room:
            raise BufferError
        self.room -= 1
        self.sent.append(named["on_delivery"] if named else arguments[4])

    def poll(self, _: float) -> int:
        if self.failed:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        return 0

    def purge(self) -> None: ...

    def flush(self, _: float) -> int:
        return int(self.hangs)

    def commit(self, *, offsets: list[TopicPartition], **_: Any) -> list[TopicPartition]:
        self.committed = offsets
        return offsets

    def init_transactions(self, _: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def abort_transaction(self, _: float) -> None: ...

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], *_: Any) -> None:
        self.offered = offsets

    def commit_transaction(self, _: float) -> None:
        if self.refuses_transactions:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, txn_requires_abort=True))
        self.committed = self.offered

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused |= {tp.partition for tp in partitions}

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused -= {tp.partition for tp in partitions}


class Worker:
    """The parts that send and commit, and a clock."""

    def __init__(self, *, broker_skew_ms: int = 0, exactly_once: bool = False) -> None:
        self.kafka = Kafka()
        self.consumer = cast(Consumer, self.kafka)
        self.seconds = 100.0
        self.served = Served.of("orders")
        self.served.layout = LayoutRecord(
            topic="orders",
            owner=Owner("c", "n", "o"),
            state="serving",
            layout=initial(LayoutSpec(delay_seconds=(0, 10), partitions=4)),
            retry_cap=3,
            front_partitions=2,
            ready_partitions=2,
            group="g",
            broker_skew_ms=broker_skew_ms,
        )
        self.served.policy = self.served.layout.policy
        self.outbox = Outbox(lambda _: cast(Producer, self.kafka))
        metrics = Metrics(ServedTopics({"orders": self.served}))
        settings: Any = {"barrier_seconds": 0.1, "seconds": lambda: self.seconds}
        self.barrier = (
            Transactions(self.outbox, metrics, membership=lambda: None, **settings)
            if exactly_once
            else Barrier(self.outbox, metrics, **settings)
        )
        self.barrier.compress({self.served.layout.compression})
        self.releaser = Releaser(self.outbox, Lateness())

    def partition(self, number: int = 0, window: Window | None = None) -> Owned:
        owned = Owned(self.served, "orders", number, generation=1, assigned_at=0)
        owned.window = window or Window(0)
        return owned

    def assignment(self) -> Assignment:
        return Assignment(
            [self.served],
            "classic",
            settle=lambda _: None,
            abandon=lambda: None,
            seconds=lambda: self.seconds,
            reader=CommittedReader(lambda: cast(OffsetsReader, None)),
        )

    def arrive(self, owned: Owned, offsets: range, at_ms: int = NOW_MS) -> None:
        assert owned.window is not None
        for offset in offsets:
            owned.window.take(offset)
            owned.arrived.append(Held(owned, offset, cast(Message, Record(offset, at_ms)), ()))

    def turns(self, count: int, *owned: Owned) -> None:
        for _ in range(count):
            self.seconds += 0.2
            self.barrier.turn(self.consumer, owned, NOW_MS, needed=True, hasten=False)

    def answer(self, refused: Callable[[TopicPartition], bool] = lambda _: False) -> None:
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        answers = [
            cast(
                TopicPartition,
                SimpleNamespace(
                    topic=tp.topic, partition=tp.partition, offset=tp.offset, error=error if refused(tp) else None
                ),
            )
            for tp in self.kafka.committed
        ]
        self.barrier.on_commit(error if all(tp.error for tp in answers) else None, answers)
