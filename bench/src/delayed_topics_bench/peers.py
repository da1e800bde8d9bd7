"""Measures other systems under the same load and the same crash, by the same measure: from sending + delay to the receipt."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.progress import say, step

from delayed_topics_bench.lateness import lateness
from delayed_topics_bench.peer_servers import Server, redis, rocketmq, spring
from delayed_topics_bench.plan import SIZE, Plan
from delayed_topics_bench.recovery import Recovered, ours, recovery, theirs
from delayed_topics_bench.results import NOT_RECEIVED, NOT_TO_BE_HAD, PATIENCE_SECONDS, Entry
from delayed_topics_bench.samples import Samples, Verdict, begun_late, due_under_load, judge, percentiles
from delayed_topics_bench.testbed import Testbed

__all__ = ["OURS", "PEERS", "Peer", "peer_tasks", "recovery_tasks"]

OURS = "delayed topics"
DELAY_SECONDS = 1
COLD_RATE, COLD_SECONDS = 5_000, 3

Starter = Callable[[Testbed], AbstractContextManager[Server]]
"""Starts a peer's servers, which end with the block. Raises DevclusterError if its packages can't be installed."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A system to compare with.

    `warms_up`: the server is slow at first, and rejects records then. `most_per_second`: a higher rate would only show how long the
    queue gets. `has_store`: the system stores its records itself, and not in Kafka.
    """

    title: str
    start: Starter
    warms_up: bool = False
    has_store: bool = True
    most_per_second: int = 1_000_000


PEERS: Mapping[str, Peer] = {
    "rocketmq-4": Peer(title="RocketMQ 4.9.7, delay level", start=rocketmq("4.9.7"), warms_up=True),
    "rocketmq-5": Peer(title="RocketMQ 5.3.3, timer", start=rocketmq("5.3.3", timer=True), warms_up=True),
    "spring": Peer(title="Spring Kafka 3.3.10, @RetryableTopic", start=spring, most_per_second=1_000, has_store=False),
    "redis": Peer(title="Redis 7, sorted set and poller", start=redis),
}


def peer_tasks(testbed: Testbed, plan: Plan) -> Iterator[Callable[[], Sequence[Entry]]]:
    """Yields the tasks that measure lateness: delayed topics first, then each peer."""
    yield partial(_ours, testbed, plan)
    for name in plan.peers or PEERS:
        yield partial(_theirs, testbed, PEERS[name], partial(_figures, plan=plan))


def recovery_tasks(testbed: Testbed, plan: Plan) -> Iterator[Callable[[], Sequence[Entry]]]:
    """Yields the tasks that measure a crash: delayed topics first, then each peer with a store of its own."""
    yield partial(_our_recovery, testbed, plan)
    for name in plan.peers or PEERS:
        if PEERS[name].has_store:
            yield partial(_theirs, testbed, PEERS[name], partial(_recovery, plan=plan))


def _theirs(testbed: Testbed, peer: Peer, measured: Callable[[Peer, Server, Testbed], Entry]) -> Sequence[Entry]:
    with ExitStack() as stack:
        try:
            with step(f"{peer.title}: getting and starting it"):
                server = stack.enter_context(peer.start(testbed))
        except DevclusterError as error:
            say(f"not to be had: {error.message}")
            return [Entry(key=peer.title, figures={NOT_TO_BE_HAD: error.message.splitlines()[0]})]
        return [measured(peer, server, testbed)]


def _our_recovery(testbed: Testbed, plan: Plan) -> Sequence[Entry]:
    with (
        step(f"{OURS}: a crash with {plan.held_records:,} records pending"),
        ours(testbed, workers=plan.cores) as system,
    ):
        return [_recovered(OURS, recovery(testbed, system, records=plan.held_records))]


def _recovery(peer: Peer, server: Server, testbed: Testbed, *, plan: Plan) -> Entry:
    _warm_up(peer, server, testbed)
    with step(f"{peer.title}: a crash with {plan.held_records:,} records pending"):
        return _recovered(peer.title, recovery(testbed, theirs(testbed, server), records=plan.held_records))


def _recovered(name: str, found: Recovered) -> Entry:
    figures = found.figures()
    say(f"{figures}")
    return Entry(key=name, figures=figures, verdict=found.verdict if name == OURS else None)


def _ours(testbed: Testbed, plan: Plan) -> Sequence[Entry]:
    figures: dict[str, Any] = {}
    problem: str | None = None
    total = Verdict()
    for rate in plan.peer_rates:
        with step(f"{OURS} at {rate:,} records/s, delay {DELAY_SECONDS} s"):
            late = lateness(
                testbed,
                warm_seconds=plan.warm_seconds,
                rate=rate,
                seconds=plan.peer_seconds,
                size=SIZE,
                workers=plan.cores,
                delay_seconds=(DELAY_SECONDS,),
                patience_seconds=PATIENCE_SECONDS,
            )
            say(f"{late.from_send}")
        total += late.verdict
        problem = problem or late.problem
        figures[str(rate)] = {
            **late.from_send,
            "early": late.verdict.early,
            "rejected": late.rejected,
            NOT_RECEIVED: late.verdict.lost + late.unfinished,
            "doubled": late.verdict.doubled,
        }
    return [Entry(key=OURS, figures=figures, verdict=total, problem=problem)]


def _warm_up(peer: Peer, server: Server, testbed: Testbed) -> None:
    if peer.warms_up:
        with step(f"{peer.title}: warming it up at {COLD_RATE:,} records/s"):
            _run(server, testbed, rate=COLD_RATE, seconds=COLD_SECONDS)


def _figures(peer: Peer, server: Server, testbed: Testbed, *, plan: Plan) -> Entry:
    _warm_up(peer, server, testbed)
    figures: dict[str, Any] = {}
    problem: str | None = None
    for rate in plan.peer_rates:
        if rate > peer.most_per_second:
            continue
        with step(f"{peer.title} at {rate:,} records/s, delay {DELAY_SECONDS} s"):
            samples = _run(server, testbed, rate=rate, seconds=plan.warm_seconds + plan.peer_seconds)
            due_us = samples.sent["sent_us"] + DELAY_SECONDS * 1_000_000
            counted = due_under_load(samples, due_us=due_us, warm_seconds=plan.warm_seconds)
            verdict = judge(samples, due_us=due_us)
            figures[str(rate)] = {
                **percentiles(samples.late_us(due_us, numbers=counted)),
                "early": verdict.early,
                "rejected": samples.rejected,
                NOT_RECEIVED: verdict.lost,
                "doubled": verdict.doubled,
                "received_per_s": _received_per_second(samples),
            }
            problem = problem or begun_late(samples, warm_seconds=plan.warm_seconds)
            say(f"{figures[str(rate)]}")
    return Entry(key=peer.title, figures=figures, problem=problem)


def _run(server: Server, testbed: Testbed, *, rate: int, seconds: int) -> Samples:
    directory = testbed.new_directory()
    with server.load(
        directory,
        testbed.log,
        delay_seconds=DELAY_SECONDS,
        rate=rate,
        seconds=seconds,
        size=SIZE,
        in_flight=rate * seconds,
        idle_seconds=PATIENCE_SECONDS,
        patience_seconds=PATIENCE_SECONDS,
    ) as program:
        program.expect("done", timeout_seconds=30.0 + seconds + DELAY_SECONDS + PATIENCE_SECONDS)
    return Samples.read(directory)


def _received_per_second(samples: Samples) -> int:
    at_us = samples.first["at_us"]
    return round(len(at_us) / max(1, int(at_us.max() - at_us.min())) * 1e6) if len(at_us) else 0
