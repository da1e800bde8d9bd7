"""B4, B5 and B7: records, topics and offsets that disappear under a running worker. A worker never guesses an offset."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import Broker
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import Testbed, now_ms

ALARM_SECONDS: Final = 15.0
QUIET_SECONDS: Final = 1.5
RECORDS: Final = 1000


class RecordsRemoved(Row):
    name = "B4"
    fault = "retention removes records that were not released"

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1))
        self._worker = testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        orders = testbed.orders
        front, partition = orders.names.front, rng.randrange(2)
        before = _committed(testbed)[front, partition]
        self._worker.terminate()
        with testbed.load(rng, records=RECORDS, per_second=RECORDS * 2):
            pass
        cut = before + rng.randint(1, RECORDS // 3)
        testbed.delete_records(front, partition, cut)
        self._worker = testbed.start(ready=False)
        trial = Trial(injected=f"{cut - before} records of front partition {partition} removed")
        trial.expect_alarm(self._worker, Reason.RECORDS_REMOVED, timeout_seconds=ALARM_SECONDS)
        text = " ".join(alarm["message"] for alarm in self._worker.status().get("alarms", []))
        trial.expect(
            f"offset {before}" in text and f"offsets {cut} to" in text, "A", f"the alarm has no offsets: {text}"
        )
        time.sleep(QUIET_SECONDS)
        at = _committed(testbed)[front, partition]
        trial.expect(at == before, "L", f"partition {partition} went on at {at} by itself, {before} was committed")
        self._worker.terminate()
        testbed.empty_group()
        testbed.harness.commit(orders.record.group, {(front, partition): OffsetAndMetadata(cut)})
        self._worker = testbed.start()
        # the independent reader can't see the removed records either, so the judge doesn't have to exclude them
        trial.terms = {"healed_at_ms": now_ms()}
        return trial


class TopicMadeAgain(Row):
    name = "B5"
    fault = "the front topic is deleted and made again; in every other trial the worker dies before it can see that"

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1))
        self._worker = testbed.start()
        self._turns = count()
        with testbed.load(Random(0), records=RECORDS, per_second=RECORDS * 2):
            pass
        testbed.settled()
        testbed.read()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        orders = testbed.orders
        front, partitions = orders.names.front, orders.record.front_partitions
        dies = next(self._turns) % 2 == 1
        testbed.harness.admin.delete_topics([front])
        info = orders.make("front", partitions)
        testbed.forget(front)
        if dies:
            time.sleep(rng.uniform(0, 2))
            self._worker.kill()
        with testbed.load(rng, records=RECORDS, per_second=RECORDS * 2):
            pass
        if dies:
            self._worker = testbed.start(ready=False)
        trial = Trial(injected=f"front topic made again{', the worker killed' if dies else ''}")
        trial.expect_alarm(self._worker, Reason.TOPIC_RECREATED, timeout_seconds=ALARM_SECONDS)
        time.sleep(QUIET_SECONDS)
        released = testbed.peek(orders.names.ready)
        trial.expect(
            not released, "A", f"{len(released)} records of the new topic were released before anybody accepted it"
        )
        orders.topics = replace(
            orders.topics,
            ids={**orders.topics.ids, front: info.id},
            start_offsets={**orders.topics.start_offsets, front: (0,) * partitions},
            begun={**orders.topics.begun, front: 0},
        )
        testbed.harness.write(orders.topics)
        trial.terms = {"healed_at_ms": now_ms()}
        return trial


class OffsetsGone(Row):
    name = "B7"
    fault = "the group is deleted, its offsets expire, or it is paused for longer than its offsets live (in turns)"
    beyond_seconds: float = 75

    @contextmanager
    def testbed(self, directory: Path) -> Iterator[Testbed]:
        short = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
        with Broker(settings=short) as broker, Testbed(directory, broker.bootstrap) as testbed:
            yield testbed

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1))
        self._worker: WorkerProcess = testbed.start()
        self._turns = count()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        ways: list[Callable[[Testbed, Random], Trial]] = [self._deleted, self._paused, self._expired]
        return ways[next(self._turns) % len(ways)](testbed, rng)

    def _deleted(self, testbed: Testbed, rng: Random) -> Trial:
        group = testbed.orders.record.group

        def delete() -> None:
            testbed.harness.admin.delete_groups([group])

        return self._without_offsets(testbed, rng, "group deleted", delete)

    def _expired(self, testbed: Testbed, rng: Random) -> Trial:
        return self._without_offsets(testbed, rng, "offsets expired", lambda: time.sleep(self.beyond_seconds))

    def _without_offsets(self, testbed: Testbed, rng: Random, injected: str, take_away: Callable[[], None]) -> Trial:
        orders = testbed.orders
        before = _committed(testbed)
        self._worker.terminate()
        testbed.empty_group()
        take_away()
        trial = Trial(injected=injected)
        trial.expect(not _committed(testbed), "A", "the offsets are still there, nothing was injected")
        with testbed.load(rng, records=RECORDS, per_second=RECORDS * 2):
            pass
        self._worker = testbed.start(ready=False)
        trial.expect_alarm(self._worker, Reason.COMMIT_MISSING, timeout_seconds=ALARM_SECONDS)
        time.sleep(QUIET_SECONDS)
        released = testbed.peek(orders.names.ready)
        trial.expect(not released, "L", f"{len(released)} records were released from a guessed offset")
        self._worker.terminate()
        testbed.empty_group()
        testbed.harness.commit(orders.record.group, {place: OffsetAndMetadata(at) for place, at in before.items()})
        self._worker = testbed.start()
        trial.terms = {"healed_at_ms": now_ms()}
        return trial

    def _paused(self, testbed: Testbed, rng: Random) -> Trial:
        testbed.orders.change(paused=True)
        with testbed.load(rng, records=RECORDS, per_second=RECORDS * 2):
            pass
        time.sleep(self.beyond_seconds)
        trial = Trial(injected=f"paused for {self.beyond_seconds:g} s, offsets live 60 s")
        trial.expect(not self._worker.alarm_reasons(), "A", f"alarms while paused: {self._worker.alarm_reasons()}")
        testbed.orders.change(paused=False)
        trial.terms = {"healed_at_ms": now_ms()}
        return trial


def _committed(testbed: Testbed) -> dict[tuple[str, int], int]:
    return {place: at.offset for place, at in testbed.orders.committed().items()}
