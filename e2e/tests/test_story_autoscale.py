"""The load is stepped up to more than a worker can handle, and down again: workers come and go, and no record is lost."""

import random
import time
from collections.abc import Mapping

import pytest
from delayed_topics_devcluster.paths import cache_dir
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.step import Load, Releases, draw, load, read_releases, watched
from delayed_topics_e2e.tenant import Declared, Tenant
from delayed_topics_e2e.waiting import until
from prometheus_client.parser import text_string_to_metric_families

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.usefixtures("own_cluster"), pytest.mark.timeout(3600)]

DELAY_SECONDS = 5
PARTITIONS = 8
SMALL = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "200m", "memory": "512Mi"}}
"""Workers so small that four do four times as much as one, on a machine of two cores that also runs a broker and a cluster."""
CALIBRATION = 20_000
"""The number of records that measure the capacity of one worker."""
STEP = 2.5
"""The high load, as a multiple of the capacity of one worker: low enough that four workers can catch up."""
BUSY_SECONDS = 60
"""How long the load stays high after the workers have caught up."""


def test_workers_follow_a_load_that_is_stepped_up_and_down(tenant: Tenant, report: Report) -> None:
    orders = tenant.declare(
        "orders",
        delaySeconds=[DELAY_SECONDS],
        partitions=PARTITIONS,
        compression="gzip",
        workers={"template": {"resources": SMALL}},
    )
    orders.apply().wait_ready()
    config = orders.kafka.config
    with (
        load(config, orders.topic, values()) as given,
        read_releases(config, orders.names.ready, PARTITIONS) as releases,
        watched(lambda: look(orders), interval_seconds=3) as watch,
    ):
        capacity = measured_capacity(given, releases)
        orders.apply(workers={"autoscale": {"min": 1, "max": 4}, "template": {"resources": SMALL}})
        until(lambda: orders.status["workers"].get("wantedReplicas"), what="autoscaling is on")
        given.per_second = 0.2 * capacity
        until(lambda: due_lag(orders), what="the worker has caught up", enough=lambda n: n == 0, poll_seconds=2)
        assert wanted(orders) == 1

        began = time.time()
        given.per_second = STEP * capacity
        until(
            lambda: wanted(orders),
            what="four workers are wanted",
            enough=lambda n: n == 4,
            timeout_seconds=120,
            poll_seconds=1,
        )
        grown_seconds = time.time() - began
        until(lambda: due_lag(orders), what="the workers have caught up", enough=lambda n: n == 0, timeout_seconds=600)
        caught_up_seconds = time.time() - began
        time.sleep(BUSY_SECONDS)
        assert wanted(orders) == 4

        given.per_second = 0.2 * capacity
        until(
            lambda: wanted(orders),
            what="one worker is wanted",
            enough=lambda n: n == 1,
            timeout_seconds=1200,
            poll_seconds=2,
        )
        given.per_second = 0
        until(
            lambda: releases.released,
            what="all records have come out",
            enough=lambda n: n >= given.produced,
            timeout_seconds=120,
        )
    assert (given.failed, releases.early) == (0, 0)
    status = orders.audit("after")
    assert status["verdict"] == "Verified", status

    numbers = [count for count, _ in changes(watch.series("wanted"))]
    assert numbers == sorted(numbers[: numbers.index(4) + 1]) + sorted(numbers[numbers.index(4) + 1 :], reverse=True)
    file = cache_dir("reports") / "autoscale.svg"
    late = [(float(second), late_ms / 1000) for second, late_ms in sorted(releases.latest_ms.items())]
    panels = {
        "due lag, records": watch.series("due_lag"),
        "workers ready": watch.series("ready"),
        "latest record, s late": late,
    }
    draw(file, panels, title=f"{given.produced:,} records; one worker releases {capacity:,.0f} a second")
    report.add(
        "autoscale",
        f"a worker does {capacity:,.0f} records/s; at {STEP} times that four are wanted after {grown_seconds:.0f} s and have caught up "
        f"after {caught_up_seconds:.0f} s; {given.produced:,} records, picture: {file}",
        capacity=capacity,
        grown_seconds=grown_seconds,
        caught_up_seconds=caught_up_seconds,
        workers=numbers,
    )


def values() -> tuple[bytes, ...]:
    """Texts of 2 KB, which can be compressed by half, as JSON can."""
    words = [f"{random.Random(n).getrandbits(40):x}" for n in range(500)]
    rng = random.Random(7)
    return tuple(" ".join(rng.choices(words, k=190)).encode() for _ in range(64))


def measured_capacity(load: Load, releases: Releases) -> float:
    """Measures how many records a second one worker under full load moves to the delays topic and on to the ready topic."""
    load.per_second = CALIBRATION
    began = time.monotonic()
    until(
        lambda: load.produced,
        what=f"{CALIBRATION} records are produced",
        enough=lambda n: n >= CALIBRATION,
        poll_seconds=0.1,
    )
    load.per_second = 0
    until(
        lambda: releases.released,
        what="one worker has moved all records",
        enough=lambda n: n >= load.produced,
        timeout_seconds=300,
        poll_seconds=0.1,
    )
    return load.produced / (time.monotonic() - began)


def look(orders: Declared) -> Mapping[str, float]:
    workers = orders.status["workers"]
    return {
        "due_lag": due_lag(orders) if "wantedReplicas" in workers else 0,
        "wanted": workers.get("wantedReplicas", 0),
        "ready": workers.get("readyReplicas", 0),
    }


def wanted(orders: Declared) -> int:
    return int(orders.status["workers"]["wantedReplicas"])


def due_lag(orders: Declared) -> float:
    """The due lag, from the operator's metrics."""
    install = orders.install
    (pod,) = install.operator_pods()
    text = install.kube.pod_get(pod["metadata"]["name"], "metrics", namespace=install.namespace)
    found = (
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "delayedtopics_operator_due_lag_records"
        and (sample.labels["resource_namespace"], sample.labels["resource_name"]) == (orders.namespace, orders.name)
    )
    return next(found, 0.0)


def changes(series: list[tuple[float, float]]) -> list[tuple[int, float]]:
    """Returns the first entry, and each entry whose number differs from that before it, as (number, time)."""
    found: list[tuple[int, float]] = []
    for at, number in series:
        if not found or found[-1][0] != number:
            found.append((int(number), at))
    return found
