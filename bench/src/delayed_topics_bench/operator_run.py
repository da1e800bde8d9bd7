"""The parts of the operator's benchmark, in the order in which they are measured: resources get ready, nothing changes, many change.

API server, etcd, broker and operator are processes. There is no controller manager and no node, since a controller manager with its
default of 20 requests a second would take longer than the operator. The benchmark does the work of controller manager and kubelet.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Self

from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.progress import say, step
from delayed_topics_operator.gateways.kube import APIS
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, SYSTEM_NAMESPACE, OperatorProcess

from delayed_topics_bench.operator_cluster import Cluster, play_kubelet
from delayed_topics_bench.operator_meter import Meter, counted, cpu_seconds
from delayed_topics_bench.operator_resources import Resources
from delayed_topics_bench.results import Entry
from delayed_topics_bench.testbed import HEAP_MEGABYTES

__all__ = ["DEFAULT", "PARTS", "QUICK", "OperatorPlan", "Task", "measure"]

READY, IDLE, EDITS = PARTS = ("ready", "idle", "edits")
KUBE_CALLS, KAFKA_CALLS = "delayedtopics_operator_kube_calls_total", "delayedtopics_operator_kafka_calls_total"
REQUESTS = "apiserver_request_total"
WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})
"""The verbs of writes, as the API server counts them."""
WRITTEN = frozenset(api.plural for kind, api in APIS.items() if kind != "Lease")
"""The resources whose writes are counted. The Lease is left out, because the operator renews it every two seconds."""
RETRY_CAPS = 90
SCALED_EACH = 10
"""Every tenth edit changes the number of workers."""


@dataclass(frozen=True, kw_only=True)
class OperatorPlan:
    """The sizes of the benchmark. `strict`: a run that is not valid is repeated, and its figures are not kept."""

    runs: int = 3
    strict: bool = True
    resources: int = 1_000
    idle_seconds: int = 300
    edits_per_second: int = 100
    edit_seconds: int = 300


DEFAULT = OperatorPlan()
QUICK = OperatorPlan(runs=1, strict=False, resources=50, idle_seconds=35, edits_per_second=10, edit_seconds=20)
"""The idle time is a little longer than the interval at which the operator compares everything again."""

Task = Callable[[], Awaitable[Entry]]


class Testbed:
    """All processes of the benchmark, which start when it is entered."""

    def __init__(self, plan: OperatorPlan) -> None:
        self._plan = plan
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            with step("starting an API server, a broker and an operator"):
                server = stack.enter_context(ApiServer(controllers=False))
                broker = stack.enter_context(Broker(settings=PATIENT, heap_megabytes=HEAP_MEGABYTES, java_options=()))
                api = KubeApi(server, server.kubeconfig)
                for namespace in (SYSTEM_NAMESPACE, AUDIT_NAMESPACE):
                    api.kubectl("create", "namespace", namespace)
                self.harness = OperatorHarness(api, broker, OperatorProcess(api))
                stack.callback(self.harness.operator.kill)
                await asyncio.to_thread(self.harness.open)
                await asyncio.to_thread(self.harness.wait, self._connected, "the operator is connected to Kafka")
            self.pids = {
                "operator": self.harness.operator.pid,
                "broker": broker.pid,
                "benchmark": os.getpid(),
                **server.pids,
            }
            self.meter = stack.enter_context(Meter(self.pids["operator"]))
            self.cluster = await stack.enter_async_context(Cluster(server))
            self.resources = Resources(self.cluster)
            await play_kubelet(self.cluster, SYSTEM_NAMESPACE)
            await self.cluster.follow("DelayedTopic", self.harness.namespace, self.resources.seen)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    def _connected(self) -> bool:
        return any(c["status"] == "True" for c in self.harness.connection_status().get("conditions", ()))

    @property
    def names(self) -> list[str]:
        return [f"orders-{n}" for n in range(self._plan.resources)]

    def manifest(self, name: str) -> dict[str, Any]:
        """Returns a DelayedTopic with four topics, which have five partitions in all, and one worker."""
        return self.harness.delayed_topic(name, partitions=2)

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the processor seconds so far by process. Those of the benchmark don't include the processes that it started."""
        spent = cpu_seconds(self.pids)
        spent["benchmark"] -= sum(seconds for name, seconds in spent.items() if name != "benchmark")
        return spent

    async def calls(self) -> dict[str, Counter[tuple[str, ...]]]:
        """Returns the calls so far: the operator's to the API server and to Kafka, and the writes of all clients of the API server."""
        metrics = await asyncio.to_thread(self.harness.operator.metrics)
        requests = counted(await self.cluster.text("/metrics"), REQUESTS, "verb", "resource", "subresource")
        return {
            "kube": counted(metrics, KUBE_CALLS, "verb", "kind"),
            "kafka": counted(metrics, KAFKA_CALLS, "call"),
            "writes": Counter({key: n for key, n in requests.items() if key[0] in WRITES and key[1] in WRITTEN}),
        }


