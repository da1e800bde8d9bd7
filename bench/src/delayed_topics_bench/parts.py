"""The parts of the benchmark. Each yields tasks, which are run one after the other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

from delayed_topics_devcluster.progress import say, step

from delayed_topics_bench.burst import burst
from delayed_topics_bench.ceiling import Ceiling, ceiling
from delayed_topics_bench.cpu import Watch
from delayed_topics_bench.drain import Drained, drain_direct, drain_hopped
from delayed_topics_bench.lateness import Late, floor, lateness
from delayed_topics_bench.memory import memory
from delayed_topics_bench.neighbours import PLACEMENTS, Placement, beside
from delayed_topics_bench.peers import peer_tasks, recovery_tasks
from delayed_topics_bench.plan import SIZE, Plan
from delayed_topics_bench.profile import Profile
from delayed_topics_bench.rebalance import EVENTS, SETUPS, EventKind, rebalance
from delayed_topics_bench.results import Entry
from delayed_topics_bench.samples import Verdict
from delayed_topics_bench.shared import idle_topics
from delayed_topics_bench.testbed import Testbed

__all__ = ["PARTS", "Part", "Task"]

Task = Callable[[], Sequence[Entry]]
"""Measures something once, and returns the entries for the results."""
Part = Callable[[Testbed, Plan], Iterator[Task]]

DELAY_SECONDS = (1, 10)
TOPICS_PER_WORKER = 250
VALID_ACK_MS = 15.0
"""If the broker takes longer to acknowledge (p99.9) although no worker runs, the run says little about workers."""
REPLICATED_VALID_ACK_MS = 100.0
"""The same for three brokers, which share the cores and wait for each other. 34 to 57 ms are usual."""


def drain_tasks(testbed: Testbed, plan: Plan) -> Iterator[Task]:
    return (partial(_drain, testbed, plan, size) for size in plan.sizes)


def _drain(testbed: Testbed, plan: Plan, size: int) -> Sequence[Entry]:
    records = plan.records_of(size)
    with step("a drain that isn't counted, since the broker compiles meanwhile"):
        drain_direct(testbed, workers=1, records=records, size=size)
    direct: dict[str, Any] = {}
    by_hop: dict[str, Any] = {}
    verdict = Verdict()
    tops = [_ceiling(testbed, plan, size)]
    for workers in plan.workers:
        with step(f"drain, {size} B, front to ready, workers: {workers}"):
            straight = drain_direct(testbed, workers=workers, records=records, size=size)
            say(_summary(straight))
        with step(f"drain, {size} B, front to delays to ready, workers: {workers}"):
            hopped, first, second = drain_hopped(testbed, workers=workers, records=records, size=size)
            say(_summary(hopped))
        tops.append(_ceiling(testbed, plan, size))
        # the host's processors have two speeds, so the ceiling is the mean of those before and after
        top = Ceiling.mean(tops[-2:])
        direct[str(workers)] = _drained(straight, top.relay)
        by_hop[str(workers)] = {
            **_drained(hopped, top.relay / 2),
            "hop_per_s": round(records / first.seconds),
            "release_per_s": round(records / second.seconds),
        }
        verdict += straight.verdict + hopped.verdict
    top = Ceiling.mean(tops)
    figures = {
        "ceiling": {"produce": round(top.produce), "consume": round(top.consume), "relay": round(top.relay)},
        "records": records,
        "direct": direct,
        "by_hop": by_hop,
    }
    return [Entry(key=str(size), figures=figures, verdict=verdict)]


def _ceiling(testbed: Testbed, plan: Plan, size: int) -> Ceiling:
    with step(f"ceiling, {size} B: Kafka's perf tools"):
        top = ceiling(testbed, size=size, records=plan.ceiling_records_of(size))
        say(f"produce {top.produce:,.0f}/s, consume {top.consume:,.0f}/s, a relay {top.relay:,.0f}/s at most")
    return top


def _summary(drained: Drained) -> str:
    return f"{drained.per_second:,.0f} records/s, {drained.cpu_us_per_record:.1f} µs CPU a record"


def _drained(drained: Drained, ceiling_per_second: float) -> dict[str, float]:
    return {
        "records_per_s": round(drained.per_second),
        "share_of_ceiling": round(drained.per_second / ceiling_per_second, 3),
        "cpu_us": round(drained.cpu_us_per_record, 2),
        "first_ms": drained.first_ms,
    }


def lateness_tasks(testbed: Testbed, plan: Plan) -> Iterator[Task]:
    return (partial(_lateness, testbed, plan, rate) for rate in plan.rates)


def replicated_tasks(testbed: Testbed, plan: Plan) -> Iterator[Task]:
    with ExitStack() as stack:
        with step("starting three brokers"):
            replicated = stack.enter_context(Testbed(exactly_once=testbed.exactly_once, replicated=True))
        yield from (
            partial(_lateness, replicated, plan, rate, valid_ack_ms=REPLICATED_VALID_ACK_MS)
            for rate in plan.replicated_rates
        )


def _lateness(testbed: Testbed, plan: Plan, rate: int, *, valid_ack_ms: float = VALID_ACK_MS) -> Sequence[Entry]:
    floor_seconds = plan.seconds // 2
    with step(f"floor at {rate:,} records/s, {floor_seconds} s"):
        least = floor(testbed, warm_seconds=plan.warm_seconds // 2, rate=rate, seconds=floor_seconds, size=SIZE)
        say(f"{shown(least.late)}; broker's ack p99.9 {least.ack_p999_ms:.1f} ms")
    with step(f"lateness at {rate:,} records/s, workers: {plan.cores}, {plan.seconds} s"):
        late = _late_at(testbed, plan, rate, workers=plan.cores)
        say(f"{shown(late.late)}; broker's ack p99.9 {late.ack_p999_ms:.1f} ms")
    figures = {
        **_late(late),
        "by_delay": {f"{delay} s": figures for delay, figures in late.by_delay.items()},
        "floor": _late(least),
        "unfinished": late.unfinished,
        "workers": plan.cores,
        "seconds": plan.seconds,
    }
    problem = late.problem
    if least.ack_p999_ms > valid_ack_ms:
        problem = f"without any worker the broker took {least.ack_p999_ms:.0f} ms to acknowledge (p99.9)"
    return [Entry(key=str(rate), figures=figures, verdict=late.verdict, problem=problem)]


def _late_at(testbed: Testbed, plan: Plan, rate: int, **further: Any) -> Late:
    return lateness(
        testbed,
        warm_seconds=plan.warm_seconds,
        rate=rate,
        seconds=plan.seconds,
        size=SIZE,
        delay_seconds=DELAY_SECONDS,
        **further,
    )


def _late(late: Late) -> dict[str, float]:
    return {**late.late, "ack_p999": late.ack_p999_ms}


def shown(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,.1f}" for name, value in figures.items()) + " ms"


def burst_tasks(testbed: Testbed, plan: Plan) -> Iterator[Task]:
    yield partial(_burst, testbed, plan)


def _burst(testbed: Testbed, plan: Plan) -> Sequence[Entry]:
    with step(f"burst of {plan.burst_records:,} records, workers: {plan.cores}"):
        found = burst(testbed, records=plan.burst_records, size=SIZE, workers=plan.cores)
        say(f"{found.per_second:,.0f} records/s, {found.per_second / found.top_per_second:.0%} of top speed")
    figures = {
        "records_per_s": round(found.per_second),
        "top_per_s": round(found.top_per_second),
        "share_of_top": round(found.per_second / found.top_per_second, 3),
        "lanes": found.lanes,
        "workers": plan.cores,
        "first_ms": found.first_ms,
        "last_ms": found.last_ms,
        "disordered": found.verdict.disordered,
        "timeline": found.timeline,
    }
    return [Entry(key=str(found.records), figures=figures, verdict=found.verdict)]


def memory_tasks(testbed: Testbed, plan: Plan) -> Iterator[Task]:
    return (partial(_memory, testbed, plan, size) for size in plan.sizes)


def _memory(testbed: Testbed, plan: Plan, size: int) -> Sequence[Entry]:
    with step(f"memory of {plan.held_records:,} records that wait, {size} B"):
        found = memory(testbed, held=plan.held_records, size=size)
        beyond = found.bytes_per_record - found.own_bytes
        say(f"{found.bytes_per_record:,.0f} bytes a record, {beyond:,.0f} beyond its own")
        say(f"{found.full_mib:,.0f} MiB with a full window")
    figures = {
        "bytes_per_record": round(found.bytes_per_record),
        "beyond_bytes_per_record": round(beyond),
        "held": found.held,
        "idle_mib": round(found.idle_mib, 1),
        "full_window_mib": round(found.full_mib, 1),
        "full_window_held": found.full_held,
    }
    return [Entry(key=str(size), figures=figures)]


def cpu_tasks(testbed: Testbed, plan: Plan) -> Iterator[Task]:
    yield partial(_cpu, testbed, plan)


def _cpu(testbed: Testbed, plan: Plan) -> Sequence[Entry]:
    watch = Watch(records=plan.cpu_records)
    with step(f"CPU by thread, {plan.cpu_records:,} records, both ways"):
        direct = drain_direct(testbed, workers=1, records=plan.cpu_records, size=SIZE, watch=watch)
        hopped, _, _ = drain_hopped(testbed, workers=1, records=plan.cpu_records, size=SIZE, watch=watch)
    ways = ("front to ready", "front to delays", "delays to ready")
    verdicts = (direct.verdict, None, hopped.verdict)
    for way, figures in zip(ways, watch.legs, strict=True):
        say(f"{way}: " + ", ".join(f"{section} {us:.1f}" for section, us in figures.items()) + " µs a record")
    return [
        Entry(key=way, figures=figures, verdict=verdict)
        for way, figures, verdict in zip(ways, watch.legs, verdicts, strict=True)
    ]


def profile_tasks(testbed: Testbed, plan: Plan) -> Iterator[Task]:
    yield partial(_profile_of_drain, testbed, plan)
    yield from (partial(_profile_of_load, testbed, plan, rate) for rate in plan.rates)


def _profile_of_drain(testbed: Testbed, plan: Plan) -> Sequence[Entry]:
    profile = Profile(testbed.new_directory(), records=plan.cpu_records)
    with step(f"profile of a drain of {plan.cpu_records:,} records, front to ready"):
        drained = drain_direct(testbed, workers=1, records=plan.cpu_records, size=SIZE, watch=profile)
    return [Entry(key="drain, front to ready", figures=profile.figures, verdict=drained.verdict)]


def _profile_of_load(testbed: Testbed, plan: Plan, rate: int) -> Sequence[Entry]:
    profile = Profile(
        testbed.new_directory(), records=rate * plan.seconds, warm_seconds=plan.warm_seconds, seconds=plan.seconds
    )
    with step(f"profile at {rate:,} records/s"):
        late = _late_at(testbed, plan, rate, workers=1, watch=profile)
    return [Entry(key=f"{rate:,} records/s, by way of delays", figures=profile.figures, verdict=late.verdict)]


def rebalance_tasks(testbed: Testbed, plan: Plan) -> Iterator[Task]:
    yield partial(_uncounted_rebalance, testbed, plan)
    for members in plan.members:
        for event in EVENTS:
            for name, setup in SETUPS.items():
                if event != "grow" or setup.sees_growth:
                    yield partial(_rebalance, testbed, plan, name, members, event)


def _uncounted_rebalance(testbed: Testbed, plan: Plan) -> Sequence[Entry]:
    with step("a rebalance that isn't counted, since the broker compiles meanwhile"):
        rebalance(
            testbed,
            SETUPS["worker, Classic, Range"],
            members=max(plan.members),
            partitions=plan.shared_partitions,
            event="join",
        )
    return []


def _rebalance(testbed: Testbed, plan: Plan, name: str, members: int, event: EventKind) -> Sequence[Entry]:
    with step(f"{name}: {members} members, {plan.shared_partitions} partitions, {event}"):
        found = rebalance(testbed, SETUPS[name], members=members, partitions=plan.shared_partitions, event=event)
        say(
            f"over after {found.convergence_s:.1f} s; {found.moved} partitions moved, for {found.moved_pause_ms or 0:,.0f} ms"
        )
        say(f"others paused for {found.undisturbed_pause_p99_ms:,.0f} ms; {found.late:,} records were late")
        if found.process_up_s is not None and found.served_after_up_s is not None:
            say(f"process up after {found.process_up_s:.1f} s, its partitions {found.served_after_up_s:.1f} s later")
    key = f"{event}, {members} members, {plan.shared_partitions} partitions: {name}"
    return [Entry(key=key, figures={name: figure for name, figure in asdict(found).items() if figure is not None})]


def shared_tasks(testbed: Testbed, plan: Plan) -> Iterator[Task]:
    return (partial(_shared, testbed, plan, topics) for topics in plan.idle_topics)


def _shared(testbed: Testbed, plan: Plan, topics: int) -> Sequence[Entry]:
    workers = max(1, topics // TOPICS_PER_WORKER)
    with step(f"{topics} topics with nothing to do, workers: {workers}, {plan.idle_seconds} s"):
        found = idle_topics(testbed, topics=topics, workers=workers, seconds=plan.idle_seconds)
        say(
            f"{found.cores:.1%} of a core and {found.resident_mib:,.0f} MiB a worker, {found.new_topic_ms:,.0f} ms for a new topic"
        )
    return [Entry(key=str(topics), figures=asdict(found))]


def neighbours_tasks(testbed: Testbed, plan: Plan) -> Iterator[Task]:
    return (
        partial(_neighbours, testbed, plan, placement, noisy_rate)
        for noisy_rate in plan.noisy_rates
        for placement in PLACEMENTS
        if placement != "alone" or noisy_rate == plan.noisy_rates[0]
    )


def _neighbours(testbed: Testbed, plan: Plan, placement: Placement, noisy_rate: int) -> Sequence[Entry]:
    key = placement if placement == "alone" else f"{placement}, {noisy_rate:,}/s"
    with step(f"{plan.quiet_rate} records/s on a shared worker, {key}, {plan.seconds} s"):
        late = beside(
            testbed,
            placement,
            rate=plan.quiet_rate,
            noisy_rate=noisy_rate,
            warm_seconds=plan.warm_seconds,
            seconds=plan.seconds,
            size=SIZE,
        )
        say(f"{shown(late.late)}; broker's ack p99.9 {late.ack_p999_ms:.1f} ms")
    return [Entry(key=key, figures={**_late(late), "quiet_rate": plan.quiet_rate}, verdict=late.verdict)]


PARTS: Mapping[str, Part] = {
    "drain": drain_tasks,
    "lateness": lateness_tasks,
    "replicated": replicated_tasks,
    "burst": burst_tasks,
    "memory": memory_tasks,
    "cpu": cpu_tasks,
    "profile": profile_tasks,
    "peers": peer_tasks,
    "recovery": recovery_tasks,
    "rebalance": rebalance_tasks,
    "shared": shared_tasks,
    "neighbours": neighbours_tasks,
}
