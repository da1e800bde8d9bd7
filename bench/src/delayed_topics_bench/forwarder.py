"""A program with the usual loop of a consumer, which forwards records. It shows what a rebalance costs a plain consumer."""

import json
import signal
import sys
from types import FrameType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

COMMIT_SECONDS = 0.1


def main(bootstrap: str, group: str, member: str, sources: str, target: str, settings: str) -> None:
    """Forwards records until SIGTERM. Prints a line when the process is up, before it creates a client.

    `sources`: topics, separated by commas. `target`: a topic with as many partitions. `settings`: of the consumer, as JSON.
    """
    ended = False

    def end(_: int, __: FrameType | None) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    names = {"bootstrap.servers": bootstrap, "client.id": member}
    own = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", **json.loads(settings)}
    print("up", flush=True)
    consumer = Consumer({**names, **own})
    producer = Producer({**names, "linger.ms": 1})
    consumer.subscribe(sources.split(","))
    while not ended:
        messages: list[Message] = consumer.consume(1000, COMMIT_SECONDS)
        for message in messages:
            if message.error() is None:
                _forward(producer, message, target)
        producer.flush()
        _commit(consumer)
    consumer.close()


def _forward(producer: Producer, message: Message, target: str) -> None:
    """Produces into the partition of the same number, which the producer may not know yet."""
    while True:
        try:
            producer.produce(target, message.value(), partition=message.partition() or 0)
        except KafkaException as e:
            if e.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise
            producer.list_topics(target, 10)
        else:
            return


def _commit(consumer: Consumer) -> None:
    """Commits what was forwarded. During a rebalance, this may fail; the next owners of the partitions then forward the records again."""
    try:
        consumer.commit(asynchronous=True)
    except KafkaException as e:
        if e.args[0].code() not in (
            KafkaError._NO_OFFSET,
            KafkaError.ILLEGAL_GENERATION,
            KafkaError.REBALANCE_IN_PROGRESS,
        ):
            raise


if __name__ == "__main__":
    main(*sys.argv[1:])
