"""The main job, for people to watch: a delayed topic on a real cluster, with failures, a killed worker and an audit.

Needs KUBECONFIG and KAFKA_BOOTSTRAP (`make env`), kubectl in the PATH and an operator that is installed; `make demo` sees to all of it.
"""

import json
import os
import random
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient
from delayed_topics import DelayedTopic, Record
from rich.console import Console
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from tenacity import RetryCallState, retry, retry_if_result, stop_after_delay, wait_fixed

EXAMPLES = Path(__file__).parent
INSTALLATION = os.environ.get("CHART_NAMESPACE", "delayed-topics-system")
NAMESPACE = "shop" if INSTALLATION == "delayed-topics-system" else f"shop-{INSTALLATION}"
FAILING = 0.2
CONSUMERS = 3
AUDIT_SECONDS = 600
ROUTE_SECONDS = 5.0
console = Console(highlight=False)


def kubectl(*arguments: str, show: bool = False, text_in: str | None = None) -> str:
    command = ("kubectl", "-n", NAMESPACE, *arguments)
    if show:
        console.print(f"[bold]$ kubectl {' '.join(arguments)}[/]")
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=text_in)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)}: {done.stderr.strip()}")
    if show:
        console.print(done.stdout, markup=False)
    return done.stdout


def manifest() -> str:
    """examples/orders.yaml; with the connection of a second installation in this cluster, where `default` is another's."""
    text = (EXAMPLES / "orders.yaml").read_text()
    for found in json.loads(kubectl("get", "clusterkafkaconnections", "-o", "json"))["items"]:
        meta = found["metadata"]
        ours = meta.get("annotations", {}).get("delayedtopics.io/installation") == INSTALLATION
        if ours and meta["name"] != "default":
            text += f"  connectionRef: {{name: {meta['name']}}}\n"
    return text


def require_route(bootstrap: str) -> None:
    """The clients run here, and the evaluation Kafka is known by the address of its pod."""
    try:
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=ROUTE_SECONDS)
    except KafkaException:
        raise click.ClickException(
            f"this machine does not reach the evaluation Kafka at {bootstrap}, the address of its pod. The clients of the demo"
            " run here, so add a route to the pods of the cluster, which kind does not set up. Or run `make demo` without CONTEXT"
        ) from None


def topic_status() -> dict[str, Any]:
    status: dict[str, Any] = json.loads(kubectl("get", "dtopic", "orders", "-o", "json")).get("status", {})
    return status


@dataclass
class Tally:
    """What was seen so far. Written by the consumers' threads, read by the view."""

    failing: random.Random
    by_attempt: Counter[int] = field(default_factory=Counter)
    lateness_ms: list[float] = field(default_factory=list)
    handled: set[str | None] = field(default_factory=set)
    dead: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    seen: set[tuple[str | None, int]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def handle(self, record: Record) -> None:
        """The application's own work: fails one record in five."""
        with self.lock:
            self.lateness_ms.append(time.time() * 1000 - record.due_at_ms)
            self.repeated += (record.id, record.attempt) in self.seen
            self.seen.add((record.id, record.attempt))
            self.by_attempt[record.attempt] += 1
            if self.failing.random() < FAILING:
                raise RuntimeError("one in five fails")
            self.handled.add(record.id)

    @property
    def finished(self) -> int:
        return len(self.handled) + self.dead.total()


def count_dead_letters(bootstrap: str, tally: Tally, stopped: threading.Event) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"demo-dead-{time.time_ns()}", "auto.offset.reset": "latest"}
    )
    consumer.subscribe(["orders.dead"])
    while not stopped.is_set():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            headers: dict[str, bytes] = dict(message.headers() or ())  # type: ignore[arg-type]
            tally.dead[headers["dt-reason"].decode()] += 1
    consumer.close()


