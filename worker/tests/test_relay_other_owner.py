"""Topics that another Kubernetes cluster has taken over: its workers serve them, and those of the former cluster leave the group."""

from typing import Any

import pytest
from delayed_topics_core.registry import Owner
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import Launch

pytestmark = pytest.mark.broker


def of_owner(owner: Owner) -> Launch:
    return Launch(environment={"DELAYED_TOPIC_OWNER": str(owner)})


def produce(orders: DeclaredTopic, count: int) -> None:
    for n in range(count):
        orders.produce(b"%d" % n, partition=n % 2)
    orders.flush()


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_workers_of_a_former_owner_leave_and_those_of_the_new_one_go_on_under_the_same_name(
    harness: WorkerHarness, protocol: Any
) -> None:
    orders = harness.declare((0,))
    before, after = orders.record.owner, Owner("another-cluster", *orders.record.owner[1:])
    former = harness.start(orders, protocol=protocol, launch=of_owner(before))
    produce(orders, 10)
    assert len(orders.ready(10)) == 10
    orders.change(owner=after)
    wait_until(lambda: former.get("/readyz")[0] != 200, what="the former worker has left")
    produce(orders, 10)
    heir = harness.start(orders, protocol=protocol, launch=of_owner(after))
    assert len(orders.ready(20)) == 20
    assert former.running
    assert heir.running

    former.kill()  # and start it again, as a StatefulSet would
    again = harness.start(orders, protocol=protocol, launch=of_owner(before), ready=False)
    wait_until(lambda: again.get("/livez")[0] == 200, what="the former worker runs")
    produce(orders, 10)
    wait_until(
        lambda: sum(at.offset for (topic, _), at in orders.committed().items() if topic == orders.names.front) == 30,
        what="every record is committed",
    )
    assert len(orders.ready(30)) == 30
    assert heir.running
    assert again.get("/readyz")[0] != 200

    orders.change(owner=before)
    again.ready()
    produce(orders, 10)
    assert len(orders.ready(40)) == 40
