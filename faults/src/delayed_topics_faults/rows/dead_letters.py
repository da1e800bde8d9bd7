"""D1 and D3: the dead-letter topic is missing or forbidden, and records at every size limit."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclOperation, ResourceType
from delayed_topics_core.reasons import Reason
from delayed_topics_core.settings import FRONT_MAX_MESSAGE_BYTES
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka_testing.rights import AUTHORIZER, deny_only, lift

from delayed_topics_faults.copies import EXPECT
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import Testbed, now_ms

ALARM_SECONDS: Final = 8.0


class NoDeadLetterTopic(Row):
    name = "D1"
    fault = "the dead-letter topic is missing, or forbidden"

    @contextmanager
    def testbed(self, directory: Path) -> Iterator[Testbed]:
        with Broker(settings=AUTHORIZER) as broker, Testbed(directory, broker.bootstrap) as testbed:
            yield testbed

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1))
        self._worker = testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        missing = rng.random() < 0.5
        trial = Trial(injected=f"dead-letter topic {'missing' if missing else 'forbidden'}")
        mend = (_delete if missing else _forbid)(testbed)
        bad = rng.randrange(2)
        with testbed.load(rng, records=500, per_second=500):
            testbed.orders.produce(
                b"bad", headers=[("dt-attempt", b"x"), (EXPECT, b"dead:HeaderUnreadable")], partition=bad
            )
            testbed.orders.flush()
            trial.expect_alarm(self._worker, Reason.TARGET_UNAVAILABLE, timeout_seconds=ALARM_SECONDS)
            until = time.monotonic() + rng.uniform(1, 4)
            while time.monotonic() < until and not trial.violations:
                stays = Reason.TARGET_UNAVAILABLE in self._worker.alarm_reasons()
                trial.expect(stays, "A", "the alarm went away although nothing was mended")
                time.sleep(0.1)
        stuck = [place for place in testbed.unsettled() if place.startswith(f"{testbed.orders.names.front} [{bad}]")]
        trial.expect(bool(stuck), "L", f"front partition {bad} was committed past a record without a dead letter")
        mend()
        return trial


def _delete(testbed: Testbed) -> Callable[[], None]:
    orders = testbed.orders
    testbed.harness.admin.delete_topics([orders.names.dead_letter])

    def mend() -> None:
        orders.note_id(orders.make("dead-letter", 2))
        testbed.forget(orders.names.dead_letter)

    return mend


def _forbid(testbed: Testbed) -> Callable[[], None]:
    place = (testbed.harness.connection, ResourceType.TOPIC, testbed.orders.names.dead_letter)
    deny_only(*place, AclOperation.WRITE)
    return partial(lift, *place)


class Large(Row):
    name = "D3"
    fault = "records at and above every size limit, compressed and not, among small ones"

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1))
        testbed.start()
        self._producers = {
            codec: Producer(
                {
                    **testbed.harness.connection.client_config(),
                    "compression.type": codec,
                    "message.max.bytes": 1_000_000_000,
                    "linger.ms": 0,
                }
            )
            for codec in ("none", "gzip", "lz4", "zstd")
        }

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        sizes: list[str] = []
        with testbed.load(rng, records=500, per_second=500):
            for _ in range(6):
                codec = rng.choice(sorted(self._producers))
                value = _large(rng)
                taken = self._produce(testbed, rng, codec, value)
                sizes.append(f"{len(value)} {codec}{'' if taken else ' (refused by the front topic)'}")
        return Trial(injected=", ".join(sizes), terms={"healed_at_ms": now_ms()})

    def _produce(self, testbed: Testbed, rng: Random, codec: str, value: bytes) -> bool:
        """Returns False if the broker refuses the record, which only concerns its producer."""
        orders, producer = testbed.orders, self._producers[codec]
        level = rng.randint(1, 2)
        refused: list[object] = []
        delay_ms = orders.record.layout.delay_for_level(level) * 1000
        try:
            producer.produce(
                orders.names.front,
                value,
                partition=rng.randrange(2),
                headers=[(EXPECT, b"either:%d" % delay_ms), ("dt-delay-level", b"%d" % level)],
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
        except KafkaException:
            return False
        producer.flush(30)
        return not refused


def _large(rng: Random) -> bytes:
    """Returns a value near the size limit of the front topic (uncompressed or compressed) or of copies, or far above all limits."""
    near = FRONT_MAX_MESSAGE_BYTES - rng.randint(0, 600)
    match rng.randrange(5):
        case 0:
            return rng.randbytes(near)
        case 1:
            return bytes(rng.randint(4, 20) * near)
        case 2:  # zstd finds repetitions at this distance and lz4 doesn't, so that the copy is larger than the original
            return rng.randbytes(900_000) * rng.randint(2, 12)
        case 3:
            return rng.randbytes(near // 2).hex().encode() * rng.randint(1, 2)
        case _:
            return rng.randbytes(rng.randint(990_000, 1_010_000))
