"""Topics go from their own workers to shared workers and back. The new workers begin where the former ones committed, and never guess."""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.handover import Handover
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import LayoutRecord, TopicsRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_kafka.model import GroupInfo, TopicInfo
from delayed_topics_operator.delayed_topic.observe.kafka import kafka_view
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.gateways.refusals import Refusals
from delayed_topics_operator.values.eventlog import EventLog
from delayed_topics_operator.values.plan import ApplyChild, ConditionState
from delayed_topics_operator_testing.namespace_simulation import grant
from delayed_topics_operator_testing.shared import SHARED, sharing
from delayed_topics_operator_testing.simulation import Simulation, member, resource, usable

OWN = "delayedtopics.orders"


NOT_READY = replace(SHARED.said, status="False", message="1 of 2 shared workers are ready")
WORKERS = {
    "replicas": 5,
    "template": {
        "labels": {"team": "a"},
        "annotations": {"note": "x"},
        "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "2Gi"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
        "priorityClassName": "high",
    },
}


def layout(simulation: Simulation) -> LayoutRecord:
    return simulation.kafka.registry.layouts["orders"]


def topics(simulation: Simulation) -> TopicsRecord:
    return simulation.kafka.registry.topics["orders"]


def with_own_workers() -> Simulation:
    """Returns topics whose own workers have committed offset 7 of each partition."""
    simulation = Simulation(resource())
    simulation.settle()
    simulation.workers_come_up()
    simulation.kafka.members[OWN] = (member(f"{simulation.name}-0", ("orders", 0), ("orders.delays", 0)),)
    simulation.kafka.committed[OWN] = dict.fromkeys(simulation.kafka.committed[OWN], 7)
    simulation.settle()
    return simulation


def handed_over() -> Simulation:
    """Returns topics that were handed over to shared workers, which have committed the same offsets."""
    simulation = with_own_workers()
    simulation.connection = sharing()
    simulation.settle()
    simulation.kafka.members[OWN] = ()
    simulation.settle()
    simulation.kafka.committed[SHARED.group] = dict(simulation.kafka.committed[OWN])
    simulation.settle()
    return simulation


def test_the_former_workers_give_the_topics_up_before_others_get_them() -> None:
    simulation = with_own_workers()
    simulation.connection = sharing()
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("retired", OWN)
    assert (
        f"to those of group {SHARED.group}. These workers have not given them up yet: {simulation.name}-0"
        in simulation.condition(Condition.READY).message
    )

    simulation.kafka.rebalancing = {OWN}
    simulation.settle()
    assert layout(simulation).state == "retired", "assignments are unknown while a group rebalances"
    simulation.kafka.rebalancing = set()
    simulation.kafka.members[OWN] = ()
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group, layout(simulation).workers) == (
        "serving",
        SHARED.group,
        None,
    )
    assert topics(simulation).handover == Handover(
        group=SHARED.group, positions={"orders": (OffsetAndMetadata(7),), "orders.delays": (OffsetAndMetadata(7),) * 3}
    )
    assert ("StatefulSet", simulation.name) not in simulation.children
    assert simulation.condition(Condition.READY).status == "True"


def test_nothing_is_given_up_before_those_who_come_are_ready() -> None:
    simulation = with_own_workers()
    simulation.connection = sharing(
        said=SHARED.said.__class__(status="False", reason=SHARED.said.reason, message="0 of 2")
    )
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", OWN)

    shared = handed_over()
    shared.edit(workers={"replicas": 2})
    shared.settle()
    assert (layout(shared).state, layout(shared).group) == ("serving", SHARED.group)
    shared.workers_come_up()
    shared.kafka.members[SHARED.group] = (member(f"{SHARED.name}-0", ("orders", 0), ("payments", 0)),)
    shared.settle()
    assert (layout(shared).state, layout(shared).group) == ("retired", SHARED.group)
    shared.kafka.members[SHARED.group] = (member(f"{SHARED.name}-0", ("payments", 0)),)
    shared.settle()
    assert (layout(shared).state, layout(shared).group, layout(shared).workers) == ("serving", OWN, 2)


def test_nothing_is_given_up_for_workers_that_are_not_granted() -> None:
    shared = handed_over()
    shared.connection = replace(sharing(), grants=(grant(quota={"workers": 0}),))
    shared.edit(workers={"replicas": 2})
    shared.settle()
    assert (layout(shared).state, layout(shared).group) == ("serving", SHARED.group)
    shared.connection = replace(sharing(), grants=(grant(),))
    shared.edit(workers={"replicas": 0})
    shared.settle()
    assert layout(shared).group == OWN, "the spec asks for no workers"


