"""B3 and B10: a target topic that accepts nothing, is too slow, refuses a batch, or is not the same topic any more."""

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Final

from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.errors import NotInTimeError
from delayed_topics_devcluster.waiting import wait_until

from delayed_topics_faults.copies import EXPECT
from delayed_topics_faults.judge import Seen, Terms, Verdict, judge, longest_silence_ms
from delayed_topics_faults.row import UNACKNOWLEDGED_ALARM_SECONDS, OnThreeBrokers, Row, Trial
from delayed_topics_faults.testbed import Testbed, now_ms

SILENCE_MS: Final = 6000
"""The worker raises the alarm after 3 s without an acknowledgement. It checks once a second, and so does the trial."""
QUOTA_BYTES_PER_SECOND: Final = 20_000
SLOW_BYTES_PER_SECOND: Final = 100_000


class TargetTrouble(OnThreeBrokers):
    name = "B3"
    fault = "the ready topic is below min ISR, over quota, deleted and made again, or gets more partitions (in turns)"

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1))
        self._worker = testbed.start()
        self._turns = count()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        ways: list[Callable[[Testbed, Random], Trial]] = [self._below, self._over_quota, self._made_again, self._grown]
        return ways[next(self._turns) % len(ways)](testbed, rng)

    def _below(self, testbed: Testbed, rng: Random) -> Trial:
        ready = testbed.orders.names.ready
        trial = Trial(injected="ready topic below min.insync.replicas")
        testbed.harness.admin.alter_topic_configs({ready: {"min.insync.replicas": "3"}})
        broker = rng.choice(self.brokers.members)
        with testbed.load(rng, records=2000, per_second=1000):
            broker.kill()
            trial.expect_alarm(self._worker, Reason.TARGET_UNAVAILABLE, timeout_seconds=UNACKNOWLEDGED_ALARM_SECONDS)
            time.sleep(rng.uniform(0, 2))
        broker.start()
        testbed.wait_in_sync()
        testbed.harness.admin.alter_topic_configs({ready: {"min.insync.replicas": "2"}})
        trial.terms = {"healed_at_ms": now_ms()}
        return trial

    def _over_quota(self, testbed: Testbed, rng: Random) -> Trial:
        """Slows copies down with a quota. Kafka decides whether it also stops them for so long that the worker raises an alarm."""
        alarmed = False
        records = 2000

        def over() -> bool:
            nonlocal alarmed
            alarmed = Reason.TARGET_UNAVAILABLE in self._worker.alarm_reasons()
            return alarmed or testbed.released() >= records

        testbed.limit_copies(QUOTA_BYTES_PER_SECOND)
        with (
            testbed.load(rng, records=records, per_second=1000),
            suppress(NotInTimeError),
        ):  # the judge decides whether an alarm was due
            wait_until(over, what="an alarm, or all records in the ready topic", timeout_seconds=60)
        testbed.limit_copies(None)
        return Trial(
            injected=f"producer quota of {QUOTA_BYTES_PER_SECOND} bytes/s",
            terms={"healed_at_ms": now_ms()},
            counts={"quota_alarms": int(alarmed)},
            context=alarmed,
        )

    def _made_again(self, testbed: Testbed, rng: Random) -> Trial:
        orders = testbed.orders
        trial = Trial(injected="ready topic deleted and made again")
        testbed.harness.admin.delete_topics([orders.names.ready])
        with testbed.load(rng, records=1000, per_second=1000):
            trial.expect_alarm(self._worker, Reason.TARGET_UNAVAILABLE, timeout_seconds=UNACKNOWLEDGED_ALARM_SECONDS)
            time.sleep(rng.uniform(0, 2))
            testbed.forget(orders.names.ready)
            info = orders.make("ready", orders.record.ready_partitions)
        trial.expect_alarm(self._worker, Reason.TOPIC_RECREATED, timeout_seconds=UNACKNOWLEDGED_ALARM_SECONDS)
        orders.note_id(info)
        trial.terms = {"healed_at_ms": now_ms()}
        return trial

    def _grown(self, testbed: Testbed, rng: Random) -> Trial:
        ready = testbed.orders.names.ready
        info = testbed.harness.admin.describe_topics([ready])[ready]
        partitions = getattr(info, "partitions", 0) + 2
        with testbed.load(rng, records=2000, per_second=1000):
            testbed.harness.admin.create_partitions({ready: partitions})
        return Trial(injected=f"ready topic grown to {partitions} partitions", terms={"healed_at_ms": now_ms()})

    def judge(self, seen: Seen, terms: Terms, trial: Trial) -> Verdict:
        verdict = judge(seen, terms)
        silence_ms = longest_silence_ms(seen)
        if trial.context is False and silence_ms > SILENCE_MS:
            verdict.unalarmed += 1
            verdict.fail("A", f"no alarm, although Kafka took no copy of a partition's due records for {silence_ms} ms")
        return verdict


class SentAlone(Row):
    name = "B10"
    fault = "hops are refused with a batch and sent again one by one, while acknowledgements take their time"

    def open(self, testbed: Testbed) -> None:
        testbed.declare((2,), front_partitions=1, config={"delays": {"max.message.bytes": "100000"}})
        self._worker = testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        """Kafka refuses a whole batch if one of its records is too large for the delays topic."""
        large = rng.randint(1, 3)
        slow = rng.random() < 0.5
        if slow:
            testbed.limit_copies(SLOW_BYTES_PER_SECOND)
        for n in range(large):
            for _ in range(rng.randint(50, 300)):
                testbed.orders.produce(b"%d" % n, headers=[testbed.expected(1)], partition=0)
            testbed.orders.produce(rng.randbytes(120_000), headers=[(EXPECT, b"either:2000")], partition=0)
        testbed.orders.flush()
        if slow:
            time.sleep(rng.uniform(1, 3))
            testbed.limit_copies(None)
        # a record that is sent again may come out after records that were read later (promise 5)
        return Trial(injected=f"{large} large ones{', slow acknowledgements' if slow else ''}", terms={"order": False})
