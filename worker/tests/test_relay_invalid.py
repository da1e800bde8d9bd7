"""A record that Kafka refuses by itself becomes a dead letter, and its neighbours come out."""

import pytest
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_worker_testing.harness import WorkerHarness

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_a_record_without_a_key_does_not_hold_up_a_compacted_topic(harness: WorkerHarness, guarantee: str) -> None:
    orders = harness.declare((0, 1), front_partitions=1)
    states = f"{orders.names.front}.states"
    config = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}
    harness.create([NewTopicSpec(name=states, partitions=1, replication_factor=1, config=config)])
    orders.change(ready_topics=(AllowedTopic(states, 0),))
    for n in range(40):
        level = ("dt-delay-level", b"%d" % (n % 2 + 1))
        key = None if n in (13, 20) else b"%d" % n
        orders.produce(b"%d" % n, key=key, headers=[("dt-target", states.encode()), level], partition=0)
    orders.produce(b"own", partition=0)
    orders.flush()
    worker = harness.start(orders, guarantee=guarantee)  # only now, so that they come in one batch

    assert {int(r.value or b"") for r in harness.read(states, 38)} == set(range(40)) - {13, 20}
    assert [r.value for r in orders.ready(1)] == [b"own"]
    dead = orders.dead(2)
    assert {r.value for r in dead} == {b"13", b"20"}
    assert {r.header("dt-reason") for r in dead} == {b"InvalidRecord"}
    assert {r.header("dt-target") for r in dead} == {states.encode()}
    assert all(b"invalid record" in (r.header("dt-error") or b"") for r in dead)
    wait_until(lambda: not worker.alarm_reasons(), what="no alarm", evidence=worker.evidence)
