"""B3 and B10: the ready topic takes nothing, or not fast enough, or isn't what it was."""

import time
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Final

from delayed_topics_core.reasons import Reason

from delayed_topics_faults.copies import EXPECT
from delayed_topics_faults.row import Play, Row
from delayed_topics_faults.rows.brokers import OnThreeBrokers
from delayed_topics_faults.stage import Stage, now_ms

ALARM_SECONDS: Final = 35.0
"""5 s from the first copy that isn't acknowledged. Before there is one, Kafka has to miss the broker (6 s); where that was the
group's coordinator, its members find the next one within their session (10 s), join, and look at their topics (5 s)."""
QUOTA_BYTES_PER_SECOND: Final = 20_000
SLOW_BYTES_PER_SECOND: Final = 100_000


class TargetTrouble(OnThreeBrokers):
    name = "B3"
    fault = "the ready topic is below min ISR, over quota, deleted and made again, or gets more partitions (in turns)"

    def open(self, stage: Stage) -> None:
        stage.declare((0, 1))
        self._worker = stage.start()
        self._turns = count()

    def trial(self, stage: Stage, rng: Random) -> Play:
        ways: list[Callable[[Stage, Random], Play]] = [self._below, self._over_quota, self._made_again, self._grown]
        return ways[next(self._turns) % len(ways)](stage, rng)

    def _below(self, stage: Stage, rng: Random) -> Play:
        ready = stage.orders.names.ready
        play = Play(injected="ready topic below min.insync.replicas")
        stage.world.admin.alter_topic_configs({ready: {"min.insync.replicas": "3"}})
        broker = rng.choice(self.brokers.members)
        with stage.load(rng, records=2000, per_second=1000):
            broker.kill()
            play.alarmed(self._worker, Reason.TARGET_UNAVAILABLE, timeout_seconds=ALARM_SECONDS)
            time.sleep(rng.uniform(0, 2))
        broker.start()
        stage.in_sync()
        stage.world.admin.alter_topic_configs({ready: {"min.insync.replicas": "2"}})
        play.terms = {"healed_at_ms": now_ms()}
        return play

    def _over_quota(self, stage: Stage, rng: Random) -> Play:
        play = Play(injected=f"producer quota of {QUOTA_BYTES_PER_SECOND} bytes/s")
        stage.limit_copies(QUOTA_BYTES_PER_SECOND)
        with stage.load(rng, records=2000, per_second=1000):
            if stage.guarantee == "AtLeastOnce":  # a quota costs a second a request, and transactions need few of those
                play.alarmed(self._worker, Reason.TARGET_UNAVAILABLE, timeout_seconds=ALARM_SECONDS)
        stage.limit_copies(None)
        play.terms = {"healed_at_ms": now_ms()}
        return play

    def _made_again(self, stage: Stage, rng: Random) -> Play:
        orders = stage.orders
        play = Play(injected="ready topic deleted and made again")
        stage.world.admin.delete_topics([orders.names.ready])
        with stage.load(rng, records=1000, per_second=1000):
            play.alarmed(self._worker, Reason.TARGET_UNAVAILABLE, timeout_seconds=ALARM_SECONDS)
            time.sleep(rng.uniform(0, 2))
            stage.forget(orders.names.ready)
            info = orders.make("ready", orders.record.ready_partitions)
        play.alarmed(self._worker, Reason.TOPIC_RECREATED, timeout_seconds=ALARM_SECONDS)
        orders.note_id(info)
        play.terms = {"healed_at_ms": now_ms()}
        return play

    def _grown(self, stage: Stage, rng: Random) -> Play:
        ready = stage.orders.names.ready
        info = stage.world.admin.describe_topics([ready])[ready]
        partitions = getattr(info, "partitions", 0) + 2
        with stage.load(rng, records=2000, per_second=1000):
            stage.world.admin.create_partitions({ready: partitions})
        return Play(injected=f"ready topic grown to {partitions} partitions", terms={"healed_at_ms": now_ms()})


class SentAlone(Row):
    name = "B10"
    fault = "hops are refused with a batch and sent again one by one, while acknowledgements take their time"

    def open(self, stage: Stage) -> None:
        stage.declare((2,), front_partitions=1, config={"delays": {"max.message.bytes": "100000"}})
        self._worker = stage.start()

    def trial(self, stage: Stage, rng: Random) -> Play:
        """A batch with one record that is too large for the delays topic is refused whole."""
        large = rng.randint(1, 3)
        slow = rng.random() < 0.5
        if slow:
            stage.limit_copies(SLOW_BYTES_PER_SECOND)
        for n in range(large):
            for _ in range(rng.randint(50, 300)):
                stage.orders.produce(b"%d" % n, headers=[stage.expected(1)], partition=0)
            stage.orders.produce(rng.randbytes(120_000), headers=[(EXPECT, b"either:2000")], partition=0)
        stage.orders.flush()
        if slow:
            time.sleep(rng.uniform(1, 3))
            stage.limit_copies(None)
        # who is sent again may come after those that were read later (promise 5)
        return Play(injected=f"{large} large ones{', slow acknowledgements' if slow else ''}", terms={"order": False})