class Span:
    """Measures what is used between `begin` and `end`."""

    def __init__(
        self, testbed: Testbed, cpu: Mapping[str, float], calls: Mapping[str, Counter[tuple[str, ...]]]
    ) -> None:
        self._testbed = testbed
        self._cpu = cpu
        self._calls = calls
        self.began = time.monotonic()

    @classmethod
    async def begin(cls, testbed: Testbed) -> "Span":
        calls = await testbed.calls()
        return cls(testbed, testbed.cpu_seconds(), calls)

    async def end(self) -> tuple[float, dict[str, float], dict[str, dict[str, int]]]:
        """Returns the seconds, the processor seconds by process, and the calls by kind and name."""
        seconds = time.monotonic() - self.began
        cpu = {name: round(value - self._cpu[name], 1) for name, value in self._testbed.cpu_seconds().items()}
        now = await self._testbed.calls()
        calls = {kind: _named(now[kind] - self._calls[kind]) for kind in now}
        return seconds, cpu, calls


async def measure(plan: OperatorPlan, parts: Collection[str], keep: Callable[[str, Task], Awaitable[None]]) -> None:
    """Runs each of these parts once, on one new testbed. `keep` is called with the name of each part and the task that measures it."""
    async with Testbed(plan) as testbed:
        if READY not in parts:
            await ready(testbed, plan)  # the other parts need the resources
        for part, measuring in ((READY, ready), (IDLE, idle), (EDITS, edits)):
            if part in parts:
                await keep(part, partial(measuring, testbed, plan))


async def ready(testbed: Testbed, plan: OperatorPlan) -> Entry:
    """Creates all resources at once, like an apply of many manifests."""
    resources = testbed.resources
    with step(f"{plan.resources:,} DelayedTopics get Ready"):
        span = await Span.begin(testbed)

        async def create(name: str) -> None:
            resources.add_request(await testbed.cluster.create(testbed.manifest(name)))

        await asyncio.gather(*map(create, testbed.names))
        created_seconds = time.monotonic() - span.began
        await resources.wait_finished("all DelayedTopics are Ready")
        seconds, cpu, calls = await span.end()
        say(
            f"{seconds:.1f} s, {cpu['operator']:.1f} s of it the operator's on a processor, {testbed.meter.peak_mib:.0f} MiB"
        )
    finished = sorted(at - span.began for at, _ in resources.finished)
    figures = {
        "seconds": round(seconds, 1),
        "created_seconds": round(created_seconds, 1),
        "cpu_seconds": cpu,
        "peak_mib": round(testbed.meter.peak_mib, 1),
        "calls_per_resource": _each(calls, plan.resources),
        "timeline": [[round(at, 1), n] for n, at in enumerate(finished, 1)],
    }
    return Entry(key=str(plan.resources), figures=figures)


async def idle(testbed: Testbed, plan: OperatorPlan) -> Entry:
    """Measures what the operator does while nothing changes."""
    with step(f"idle for {plan.idle_seconds} s, {plan.resources:,} DelayedTopics"):
        await _until_quiet(testbed)
        span = await Span.begin(testbed)
        await asyncio.sleep(plan.idle_seconds)  # only time can show that nothing is written
        seconds, cpu, calls = await span.end()
        testbed.cluster.check()
        writes = sum(calls["writes"].values())
        say(f"{writes} writes, the operator has {cpu['operator'] / seconds:.1%} of a processor")
    figures = {
        "seconds": round(seconds, 1),
        "writes": writes,
        "written": calls["writes"],
        "operator_cpu_share": round(cpu["operator"] / seconds, 4),
        "peak_mib": round(testbed.meter.peak_mib, 1),
        "calls_per_second": _each(calls, seconds),
    }
    return Entry(key=str(plan.resources), figures=figures)


