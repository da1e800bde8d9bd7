"""A team edits its manifest while records wait: no record is lost or early, and each keeps its due time."""

import time
from collections.abc import Iterator

import pytest
from delayed_topics_core import headers as own
from delayed_topics_e2e.checker import delay_by_list
from delayed_topics_e2e.plain import Record
from delayed_topics_e2e.tenant import Declared, Install, Tenant, cluster_connection, unique
from delayed_topics_e2e.waiting import until

pytestmark = pytest.mark.cluster

PORTION = 300


def test_delays_partitions_lanes_and_cap_change_with_records_pending(tenant: Tenant) -> None:
    lists: list[list[int]] = [[0, 2, 4], [0, 3, 1], [1, 4, 2, 6]]
    orders = tenant.declare("orders", delaySeconds=lists[0], partitions=4, retryCap=2).apply().wait_ready()
    produce(orders, epoch=0)
    orders.apply(delaySeconds=lists[1], partitions=8, lanesPerDelay=2)
    wait_served(orders, generation=2)
    produce(orders, epoch=1)
    orders.apply(delaySeconds=lists[2], retryCap=9)
    wait_served(orders, generation=3)
    produce(orders, epoch=2)

    def delay_of(record: Record) -> int:
        """The delay by the list that was served when the record was produced. The value of the record names this epoch."""
        epoch = int((record.value or b"0").split()[0])
        return delay_by_list(lists[epoch])(record)

    with orders.checker(delay_of) as checker:
        account = checker.settled(produced=3 * PORTION)
        assert (account.lost, account.early, account.doubled, account.changed) == (0, 0, 0, 0), account
        assert account.released == 3 * PORTION
    ranges = {(r["delaySeconds"], r["role"]) for r in orders.status["layout"]["ranges"]}
    assert ranges == {(0, "retired"), (3, "retired"), (1, "main"), (4, "delay"), (2, "delay"), (6, "delay")}
    assert orders.status["delays"] == "1s,4s,2s,6s"
    orders.wait_ready()


def test_paused_releases_nothing_and_unpaused_everything(tenant: Tenant) -> None:
    orders = tenant.declare("orders", delaySeconds=[0, 1]).apply().wait_ready()
    orders.apply(paused=True)
    orders.wait_condition("Ready", "True", reason="Paused")
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, [(b"k", b"%d" % i, ()) for i in range(PORTION)])
        time.sleep(3)  # longer than the delays, to show that no record comes out
        assert checker.account().released == 0
        orders.apply(paused=False)
        account = checker.settled(produced=PORTION)
        assert account.clean, account


@pytest.fixture
def labelling(install: Install) -> Iterator[str]:
    """A cluster connection to the same Kafka that allows this story to label its workers."""
    name = unique("labelling")
    grant = {"namespaceSelector": {}, "topicPrefixes": ["e2e-"], "template": {"labels": ["cost-center"]}}
    with cluster_connection(install, name, **grant):
        yield name


def test_protocol_and_worker_template_roll_the_workers_without_loss_or_doubles(labelling: str, tenant: Tenant) -> None:
    connection = {"kind": "ClusterKafkaConnection", "name": labelling}
    declared = tenant.declare(
        "orders", delaySeconds=[0, 1, 2], partitions=4, workers={"replicas": 2}, connectionRef=connection
    )
    orders = declared.apply().wait_ready()
    before = {p["metadata"]["uid"] for p in orders.pods()}
    produce(orders, epoch=0)
    resources = {"requests": {"cpu": "10m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}}
    template = {"labels": {"cost-center": "shop"}, "resources": resources}
    orders.apply(rebalance={"protocol": "Consumer"}, workers={"replicas": 2, "template": template})
    until(
        lambda: {p["metadata"]["uid"] for p in orders.pods() if "deletionTimestamp" not in p["metadata"]} & before,
        what="all workers are new",
        enough=lambda old: not old,
    )
    orders.wait_ready()
    assert {p["metadata"]["labels"].get("cost-center") for p in orders.pods()} == {"shop"}
    until(
        lambda: orders.status["rebalance"].get("protocol"),
        what="the group uses the new protocol",
        enough=lambda protocol: protocol == "Consumer",
    )
    until(
        lambda: [record["reason"] for record in orders.status["rebalance"]["recent"]],
        what="a rebalance of replaced workers has the reason SpecChanged",
        enough=lambda reasons: "SpecChanged" in reasons,
    )
    moved = [record["movedPartitions"] for record in orders.status["rebalance"]["recent"]]
    assert all(count <= len(orders.kafka.committed(orders.names.group)) for count in moved), moved
    produce(orders, epoch=0)
    with orders.checker() as checker:
        account = checker.settled(produced=2 * PORTION)
        assert account.clean, account


def test_protocol_and_assignor_are_changed_with_records_pending_and_nothing_is_lost_or_doubled(tenant: Tenant) -> None:
    """For a change from or to Sticky, all workers stop first: in a rolling update, a replaced worker would never become ready."""
    declared = tenant.declare("orders", delaySeconds=[0, 1, 2], partitions=4, workers={"replicas": 2})
    orders = declared.apply().wait_ready()
    changes = (
        ({"protocol": "Classic", "assignor": "Sticky"}, "cooperative-sticky"),
        ({"protocol": "Consumer"}, "uniform"),
        ({"protocol": "Classic", "assignor": "RoundRobin"}, "roundrobin"),
        ({"protocol": "Classic"}, "range"),
    )
    for rebalance, assignor in changes:
        produce(orders, epoch=0)
        orders.apply(rebalance=rebalance, workers={"replicas": 2})
        until(
            lambda: (orders.status["rebalance"].get("assignor"), orders.status["rebalance"]["memberCount"]),
            what=f"both workers are in the group with {assignor}",
            enough=(assignor, 2).__eq__,
        )
        orders.wait_ready()
    with orders.checker() as checker:
        account = checker.settled(produced=len(changes) * PORTION)
        assert account.clean, account


def produce(orders: Declared, *, epoch: int) -> None:
    """Produces a portion of records over all levels. Returns when the workers have decided about all of them, by the present list."""
    orders.kafka.produce(
        orders.topic,
        ((b"k%d" % (i % 17), b"%d %d" % (epoch, i), ((own.DELAY_LEVEL, b"%d" % (i % 4 + 1)),)) for i in range(PORTION)),
    )
    produced = len(orders.kafka.read(orders.topic))
    until(
        lambda: sum(
            p.offset for (topic, _), p in orders.kafka.committed(orders.names.group).items() if topic == orders.topic
        ),
        what="the workers have committed the whole front topic",
        enough=lambda committed: committed >= produced,
    )


def wait_served(orders: Declared, *, generation: int) -> None:
    """Waits until the workers serve this generation of the layout, which they read from the registry."""
    until(
        lambda: orders.status["layout"],
        what=f"layout generation {generation} is served",
        enough=lambda layout: (layout["generation"], layout["state"]) == (generation, "serving"),
    )
    orders.wait_ready()
