"""The parts of the benchmark: each yields its entries as they are measured."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from delayed_topics_devcluster.progress import say, step

from delayed_topics_bench.burst import burst
from delayed_topics_bench.ceiling import ceiling
from delayed_topics_bench.cpu import Watch
from delayed_topics_bench.drain import drain_direct, drain_hopped
from delayed_topics_bench.lateness import Late, lateness
from delayed_topics_bench.memory import memory
from delayed_topics_bench.peers import measure_peers
from delayed_topics_bench.plan import SIZE, Plan
from delayed_topics_bench.results import Entry
from delayed_topics_bench.samples import Verdict
from delayed_topics_bench.stand import Stand

__all__ = ["PARTS", "Part"]

Part = Callable[[Stand, Plan], Iterator[Entry]]

DELAY_SECONDS = (1, 10)


def measure_drain(stand: Stand, plan: Plan) -> Iterator[Entry]:
    for size in plan.sizes:
        records = plan.records_of(size)
        with step(f"ceiling, {size} B: Kafka's perf tools"):
            top = ceiling(stand, size=size, records=records)
            say(f"produce {top.produce:,.0f}/s, consume {top.consume:,.0f}/s, a relay {top.relay:,.0f}/s at most")
        figures: dict[str, Any] = {
            "ceiling": round(top.relay),
            "produce": round(top.produce),
            "consume": round(top.consume),
            "records": records,
        }
        hopped: dict[str, Any] = {}
        verdict = Verdict()
        for workers in plan.workers:
            with step(f"drain, {size} B, front to ready, workers: {workers}"):
                direct = drain_direct(stand, workers=workers, records=records, size=size)
                say(f"{direct.per_second:,.0f} records/s, {direct.cpu_us_per_record:.1f} µs CPU a record")
            with step(f"drain, {size} B, front to delays to ready, workers: {workers}"):
                hops, first, second = drain_hopped(stand, workers=workers, records=records, size=size)
                say(f"{hops.per_second:,.0f} records/s, {hops.cpu_us_per_record:.1f} µs CPU a record")
            figures[str(workers)] = round(direct.per_second)
            hopped[str(workers)] = {
                "records_per_s": round(hops.per_second),
                "hop_per_s": round(records / first.seconds),
                "release_per_s": round(records / second.seconds),
                "cpu_us": round(hops.cpu_us_per_record, 1),
            }
            figures[f"cpu_us_{workers}"] = round(direct.cpu_us_per_record, 1)
            verdict += direct.verdict + hops.verdict
        figures["by_hop"] = hopped
        yield Entry(part="records_per_s", key=str(size), figures=figures, verdict=verdict)


def measure_lateness(stand: Stand, plan: Plan) -> Iterator[Entry]:
    for rate in plan.rates:
        with step(f"lateness at {rate:,} records/s, workers: {plan.cores}, {plan.seconds} s"):
            late = lateness(
                stand,
                warm_seconds=plan.warm_seconds,
                rate=rate,
                seconds=plan.seconds,
                size=SIZE,
                workers=plan.cores,
                delay_seconds=DELAY_SECONDS,
            )
            say(f"{shown(late.late)}; broker's ack p99.9 {late.ack_p999_ms:.1f} ms")
        figures = {**late_figures(late), "workers": plan.cores, "seconds": plan.seconds}
        yield Entry(part="lateness_ms", key=str(rate), figures=figures, verdict=late.verdict)


def late_figures(late: Late) -> dict[str, Any]:
    by_delay = {f"{delay} s": figures for delay, figures in late.by_delay.items()}
    return {
        **late.late,
        "by_delay": by_delay,
        "ack_p999": late.ack_p999_ms,
        "valid": late.valid,
        "unfinished": late.unfinished,
    }


def shown(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,.1f}" for name, value in figures.items()) + " ms"


def measure_burst(stand: Stand, plan: Plan) -> Iterator[Entry]:
    with step(f"burst of {plan.burst_records:,} records, workers: {plan.cores}"):
        found = burst(stand, records=plan.burst_records, size=SIZE, workers=plan.cores)
        say(f"{found.per_second:,.0f} records/s, {found.per_second / found.top_per_second:.0%} of top speed")
    figures = {
        "records_per_s": round(found.per_second),
        "top_per_s": round(found.top_per_second),
        "share_of_top": round(found.per_second / found.top_per_second, 3),
        "records": found.records,
        "lanes": found.lanes,
        "workers": plan.cores,
        "first_ms": found.first_ms,
        "last_ms": found.last_ms,
        "disordered": found.verdict.disordered,
        "timeline": found.timeline,
    }
    yield Entry(part="burst", figures=figures, verdict=found.verdict)


def measure_memory(stand: Stand, plan: Plan) -> Iterator[Entry]:
    for size in plan.sizes:
        with step(f"memory of {plan.held_records:,} records that wait, {size} B"):
            found = memory(stand, held=plan.held_records, size=size)
            say(f"{found.bytes_per_record:,.0f} bytes a record; {found.full_mib:,.0f} MiB with a full window")
        figures = {
            "bytes_per_record": round(found.bytes_per_record),
            "held": found.held,
            "idle_mib": round(found.idle_mib, 1),
            "full_window_mib": round(found.full_mib, 1),
            "full_window_held": found.full_held,
        }
        yield Entry(part="memory", key=str(size), figures=figures)


def measure_cpu(stand: Stand, plan: Plan) -> Iterator[Entry]:
    watch = Watch(records=plan.cpu_records)
    with step(f"CPU by section, {plan.cpu_records:,} records, both ways"):
        direct = drain_direct(stand, workers=1, records=plan.cpu_records, size=SIZE, watch=watch)
        hopped, _, _ = drain_hopped(stand, workers=1, records=plan.cpu_records, size=SIZE, watch=watch)
    ways = ("front to ready", "front to delays", "delays to ready")
    for way, figures in zip(ways, watch.legs, strict=True):
        say(f"{way}: " + ", ".join(f"{section} {us:.1f}" for section, us in figures.items()) + " µs a record")
        verdict = {ways[0]: direct.verdict, ways[1]: hopped.verdict}.get(way)
        yield Entry(part="cpu_us_per_record", key=way, figures=figures, verdict=verdict)


PARTS: Mapping[str, Part] = {
    "drain": measure_drain,
    "lateness": measure_lateness,
    "burst": measure_burst,
    "memory": measure_memory,
    "cpu": measure_cpu,
    "peers": measure_peers,
}