def test_a_handover_is_forgotten_when_its_group_has_committed_that_much_everywhere() -> None:
    simulation = with_own_workers()
    simulation.connection = sharing()
    simulation.settle()
    simulation.kafka.members[OWN] = ()
    # these offsets are from when the shared workers had the topics before
    simulation.kafka.committed[SHARED.group] = {("orders", 0): 3, **{("orders.delays", p): 9 for p in range(3)}}
    simulation.settle()
    assert topics(simulation).handover is not None
    simulation.kafka.committed[SHARED.group]["orders", 0] = 7
    simulation.settle()
    assert topics(simulation).handover is None


def test_what_the_former_group_had_lost_is_no_position_to_begin_at() -> None:
    simulation = with_own_workers()
    simulation.connection = sharing()
    simulation.settle()
    del simulation.kafka.committed[OWN]["orders.delays", 1]
    simulation.kafka.members[OWN] = ()
    simulation.settle()
    given = topics(simulation).handover
    assert given is not None
    assert (given.of("orders.delays", 1), given.of("orders", 0)) == (None, OffsetAndMetadata(7))


def test_a_change_of_mind_gives_the_topics_back_to_those_who_had_them() -> None:
    simulation = with_own_workers()
    simulation.connection = sharing()
    simulation.settle()
    assert layout(simulation).state == "retired"
    simulation.connection = usable()
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group, topics(simulation).handover) == ("serving", OWN, None)


def test_topics_with_many_partitions_keep_their_workers_and_it_is_said_why() -> None:
    simulation = Simulation(resource(partitions=300, frontPartitions=4))
    simulation.settle()
    simulation.workers_come_up()
    simulation.connection = sharing()
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", OWN)
    assert "at most 200 partitions" in simulation.condition(Condition.WORKERS_READY).message


@pytest.mark.parametrize("shared", [SHARED.said, NOT_READY], ids=["ready", "not-ready"])
@pytest.mark.parametrize("replicas", [0, 2])
def test_topics_that_stay_with_shared_workers_are_as_ready_as_these_are(replicas: int, shared: ConditionState) -> None:
    """In the past, `Ready` said `ScaledToZero`, "nothing is released", about topics that shared workers went on to serve."""
    simulation = Simulation(resource(partitions=300, frontPartitions=4))
    simulation.connection = sharing(said=shared)
    simulation.settle()
    simulation.edit(workers={"replicas": replicas})
    simulation.settle()
    simulation.workers_come_up()
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", SHARED.group)
    ready = simulation.condition(Condition.READY)
    assert (ready.status, ready.reason) == (shared.status, shared.reason)
    assert "The topics stay with the shared workers" in simulation.condition(Condition.WORKERS_READY).message


def test_topics_that_stay_with_shared_workers_are_not_ready_for_exactly_once() -> None:
    """In the past, `Ready` was True, and an audit took each repeated record for a broken promise."""
    simulation = Simulation(resource(partitions=300, frontPartitions=4), connection=sharing())
    simulation.settle()
    simulation.edit(guarantee="ExactlyOnce")
    simulation.serve()
    assert (layout(simulation).group, layout(simulation).exactly_once_from_ms) == (SHARED.group, None)
    condition = simulation.condition(Condition.WORKERS_READY)
    assert (condition.status, condition.reason) == ("False", Reason.SPEC_INVALID)
    assert "at most 200 partitions" in condition.message
    assert "Either set it to AtLeastOnce" in condition.message
    simulation.edit(guarantee="AtLeastOnce")
    simulation.settle()
    assert simulation.condition(Condition.READY).status == "True"

    simulation.edit(guarantee="ExactlyOnce")
    simulation.connection = sharing(leaving=True)
    simulation.serve()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", OWN)
    assert layout(simulation).exactly_once_from_ms is not None
    assert simulation.condition(Condition.READY).status == "True"


