"""B4, B5 and B7: records, topics and offsets that are taken away under a worker. Nothing is ever guessed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.model import CommittedOffset
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_faults.row import Play, Row
from delayed_topics_faults.stage import Stage, now_ms

ALARM_SECONDS: Final = 15.0
QUIET_SECONDS: Final = 1.5
RECORDS: Final = 1000


class RecordsRemoved(Row):
    name = "B4"
    fault = "retention removes records that were not released"

    def open(self, stage: Stage) -> None:
        stage.declare((0, 1))
        self._worker = stage.start()

    def trial(self, stage: Stage, rng: Random) -> Play:
        orders = stage.orders
        front, partition = orders.names.front, rng.randrange(2)
        before = _committed(stage)[front, partition]
        self._worker.terminate()
        with stage.load(rng, records=RECORDS, per_second=RECORDS * 2):
            pass
        cut = before + rng.randint(1, RECORDS // 3)
        stage.delete_records(front, partition, cut)
        self._worker = stage.start(ready=False)
        play = Play(injected=f"{cut - before} records of front partition {partition} removed")
        play.alarmed(self._worker, Reason.RECORDS_REMOVED, timeout_seconds=ALARM_SECONDS)
        text = " ".join(alarm["message"] for alarm in self._worker.status().get("alarms", []))
        play.expect(
            f"offset {before}" in text and f"offsets {cut} to" in text, "A", f"the alarm has no offsets: {text}"
        )
        time.sleep(QUIET_SECONDS)
        at = _committed(stage)[front, partition]
        play.expect(at == before, "L", f"partition {partition} went on at {at} by itself, {before} was committed")
        self._worker.terminate()
        stage.empty_group()
        stage.world.commit(orders.record.group, {(front, partition): CommittedOffset(cut)})
        self._worker = stage.start()
        # the independent reader can't see what was removed, so there is nothing to take out of the account
        play.terms = {"healed_at_ms": now_ms()}
        return play


class TopicMadeAgain(Row):
    name = "B5"
    fault = "the front topic is deleted and made again; in every other trial the worker dies before it can see that"

    def open(self, stage: Stage) -> None:
        stage.declare((0, 1))
        self._worker = stage.start()
        self._turns = count()
        with stage.load(Random(0), records=RECORDS, per_second=RECORDS * 2):
            pass
        stage.settled()
        stage.read()

    def trial(self, stage: Stage, rng: Random) -> Play:
        orders = stage.orders
        front, partitions = orders.names.front, orders.record.front_partitions
        dies = next(self._turns) % 2 == 1
        stage.world.admin.delete_topics([front])
        info = orders.make("front", partitions)
        stage.forget(front)
        if dies:
            time.sleep(rng.uniform(0, 2))
            self._worker.kill()
        with stage.load(rng, records=RECORDS, per_second=RECORDS * 2):
            pass
        if dies:
            self._worker = stage.start(ready=False)
        play = Play(injected=f"front topic made again{', the worker killed' if dies else ''}")
        play.alarmed(self._worker, Reason.TOPIC_RECREATED, timeout_seconds=ALARM_SECONDS)
        time.sleep(QUIET_SECONDS)
        tally = stage.peek(orders.names.ready)
        play.expect(not tally, "A", f"{len(tally)} records of the new topic were released before anybody accepted it")
        orders.topics = replace(
            orders.topics,
            ids={**orders.topics.ids, front: info.id},
            start_offsets={**orders.topics.start_offsets, front: (0,) * partitions},
            begun={**orders.topics.begun, front: 0},
        )
        stage.world.write(orders.topics)
        play.terms = {"healed_at_ms": now_ms()}
        return play


class OffsetsGone(Row):
    name = "B7"
    fault = "the group is deleted, its offsets expire, or it is paused for longer than its offsets live (in turns)"
    beyond_seconds: float = 75

    @contextmanager
    def stage(self, directory: Path) -> Iterator[Stage]:
        short = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
        with Broker(settings=short) as broker, Stage(directory, broker.bootstrap) as stage:
            yield stage

    def open(self, stage: Stage) -> None:
        stage.declare((0, 1))
        self._worker: WorkerProcess = stage.start()
        self._turns = count()

    def trial(self, stage: Stage, rng: Random) -> Play:
        ways: list[Callable[[Stage, Random], Play]] = [self._deleted, self._paused, self._expired]
        return ways[next(self._turns) % len(ways)](stage, rng)

    def _deleted(self, stage: Stage, rng: Random) -> Play:
        group = stage.orders.record.group

        def delete() -> None:
            stage.world.admin.delete_groups([group])

        return self._without_offsets(stage, rng, "group deleted", delete)

    def _expired(self, stage: Stage, rng: Random) -> Play:
        return self._without_offsets(stage, rng, "offsets expired", lambda: time.sleep(self.beyond_seconds))

    def _without_offsets(self, stage: Stage, rng: Random, injected: str, take_away: Callable[[], None]) -> Play:
        orders = stage.orders
        before = _committed(stage)
        self._worker.terminate()
        stage.empty_group()
        take_away()
        play = Play(injected=injected)
        play.expect(not _committed(stage), "A", "the offsets are still there, nothing was injected")
        with stage.load(rng, records=RECORDS, per_second=RECORDS * 2):
            pass
        self._worker = stage.start(ready=False)
        play.alarmed(self._worker, Reason.COMMIT_MISSING, timeout_seconds=ALARM_SECONDS)
        time.sleep(QUIET_SECONDS)
        released = stage.peek(orders.names.ready)
        play.expect(not released, "L", f"{len(released)} records were released from a guessed offset")
        self._worker.terminate()
        stage.empty_group()
        stage.world.commit(orders.record.group, {place: CommittedOffset(at) for place, at in before.items()})
        self._worker = stage.start()
        play.terms = {"healed_at_ms": now_ms()}
        return play

    def _paused(self, stage: Stage, rng: Random) -> Play:
        stage.orders.change(paused=True)
        with stage.load(rng, records=RECORDS, per_second=RECORDS * 2):
            pass
        time.sleep(self.beyond_seconds)
        play = Play(injected=f"paused for {self.beyond_seconds:g} s, offsets live 60 s")
        play.expect(not self._worker.alarm_reasons(), "A", f"alarms while paused: {self._worker.alarm_reasons()}")
        stage.orders.change(paused=False)
        play.terms = {"healed_at_ms": now_ms()}
        return play


def _committed(stage: Stage) -> dict[tuple[str, int], int]:
    return {place: at.offset for place, at in stage.orders.committed().items()}
