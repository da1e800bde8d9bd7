"""The main job once, through all components: a manifest, Kafka's Java producer, retries up to the cap, a killed worker, an audit."""

import time
from pathlib import Path

import pytest
import yaml
from delayed_topics_core import headers as own
from delayed_topics_e2e.checker import Checker
from delayed_topics_e2e.java import console_produce
from delayed_topics_e2e.plain import Record, TopicReader
from delayed_topics_e2e.report import Report
from delayed_topics_e2e.tenant import Declared, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.smoke, pytest.mark.timeout(2400)]  # above the sum of its waits

MANIFEST = Path(__file__).parents[2] / "examples" / "orders.yaml"
RECORDS = 1_000
IN_FLIGHT = 500
FAILING = b"the order that nobody can handle"


def test_the_main_job(tenant: Tenant, report: Report) -> None:
    steps = Steps(report)
    orders = tenant.declare("orders", topic="orders", **yaml.safe_load(MANIFEST.read_text())["spec"])
    in_namespace = ("-f", str(MANIFEST), "-n", tenant.namespace)
    orders.kube.kubectl("apply", *in_namespace)
    orders.wait_ready()
    steps.done("applied to Ready=True with a serving worker")

    with orders.checker() as checker:
        levels = len(orders.spec["delaySeconds"])
        lines = (f"{own.DELAY_LEVEL}:{n % levels + 1}\tcustomer-{n % 97}\torder {n}" for n in range(RECORDS))
        console_produce(orders.kafka.address(), orders.topic, lines)
        account = checker.settled(produced=RECORDS, timeout_seconds=300)
        assert (account.released, account.early, account.lost, account.doubled) == (RECORDS, 0, 0, 0), account
        assert account.clean, account
        steps.done(f"{RECORDS} records of the Java console producer, {account.lateness()}")

        dead = retried_until_dead(orders)
        cap = orders.spec["retryCap"]
        assert (dead.header(own.REASON), dead.header(own.ATTEMPT)) == (b"RetryCapExceeded", b"%d" % (cap + 1))
        produced = RECORDS + 1 + cap + 1
        account = checker.settled(produced=produced)
        assert account.clean, account
        assert (account.released, account.dead) == (produced - 1, 1), account
        steps.done(f"one record retried to the cap of {cap} and dead with its reason")

        produced += IN_FLIGHT
        in_flight = killed_in_mid_flight(orders, checker, levels)
        account = checker.settled(produced=produced, timeout_seconds=600)
        assert (account.lost, account.early, account.changed) == (0, 0, 0), account
        steps.done(f"the worker killed with {in_flight} records waiting: {account.doubled} doubled, 0 lost, 0 early")

    orders.wait_ready()
    audited = orders.audit("smoke")
    assert audited["verdict"] == "Verified", audited
    assert (audited["account"]["lost"], audited["account"]["early"]) == (0, 0), audited
    orders.wait_condition("DeliveryVerified", "True")
    steps.done(f"audit: {audited['message']}")

    ids = orders.kafka.topic_ids(*orders.names.topics)
    orders.kube.kubectl("delete", *in_namespace, "--timeout=120s")
    assert not orders.pods()
    assert any(event["reason"] == "Retained" for event in orders.events()), orders.events()
    assert orders.kafka.topic_ids(*orders.names.topics) == ids, "the default of deletionPolicy is not Retain"
    steps.done("deleted: no worker is left, the topics are the same")


class Steps:
    """Reports how long each step took. Times are only reported, not asserted."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._began = time.monotonic()

    def done(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        self._report.add("smoke", f"{seconds:5.1f} s: {text}", seconds=seconds)
        self._began = time.monotonic()


def retried_until_dead(orders: Declared) -> Record:
    """Plays a consumer that always fails: sends each copy back to the front topic, with the attempt raised by one. Returns the dead
    letter."""
    orders.kafka.produce(orders.topic, [(b"k", FAILING, ())])
    ready = TopicReader(orders.kafka.config, orders.names.ready)

    def turn() -> list[Record]:
        for record in ready.read_new():
            if record.value == FAILING:
                attempt = int(record.header(own.ATTEMPT) or 0)
                others = [header for header in record.headers if header[0] != own.ATTEMPT]
                orders.kafka.copy(record, to=orders.topic, headers=[*others, (own.ATTEMPT, b"%d" % (attempt + 1))])
        return [letter for letter in orders.kafka.read(orders.names.dead_letter) if letter.value == FAILING]

    try:
        what = "the record that always fails is a dead letter"
        (dead,) = until(turn, what=what, timeout_seconds=240)
    finally:
        ready.close()
    return dead


def killed_in_mid_flight(orders: Declared, checker: Checker, level: int) -> int:
    """Kills the worker while records wait. Returns the number of waiting records."""
    (pod,) = orders.pods()
    headers = ((own.DELAY_LEVEL, b"%d" % level),)
    orders.kafka.produce(orders.topic, [(b"k%d" % (n % 97), b"in flight %d" % n, headers) for n in range(IN_FLIGHT)])
    waiting = checker.account().lost
    orders.kill(pod)
    assert waiting > 0, "no record was waiting when the worker was killed"
    return waiting
