"""Topics that go from their own workers to shared ones, and back: with what the former workers have committed, and without a guess."""

import asyncio
from collections.abc import Sequence
from typing import Any

from delayed_topics_core.handover import NOTHING, Handover, Position
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import Condition
from delayed_topics_core.registry import LayoutRecord, RegistryState, TopicsRecord
from delayed_topics_kafka.model import CommittedOffset, GroupInfo, TopicInfo, TopicPartitionKey
from delayed_topics_operator.eventlog import EventLog
from delayed_topics_operator.gateways.refusals import Refusals
from delayed_topics_operator.observe.kafka import kafka_view
from delayed_topics_operator_testing.shared import SHARED, sharing
from delayed_topics_operator_testing.world import World, member, resource, usable

OWN = "delayedtopics.orders"


def layout(world: World) -> LayoutRecord:
    return world.kafka.registry.layouts["orders"]


def topics(world: World) -> TopicsRecord:
    return world.kafka.registry.topics["orders"]


def with_own_workers() -> World:
    """Which have committed 7 of each partition."""
    world = World(resource())
    world.settle()
    world.workers_come_up()
    world.kafka.members[OWN] = (member(f"{world.name}-0", ("orders", 0), ("orders.delays", 0)),)
    world.kafka.committed[OWN] = dict.fromkeys(world.kafka.committed[OWN], 7)
    world.settle()
    return world


def handed_over() -> World:
    """To the shared workers, which have committed as much."""
    world = with_own_workers()
    world.connection = sharing()
    world.settle()
    world.kafka.members[OWN] = ()
    world.settle()
    world.kafka.committed[SHARED.group] = dict(world.kafka.committed[OWN])
    world.settle()
    return world


def test_the_former_workers_give_the_topics_up_before_others_get_them() -> None:
    world = with_own_workers()
    world.connection = sharing()
    world.settle()
    assert (layout(world).state, layout(world).group) == ("retired", OWN)
    assert f"to those of group {SHARED.group}; {world.name}-0" in world.condition(Condition.READY).message

    world.kafka.rebalancing = {OWN}
    world.settle()
    assert layout(world).state == "retired", "who has what is not told while a group rebalances"
    world.kafka.rebalancing = set()
    world.kafka.members[OWN] = ()
    world.settle()
    assert (layout(world).state, layout(world).group, layout(world).workers) == ("serving", SHARED.group, None)
    assert topics(world).handover == Handover(
        group=SHARED.group, positions={"orders": (Position(7),), "orders.delays": (Position(7),) * 3}
    )
    assert ("StatefulSet", world.name) not in world.children
    assert world.condition(Condition.READY).status == "True"


def test_nothing_is_given_up_before_those_who_come_are_ready() -> None:
    world = with_own_workers()
    world.connection = sharing(said=SHARED.said.__class__(status="False", reason=SHARED.said.reason, message="0 of 2"))
    world.settle()
    assert (layout(world).state, layout(world).group) == ("serving", OWN)

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


def test_a_handover_is_forgotten_when_its_group_has_committed_that_much_everywhere() -> None:
    world = with_own_workers()
    world.connection = sharing()
    world.settle()
    world.kafka.members[OWN] = ()
    # from when it had the topics before
    world.kafka.committed[SHARED.group] = {("orders", 0): 3, **{("orders.delays", p): 9 for p in range(3)}}
    world.settle()
    assert topics(world).handover is not None
    world.kafka.committed[SHARED.group]["orders", 0] = 7
    world.settle()
    assert topics(world).handover is None


def test_what_the_former_group_had_lost_is_no_position_to_begin_at() -> None:
    world = with_own_workers()
    world.connection = sharing()
    world.settle()
    del world.kafka.committed[OWN]["orders.delays", 1]
    world.kafka.members[OWN] = ()
    world.settle()
    given = topics(world).handover
    assert given is not None
    assert (given.of("orders.delays", 1), given.of("orders", 0)) == (NOTHING, Position(7))


def test_a_change_of_mind_gives_the_topics_back_to_those_who_had_them() -> None:
    world = with_own_workers()
    world.connection = sharing()
    world.settle()
    assert layout(world).state == "retired"
    world.connection = usable()
    world.settle()
    assert (layout(world).state, layout(world).group, topics(world).handover) == ("serving", OWN, None)


def test_topics_with_many_partitions_keep_their_workers_and_it_is_said_why() -> None:
    world = World(resource(partitions=300, frontPartitions=4))
    world.settle()
    world.workers_come_up()
    world.connection = sharing()
    world.settle()
    assert (layout(world).state, layout(world).group) == ("serving", OWN)
    assert "at most 200 partitions" in world.condition(Condition.WORKERS_READY).message


def test_what_is_committed_is_asked_when_it_is_known_who_has_given_up() -> None:
    """A worker commits for the last time, and only then gives its partition up."""
    world = with_own_workers()
    world.connection = sharing()
    world.settle()

    class Kafka:
        """Whose last commit comes while it is asked about the group."""

        refusals = Refusals()
        event_log = EventLog()
        last_commit = 3

        async def registry(self) -> RegistryState:
            return world.kafka.registry

        async def topics(self, names: Sequence[str]) -> dict[str, TopicInfo | None]:
            kafka = world.observe().kafka
            assert kafka is not None
            return dict(kafka.topics)

        async def configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
            return {name: {} for name in names}

        async def offsets(self, places: Sequence[TopicPartitionKey], which: str) -> dict[TopicPartitionKey, int]:
            return dict.fromkeys(places, 0)

        async def committed(
            self, group: str, places: Sequence[TopicPartitionKey]
        ) -> dict[TopicPartitionKey, CommittedOffset]:
            return dict.fromkeys(places, CommittedOffset(self.last_commit))

        async def group(self, group: str) -> GroupInfo:
            await asyncio.sleep(0)
            self.last_commit = 8
            return GroupInfo(group=group, state="Empty", protocol="classic", members=())

    link: Any = Kafka()
    view = asyncio.run(kafka_view(link, TopicNames.of("orders"), world.owner))
    assert set(view.committed.values()) == {CommittedOffset(8)}