@pytest.mark.parametrize(("partitions", "shared"), [(3, NOT_READY), (300, SHARED.said)])
def test_workers_that_others_can_not_replace_yet_stay_as_many_and_as_they_are(
    partitions: int, shared: ConditionState
) -> None:
    simulation = Simulation.serving(partitions=partitions, workers=WORKERS)
    before = copy.deepcopy(simulation.children)
    simulation.connection = sharing(said=shared)
    del simulation.raw["spec"]["workers"]
    simulation.edit()
    plan = simulation.settle()
    assert (simulation.children, simulation.done) == (before, [])
    assert (layout(simulation).group, layout(simulation).workers) == (OWN, 5)
    assert plan.takes is not None
    assert plan.takes.workers == 5
    assert simulation.condition(Condition.READY).status == "True"

    o = simulation.observe()
    (rolled,) = reconcile(replace(o, pods=replace(o.pods, image="worker:2"))).actions
    assert isinstance(rolled, ApplyChild)
    pod, former = (m["spec"]["template"] for m in (rolled.manifest, before["StatefulSet", simulation.name]))
    former["spec"]["containers"][0]["image"] = "worker:2"
    assert (pod, rolled.manifest["spec"]["replicas"]) == (former, 5)


def test_workers_that_somebody_deletes_before_others_have_their_topics_are_as_many_again() -> None:
    simulation = Simulation.serving(partitions=300, workers=WORKERS)
    simulation.connection = sharing()
    del simulation.raw["spec"]["workers"]
    simulation.edit()
    simulation.settle()
    del simulation.children["StatefulSet", simulation.name]
    simulation.settle()
    assert simulation.children["StatefulSet", simulation.name]["spec"]["replicas"] == 5


def test_topics_of_workers_that_nobody_here_looks_after_go_over_however_many_partitions_they_have() -> None:
    """This is the case after a takeover from another cluster or installation, or when a connection no longer has shared workers."""
    simulation = Simulation(resource(partitions=300), connection=sharing())
    simulation.settle()
    former = "delayedtopics.shared/0000-other/system/ClusterKafkaConnection//default"
    former_layout = replace(layout(simulation), group=former)
    simulation.kafka.write(former_layout.key, encode(former_layout))
    committed = simulation.kafka.committed.pop(SHARED.group)
    simulation.kafka.committed[former] = dict.fromkeys(committed, 7)
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", SHARED.group)
    handover = topics(simulation).handover
    assert handover is not None
    assert handover.of("orders.delays", 299) == OffsetAndMetadata(7)
    simulation.kafka.committed[SHARED.group] = dict.fromkeys(committed, 8)
    simulation.connection = usable()
    simulation.settle()
    simulation.workers_come_up()
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", OWN)


def test_a_growth_waits_until_a_handover_is_over() -> None:
    """Kafka may refuse the growth, and then no worker would serve the topics."""
    simulation = with_own_workers()
    simulation.connection = sharing()
    simulation.settle()
    assert layout(simulation).state == "retired"
    simulation.edit(partitions=50, retryCap=2)
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).layout.partition_count) == ("retired", 3)
    simulation.kafka.members[OWN] = ()
    simulation.settle()
    now = layout(simulation)
    assert (now.state, now.group, now.layout.partition_count) == ("serving", SHARED.group, 50)
    assert now.retry_cap == 2


def test_what_is_committed_is_asked_when_it_is_known_who_has_given_up() -> None:
    """A worker gives its partition up only after its last commit, so offsets are read after the group."""
    simulation = with_own_workers()
    simulation.connection = sharing()
    simulation.settle()

    class Kafka:
        """A KafkaLink on which the last commit comes while the group is looked up."""

        refusals = Refusals()
        event_log = EventLog()
        registry_fullness = 0.0
        last_commit = 3

        async def registry(self) -> RegistryState:
            return simulation.kafka.registry

        async def topics(self, names: Sequence[str]) -> dict[str, TopicInfo | None]:
            kafka = simulation.observe().kafka
            assert kafka is not None
            return dict(kafka.topics)

        async def configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
            return {name: {} for name in names}

        async def offsets(self, places: Sequence[TopicPartitionKey], which: str) -> dict[TopicPartitionKey, int]:
            return dict.fromkeys(places, 0)

        async def committed(
            self, group: str, places: Sequence[TopicPartitionKey]
        ) -> dict[TopicPartitionKey, OffsetAndMetadata]:
            return dict.fromkeys(places, OffsetAndMetadata(self.last_commit))

        async def group(self, group: str) -> GroupInfo:
            await asyncio.sleep(0)
            self.last_commit = 8
            return GroupInfo(group=group, state="Empty", protocol="classic", members=())

    link: Any = Kafka()
    view = asyncio.run(kafka_view(link, TopicNames.of("orders"), simulation.owner, unmarked={}, deleting=False))
    assert set(view.committed.values()) == {OffsetAndMetadata(8)}
