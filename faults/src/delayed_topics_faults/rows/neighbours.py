"""B9 and W5: a fault of one partition or one topic does not affect the others."""

from collections.abc import Iterable
from contextlib import ExitStack
from random import Random
from typing import Final

from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.harness import DeclaredTopic
from delayed_topics_worker_testing.transactions import left_open

from delayed_topics_faults.copies import Copy
from delayed_topics_faults.judge import Seen, Terms, Verdict, judge
from delayed_topics_faults.row import UNACKNOWLEDGED_ALARM_SECONDS, OnThreeBrokers, Row, Trial
from delayed_topics_faults.testbed import Load, Testbed, now_ms

MORE_P99_MS: Final = 20
"""How much higher than without the fault the p99 may be."""
NEIGHBOURS: Final = 8
PER_SECOND: Final = 30
"""To each topic. Three brokers on the two cores of a small machine serve ten topics at this rate without queues."""
RECORDS: Final = 600


def p99(late_ms: Iterable[int]) -> int:
    found = sorted(late_ms)
    return found[len(found) * 99 // 100]


class OneDeafTarget(OnThreeBrokers):
    name = "B9"
    fault = "the ready topic of one delayed topic of ten acknowledges nothing, since it lacks in-sync replicas"
    guarantees = ("AtLeastOnce",)
    """With ExactlyOnce, each topic has workers of its own."""

    def open(self, testbed: Testbed) -> None:
        """Starts one worker for all topics. `orders` is judged record by record, its neighbours by number and lateness."""
        orders = testbed.declare((0, 1))
        group = orders.record.group
        self._deaf, *self._neighbours = (testbed.harness.declare((0, 1), group=group) for _ in range(1 + NEIGHBOURS))
        self._worker = testbed.start(0, self._deaf, *self._neighbours)
        self._next_offsets: dict[str, tuple[int, ...]] = {}
        self._played(testbed, Random(0), [])  # warms up the JVM
        testbed.read()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        ready = self._deaf.names.ready
        testbed.harness.admin.alter_topic_configs({ready: {"min.insync.replicas": "3"}})
        broker = rng.choice(self.brokers.members)
        broker.kill()
        testbed.wait_out_of_sync(broker)
        self._played(testbed, rng, [])  # clients and brokers find the new leaders
        usual_ms = self._played(testbed, rng, [])
        trial = Trial(injected=f"{ready} below min.insync.replicas")
        self._deaf.produce(b"waits")
        self._deaf.flush()
        trial.expect_alarm(self._worker, Reason.TARGET_UNAVAILABLE, timeout_seconds=UNACKNOWLEDGED_ALARM_SECONDS)
        late_ms = self._played(testbed, rng, [self._deaf])
        trial.expect(
            late_ms <= usual_ms + MORE_P99_MS,
            "T",
            f"p99 of the others was {usual_ms} ms, and {late_ms} ms with the fault",
        )
        trial.injected += f"; p99 of the others {usual_ms} ms before and {late_ms} ms meanwhile"
        broker.start()
        testbed.wait_in_sync()
        testbed.harness.admin.alter_topic_configs({ready: {"min.insync.replicas": "2"}})
        self._out(testbed, self._deaf, 1 + RECORDS)
        trial.terms = {"healed_at_ms": now_ms()}
        return trial

    def _played(self, testbed: Testbed, rng: Random, further: list[DeclaredTopic]) -> int:
        """Puts load on all topics, and returns the p99 of the lateness of the neighbours, in ms."""
        with ExitStack() as stack:
            stack.enter_context(testbed.load(rng, records=RECORDS, per_second=PER_SECOND))
            for topic in (*self._neighbours, *further):
                stack.enter_context(Load(topic, rng, records=RECORDS, per_second=PER_SECOND))
        late_ms = [
            copy.at_ms - int(copy.own["dt-due-at"])
            for topic in self._neighbours
            for copy in self._out(testbed, topic, RECORDS)
        ]
        assert min(late_ms) >= 0, "early"
        return p99(late_ms)

    def _out(self, testbed: Testbed, topic: DeclaredTopic, records: int) -> list[Copy]:
        """Waits for this number of records, and returns what was released since the last call. Uses the independent reader, which a
        dead broker doesn't hold up."""
        ready = topic.names.ready
        found: list[Copy] = []

        def all_out() -> bool:
            copies, self._next_offsets[ready] = testbed.reader.read(ready, self._next_offsets.get(ready, ()))
            found.extend(copies)
            return len(found) == records

        wait_until(all_out, what=f"{ready} has {records} more records", timeout_seconds=60, poll_seconds=0.5)
        return found


class OpenTransaction(Row):
    name = "W5"
    fault = "a worker with ExactlyOnce takes over while a dead one's transaction is open on one of its partitions"
    guarantees = ("ExactlyOnce",)
    most_p99_ms = 50

    def open(self, testbed: Testbed) -> None:
        """Lets a worker serve some records, which warms up the JVM."""
        testbed.declare((0, 1), front_partitions=4)
        self._worker = testbed.start()
        with testbed.load(Random(0), records=2000, per_second=500):
            pass
        assert testbed.settled(), testbed.unsettled()
        testbed.read()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        self._worker.terminate()
        testbed.empty_group()
        held = rng.randrange(4)
        dead = left_open(testbed.orders, held)
        self._worker = testbed.start(ready=False)
        healthy = (held + 1) % 4
        before = testbed.released()
        testbed.orders.produce(b"first", headers=[testbed.expected(1)], partition=healthy)
        testbed.orders.flush()
        wait_until(lambda: testbed.released() > before, what="the other partitions are served", timeout_seconds=30)
        begun_ms = now_ms()
        with testbed.load(rng, records=2000, per_second=500):
            pass
        wait_until(lambda: testbed.released() > before + 1400, what="most records are out", timeout_seconds=30)
        dead.abort_transaction(60)
        self._worker.ready()
        return Trial(
            injected=f"front partition {held} held up", terms={"healed_at_ms": now_ms()}, context=(held, begun_ms)
        )

    def judge(self, seen: Seen, terms: Terms, trial: Trial) -> Verdict:
        verdict = judge(seen, terms)
        held, begun_ms = trial.context
        due = {
            f"f:{copy.partition}:{copy.offset}:{terms.front_id}": copy.at_ms
            for copy in seen.front
            if copy.partition != held and copy.at_ms > begun_ms
        }
        late_ms = p99(
            copy.at_ms - int(copy.own["dt-due-at"]) for copy in seen.ready if copy.own.get("dt-root", "") in due
        )
        trial.injected += f"; p99 of the others {late_ms} ms"
        if late_ms > self.most_p99_ms:
            verdict.fail("T", f"p99 of the healthy partitions was {late_ms} ms, at most {self.most_p99_ms} may be")
        return verdict
