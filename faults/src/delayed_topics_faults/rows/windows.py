"""W6, B11 and C1: full windows, partitions that end in offsets without records, and very many partitions."""

import time
from random import Random

from delayed_topics_kafka.errors import KafkaCallError
from delayed_topics_worker_testing.process import WorkerProcess
from delayed_topics_worker_testing.transactions import produce_in_transaction

from delayed_topics_faults.judge import Crash, Seen
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import Testbed, expect_ready, now_ms


class FullBitmap(Row):
    name = "W6"
    fault = "a paused topic fills its windows with finished and unfinished offsets; the worker is killed or stopped, and goes on"
    records = 30_000

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1), front_partitions=1)
        self._worker = testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        """Records of level 2 hop although the topic is paused; those of level 1 stay."""
        orders = testbed.orders
        orders.change(paused=True)
        for n in range(self.records):
            level = rng.choice((1, 2))
            orders.produce(b"%d" % n, headers=[testbed.expected(level), ("dt-delay-level", b"%d" % level)], partition=0)
        orders.flush()
        self._worker.takes_in_no_more()
        how, crashes = _ended(self._worker, killed=rng.random() < 0.5)
        self._worker = testbed.start()
        self._worker.takes_in_no_more()
        orders.change(paused=False)
        # the worker reads these records again, and late, because the pause lasts longer than a second
        return Trial(injected=f"{how} with a full window", terms={"crashes": crashes, "order": False})


class EndsInMarks(Row):
    name = "B11"
    fault = "partitions end in transaction markers and aborted records, are idle until retention has removed all, and restart"

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1))
        self._worker = testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        with testbed.load(rng, records=500, per_second=1000):
            self._transact(testbed, rng, commit=True)
        aborted = rng.random() < 0.5
        if aborted:
            self._transact(testbed, rng, commit=False)
        trial = Trial(injected=f"retention after {'aborted records' if aborted else 'marks'}, then a restart")
        settled = testbed.settled()
        trial.expect(settled, "L", "not all is committed before retention")
        trial.context = testbed.read()
        self._cut(testbed)
        trial.expect(self._worker.terminate() == 0, "R", "the worker's exit code is not 0")
        self._worker = testbed.start()
        with testbed.load(rng, records=500, per_second=1000):
            pass
        reasons = self._worker.alarm_reasons()
        trial.expect(not reasons, "A", f"false alarms: {sorted(reasons)}")
        return trial

    def finish(self, testbed: Testbed, trial: Trial) -> tuple[Seen, list[str]]:
        seen, unfinished = super().finish(testbed, trial)
        return trial.context.followed_by(seen), unfinished

    @staticmethod
    def _transact(testbed: Testbed, rng: Random, *, commit: bool) -> None:
        records = ((b"t%d" % n, n % 2, [expect_ready(0)]) for n in range(rng.randint(1, 20)))
        produce_in_transaction(testbed.orders, records, commit=commit)

    @staticmethod
    def _cut(testbed: Testbed) -> None:
        places = list(testbed.orders.committed())
        for (topic, partition), end in testbed.harness.admin.list_offsets(places, "latest").items():
            assert not isinstance(end, KafkaCallError), end
            testbed.delete_records(topic, partition, end)


class ManyPartitions(Row):
    name = "C1"
    fault = "one worker with a thousand partitions; it is killed under load, or stopped"
    front_partitions = 500
    delay_partitions = 500

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1), front_partitions=self.front_partitions, partitions=self.delay_partitions)
        self._worker = testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        killed = rng.random() < 0.5
        with testbed.load(rng, records=10_000, per_second=2000) as load:
            time.sleep(rng.uniform(0.5, load.seconds))
            how, crashes = _ended(self._worker, killed=killed)
            self._worker = testbed.start()
        return Trial(injected=f"{how} under load", terms={"crashes": crashes, "healed_at_ms": now_ms()})


def _ended(worker: WorkerProcess, *, killed: bool) -> tuple[str, list[Crash]]:
    """Ends a worker. Returns how, and the crash if it was killed."""
    if killed:
        worker.kill()
        return "killed", [Crash(at_ms=now_ms())]
    worker.terminate()
    return "stopped", []