def view(tally: Tally, records: int, started: float, note: str) -> Table:
    table = Table("handled", "attempts", "late p50", "late p99", "dead letters", "what happened")
    table.title = f"orders → orders.ready, {time.monotonic() - started:.0f} s"
    lateness = sorted(tally.lateness_ms)
    p50, p99 = (statistics.quantiles(lateness, n=100)[i] for i in (49, 98)) if len(lateness) > 1 else (0.0, 0.0)
    table.add_row(
        f"{len(tally.handled)} of {records}",
        "\n".join(f"{n}: {tally.by_attempt[n]}" for n in range(4)),
        f"{p50:.0f} ms",
        f"{p99:.0f} ms",
        "\n".join(f"{n} {reason}" for reason, n in tally.dead.items()) or "0",
        note,
    )
    return table


def console_producer(lines: str) -> None:
    """Kafka's own, in the pod of the evaluation Kafka: no Java is needed here."""
    selector = "--selector=app.kubernetes.io/name=delayed-topics,app.kubernetes.io/component=kafka"
    pod = kubectl("get", "pods", f"--namespace={INSTALLATION}", selector, "-o", "name").strip()
    if not pod:
        raise click.ClickException(f"there is no evaluation Kafka in namespace {INSTALLATION}: run `make cluster`")
    properties = [f"--reader-property={p}" for p in ("parse.headers=true", "parse.key=true", "key.separator=:")]
    java = ("java", "-Xmx128m", "-cp", "/opt/kafka/jars/*", "org.apache.kafka.tools.ConsoleProducer")
    where = ("--bootstrap-server=localhost:9092", "--topic=orders")
    kubectl("exec", "-i", pod, f"--namespace={INSTALLATION}", "--", *java, *where, *properties, text_in=lines)


def produce(bootstrap: str, records: int) -> None:
    """Half of the records by Kafka's own console producer, half by the client; delay levels 1 to 4 in turn."""
    half = records // 2
    console_producer("".join(f"dt-delay-level:{n % 4 + 1}\tkey-{n}:from the console {n}\n" for n in range(half)))
    with DelayedTopic.connect(bootstrap, "orders") as orders:
        for n in range(half, records):
            orders.send(b"from the client %d" % n, key=b"key-%d" % n, delay_level=n % 4 + 1)
        orders.flush()