QUIET_SECONDS = 5.0


async def _until_quiet(testbed: Testbed) -> None:
    """Waits until the operator has finished the passes that its own writes have caused."""
    before = None
    while (now := (await testbed.calls())["writes"]) != before:
        before = now
        await asyncio.sleep(QUIET_SECONDS)  # only time can show that nothing is written


async def edits(testbed: Testbed, plan: OperatorPlan) -> Entry:
    """Edits one resource after the other at a steady rate, and waits until all are as they were declared last."""
    random, names = Random(1), testbed.names
    declared: dict[str, dict[str, int]] = {name: {"retryCap": 5, "replicas": 1} for name in names}
    testbed.resources.finished.clear()
    total = plan.edits_per_second * plan.edit_seconds

    async def edit(name: str, number: int) -> None:
        spec: dict[str, Any]
        if number % SCALED_EACH == 0:
            declared[name]["replicas"] = random.randint(1, 3)
            spec = {"workers": {"replicas": declared[name]["replicas"]}}
        else:
            declared[name]["retryCap"] = random.randint(1, RETRY_CAPS)
            spec = {"retryCap": declared[name]["retryCap"]}
        testbed.resources.add_request(await testbed.cluster.patch(testbed.manifest(name), {"spec": spec}))

    with step(f"{plan.edits_per_second} edits a second for {plan.edit_seconds} s, {plan.resources:,} DelayedTopics"):
        span = await Span.begin(testbed)
        async with asyncio.TaskGroup() as tasks:
            for number in range(total):
                await asyncio.sleep(max(0.0, span.began + number / plan.edits_per_second - time.monotonic()))
                tasks.create_task(edit(names[number % len(names)], number))
        edited_seconds = time.monotonic() - span.began
        await testbed.resources.wait_finished("all edits are followed")
        seconds, cpu, calls = await span.end()
        await _check_converged(testbed, declared)
        say(f"{total / edited_seconds:.0f} edits/s, converged {seconds - edited_seconds:.1f} s after the last")
    took = sorted(seconds for _, seconds in testbed.resources.finished)
    figures = {
        "edits": total,
        "edits_per_s": round(total / edited_seconds, 1),
        "followed": len(took),
        "p50_seconds": round(took[len(took) // 2], 2),
        "p99_seconds": round(took[len(took) * 99 // 100], 2),
        "converged_seconds": round(seconds - edited_seconds, 1),
        "cpu_seconds": cpu,
        "operator_cpu_share": round(cpu["operator"] / seconds, 3),
        "peak_mib": round(testbed.meter.peak_mib, 1),
        "calls_per_edit": _each(calls, total),
        "memory": [[at, mib] for at, mib, _ in testbed.meter.samples],
    }
    return Entry(key=f"{plan.resources:,}, {plan.edits_per_second}/s", figures=figures)


async def _check_converged(testbed: Testbed, declared: Mapping[str, Mapping[str, int]]) -> None:
    """Compares the registry and the StatefulSets with what was declared, whatever the statuses say. Raises DevclusterError."""
    layouts = (await asyncio.to_thread(testbed.harness.registry)).layouts
    live = await asyncio.to_thread(testbed.harness.api.list_all, "StatefulSet", SYSTEM_NAMESPACE)
    replicas = {s["metadata"]["labels"]["delayedtopics.io/name"]: s["spec"]["replicas"] for s in live}
    found = {name: {"retryCap": layouts[name].retry_cap, "replicas": replicas[name]} for name in declared}
    wrong = [name for name in declared if found[name] != declared[name]]
    if wrong:
        first = wrong[0]
        raise DevclusterError(
            f"{len(wrong)} of {len(declared)} are Ready, but not as declared. {first} is {found[first]} instead of {declared[first]}"
        )


def _named(counter: Counter[tuple[str, ...]]) -> dict[str, int]:
    return {" ".join(part for part in key if part): count for key, count in sorted(counter.items())}


def _each(calls: Mapping[str, Mapping[str, int]], number: float) -> dict[str, dict[str, float]]:
    """Returns the operator's calls divided by `number`, with their sums."""
    return {
        kind: {"all": round(sum(by.values()) / number, 2), **{name: round(n / number, 2) for name, n in by.items()}}
        for kind, by in calls.items()
        if kind != "writes"
    }
