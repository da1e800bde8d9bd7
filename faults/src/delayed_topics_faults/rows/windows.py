"""W6, B11 and C1: windows at their limits, partitions that end in what nobody reads, and very many partitions."""

import time
from random import Random

from confluent_kafka import Producer
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.errors import KafkaDoorError
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_faults.judge import Seen
from delayed_topics_faults.row import Play, Row
from delayed_topics_faults.stage import Stage, expect_ready, now_ms


class FullBitmap(Row):
    name = "W6"
    fault = "a paused topic fills its windows with finished and unfinished offsets; the worker is killed or stopped, and goes on"
    records = 30_000

    def open(self, stage: Stage) -> None:
        stage.declare((0, 1), front_partitions=1)
        self._worker = stage.start()

    def trial(self, stage: Stage, rng: Random) -> Play:
        """Records of level 2 hop although the topic is paused, those of level 1 stay."""
        orders = stage.orders
        orders.change(paused=True)
        for n in range(self.records):
            level = rng.choice((1, 2))
            orders.produce(b"%d" % n, headers=[stage.expected(level), ("dt-delay-level", b"%d" % level)], partition=0)
        orders.flush()
        self._idle()
        how, crashes = _ended(self._worker, killed=rng.random() < 0.5)
        self._worker = stage.start()
        self._idle()
        orders.change(paused=False)
        # what it had read it had read late: the pause alone lasts longer than a second
        return Play(injected=f"{how} with a full window", terms={"crashes_ms": crashes, "order": False})

    def _idle(self) -> None:
        """Nothing is taken in any more: intake waits for what is unfinished."""
        seen = [0.0]

        def the_same_twice() -> bool:
            lines = self._worker.get("/metrics")[1].splitlines()
            taken = [line for line in lines if line.startswith("delayedtopics_taken_in_total{")]
            seen.append(float(taken[0].split()[-1]) if taken else 0.0)
            return seen[-1] == seen[-2] > 0

        wait_until(the_same_twice, what="intake waits", poll_seconds=1, timeout_seconds=60)


class EndsInMarks(Row):
    name = "B11"
    fault = (
        "partitions end in transaction marks and aborted records, are idle until retention has removed all, and restart"
    )

    def open(self, stage: Stage) -> None:
        stage.declare((0, 1))
        self._worker = stage.start()

    def trial(self, stage: Stage, rng: Random) -> Play:
        with stage.load(rng, records=500, per_second=1000):
            self._transact(stage, rng, commit=True)
        aborted = rng.random() < 0.5
        if aborted:
            self._transact(stage, rng, commit=False)
        play = Play(injected=f"retention after {'aborted records' if aborted else 'marks'}, then a restart")
        seen = stage.settled()
        play.expect(seen, "L", "not all is committed before retention")
        play.told = stage.read()
        self._cut(stage)
        play.expect(self._worker.terminate() == 0, "R", "the worker's exit code is not 0")
        self._worker = stage.start()
        with stage.load(rng, records=500, per_second=1000):
            pass
        reasons = self._worker.alarm_reasons()
        play.expect(not reasons, "A", f"false alarms: {sorted(reasons)}")
        return play

    def finish(self, stage: Stage, play: Play) -> tuple[Seen, list[str]]:
        seen, unfinished = super().finish(stage, play)
        return play.told.followed_by(seen), unfinished

    @staticmethod
    def _transact(stage: Stage, rng: Random, *, commit: bool) -> None:
        """As an application does that produces in transactions."""
        orders = stage.orders
        producer = Producer({**stage.world.connection.client_config(), "transactional.id": f"app-{orders.names.front}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for n in range(rng.randint(1, 20)):
            headers: list[tuple[str, str | bytes | None]] = [expect_ready(0)]
            producer.produce(orders.names.front, b"t%d" % n, partition=n % 2, headers=headers)
        producer.flush(60)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)

    @staticmethod
    def _cut(stage: Stage) -> None:
        places = list(stage.orders.committed())
        for (topic, partition), end in stage.world.admin.list_offsets(places, "latest").items():
            assert not isinstance(end, KafkaDoorError), end
            stage.delete_records(topic, partition, end)


class ManyPartitions(Row):
    name = "C1"
    fault = "one worker with a thousand partitions; it is killed under load, or stopped"
    front_partitions = 500
    delay_partitions = 500

    def open(self, stage: Stage) -> None:
        stage.declare((0, 1), front_partitions=self.front_partitions, partitions=self.delay_partitions)
        self._worker = stage.start()

    def trial(self, stage: Stage, rng: Random) -> Play:
        killed = rng.random() < 0.5
        with stage.load(rng, records=10_000, per_second=2000) as load:
            time.sleep(rng.uniform(0.5, load.seconds))
            how, crashes = _ended(self._worker, killed=killed)
            self._worker = stage.start()
        return Play(injected=f"{how} under load", terms={"crashes_ms": crashes, "healed_at_ms": now_ms()})


def _ended(worker: WorkerProcess, *, killed: bool) -> tuple[str, list[int]]:
    """How it was ended, and when it was, if that counts as a crash."""
    if killed:
        worker.kill()
        return "killed", [now_ms()]
    worker.terminate()
    return "stopped", []