def kill_a_worker() -> str:
    """SIGKILL, as when a node dies."""
    selector = topic_status()["workers"]["selector"]
    pods = json.loads(
        subprocess.run(
            ["kubectl", "get", "pods", "--all-namespaces", "-l", selector, "-o", "json"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )["items"]
    pod = pods[0]["metadata"]
    subprocess.run(
        ["kubectl", "-n", pod["namespace"], "delete", "pod", pod["name"], "--grace-period=0", "--force"],
        check=True,
        capture_output=True,
    )
    return f"worker {pod['name']} killed"


def watch(tally: Tally, records: int, deadline_seconds: float) -> None:
    """Show the tally until every record is handled or dead; a worker is killed when a third of them are through."""
    started, killed = time.monotonic(), ""
    shown = started
    with Live(view(tally, records, started, ""), console=console, refresh_per_second=4) as live:
        while tally.finished < records:
            if time.monotonic() - started > deadline_seconds:
                raise click.ClickException(
                    f"{records - tally.finished} of {records} records are still under way after {deadline_seconds:.0f} s"
                )
            if not killed and tally.finished > records / 3:
                killed = kill_a_worker()
            live.update(view(tally, records, started, f"{killed}; {last_rebalance()}" if killed else ""))
            if not console.is_terminal and time.monotonic() - shown > 5:
                shown = time.monotonic()
                console.print(f"{tally.finished} of {records} are handled or dead")
            time.sleep(0.5)
        live.update(view(tally, records, started, f"{killed}; {last_rebalance()}"))


def last_rebalance() -> str:
    rebalance = topic_status().get("rebalance", {})
    recent = rebalance.get("recent")
    return f"rebalances: {rebalance['count']}, the last one: {recent[0]['reason']}" if recent else "no rebalance yet"


def in_threads(*work: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=target, daemon=True) for target in work]
    for thread in threads:
        thread.start()
    return threads


def said_what_to_look_at(state: RetryCallState) -> str:
    """The audit had ten times as long as it needs."""
    told = kubectl("describe", "dtaudit", state.args[0])
    raise click.ClickException(f"the audit {state.args[0]} has no verdict after {AUDIT_SECONDS} s:\n{told}")


@retry(
    retry=retry_if_result(lambda verdict: not verdict),
    wait=wait_fixed(1),
    stop=stop_after_delay(AUDIT_SECONDS),
    retry_error_callback=said_what_to_look_at,
)
def verdict_of(audit: str) -> str:
    status = json.loads(kubectl("get", "dtaudit", audit, "-o", "json")).get("status", {})
    return str(status.get("verdict") or "")


@click.command()
@click.option("--records", default=2000, show_default=True, help="How many records to send.")
@click.option("--seed", default=7, show_default=True, help="Which records fail.")
def main(records: int, seed: int) -> None:
    """Show the main job on the cluster of KUBECONFIG."""
    bootstrap = os.environ["KAFKA_BOOTSTRAP"]
    require_route(bootstrap)
    console.print(Rule("A delayed topic, in six lines"))
    console.print(manifest(), markup=False)
    subprocess.run(
        f"kubectl create namespace {NAMESPACE} --dry-run=client -o yaml | kubectl apply -f -",
        shell=True,
        check=True,
        capture_output=True,
    )
    started = time.monotonic()
    console.print("[bold]$ kubectl apply -f examples/orders.yaml[/]")
    kubectl("apply", "-f", "-", text_in=manifest())
    kubectl("wait", "dtopic/orders", "--for=condition=Ready", "--timeout=180s", show=True)
    console.print(f"Ready, with a serving worker, after {time.monotonic() - started:.1f} s\n")

    console.print(Rule(f"{records} records: half from Kafka's own console producer, half from the client"))
    tally, stopped = Tally(random.Random(seed)), threading.Event()
    with DelayedTopic.connect(bootstrap, "orders") as orders:
        consumers = [orders.consumer(group="demo", handler=tally.handle) for _ in range(CONSUMERS)]
        threads = in_threads(
            *(consumer.run for consumer in consumers),
            lambda: count_dead_letters(bootstrap, tally, stopped),
            lambda: produce(bootstrap, records),
        )
        watch(tally, records, deadline_seconds=180)
        for consumer in consumers:
            consumer.stop()
        stopped.set()
        for thread in threads:
            thread.join(timeout=30)
    console.print(f"every record is handled or dead; {tally.repeated} came twice, as a killed worker may cause\n")

    console.print(Rule("The audit: a Spark job accounts for every record"))
    audit = f"orders-{int(time.time())}"
    kubectl(
        "apply",
        "-f",
        "-",
        text_in=(EXAMPLES / "audit.yaml").read_text().replace("name: orders-audit", f"name: {audit}"),
    )
    with console.status("the audit runs"):
        verdict = verdict_of(audit)
    console.print(f"verdict: [bold]{verdict}[/]")

    console.print(Rule("What there is"))
    kubectl("get", "dtopic,dtaudit", "-o", "wide", show=True)
    kubectl("describe", "dtopic", "orders", show=True)
    console.print(Rule("What to try next"))
    console.print(
        f"""eval "$(make -s env)"                                   # kubectl, delayed-topics and Kafka's tools, for this cluster
kubectl -n {NAMESPACE} scale dtopic/orders --replicas=3        # more workers
kubectl -n {NAMESPACE} edit dtopic/orders                      # other delays: no record that waits changes its time
delayed-topics status orders                          # layout and backlog
make down                                             # remove every trace""",
        markup=False,
    )
    if verdict == "Unknown":
        raise click.ClickException("the audit could not see everything: see its message above")


if __name__ == "__main__":
    main()
