"""Brokers that refuse settings of topics, as managed services do: each is left out, or a condition says which promise needs it."""

from collections.abc import Callable, Iterator

import pytest
from delayed_topics_core.names import CLOCK_TOPIC, TopicNames
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.settings import DURABLE, MARK_SETTING, NEEDED
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator.gateways.refusals import AGAIN_SECONDS, Refusals
from delayed_topics_operator.plan import AlterSettings
from delayed_topics_operator.reconcile import reconcile
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_process import OperatorProcess
from delayed_topics_operator_testing.scene import Scene
from delayed_topics_operator_testing.world import Kafka, World, resource

Opened = Callable[..., Scene]


def settled(*refused: str) -> World:
    world = World(resource(), kafka=Kafka(refuses=frozenset(refused)))
    world.settle()
    return world


@pytest.mark.parametrize("setting", ["message.timestamp.type", "retention.ms"])
def test_a_setting_that_a_promise_needs_is_named_and_nothing_is_served_without_it(setting: str) -> None:
    world = World(resource(delaySeconds=[0, 864_000]), kafka=Kafka(refuses=frozenset({setting})))
    world.settle()
    for kind in (Condition.TOPICS_READY, Condition.READY):
        said = world.condition(kind)
        assert (said.status, said.reason) == ("False", Reason.SETTING_REFUSED)
        assert setting in said.message
        assert NEEDED[setting] in said.message
    assert world.kafka.registry.layouts["orders"].state == "planned"
    assert not [kind for kind, _ in world.children if kind == "StatefulSet"]


def test_once_it_is_allowed_everything_is_served() -> None:
    world = settled("message.timestamp.type")
    world.kafka.refuses, world.kafka.refused = frozenset(), {}
    world.settle()
    assert world.condition(Condition.TOPICS_READY).status == "True"
    assert world.kafka.registry.layouts["orders"].state == "serving"


@pytest.mark.parametrize("setting", ["cleanup.policy", "unclean.leader.election.enable"])
def test_a_refused_setting_that_kafka_has_anyway_is_left_out_without_a_word(setting: str) -> None:
    world = settled(setting)
    assert world.condition(Condition.TOPICS_READY).status == "True"
    assert world.condition(Condition.DURABILITY_REDUCED).status == "False"
    assert setting not in world.condition(Condition.TOPICS_READY).message


def test_a_refused_number_of_replicas_in_sync_reduces_durability_and_says_why() -> None:
    world = settled("min.insync.replicas")
    assert world.condition(Condition.TOPICS_READY).status == "True"
    said = world.condition(Condition.DURABILITY_REDUCED)
    assert (said.status, said.reason) == ("True", Reason.SETTING_REFUSED)
    assert "refuses min.insync.replicas=2 of orders (not allowed), and it is 1" in said.message


def test_a_refused_size_is_said_and_everything_is_served() -> None:
    said = settled("max.message.bytes").condition(Condition.TOPICS_READY)
    assert said.status == "True"
    assert "max.message.bytes=8388608 of orders.ready (not allowed), and it is 1048588" in said.message


def test_topics_that_can_not_be_marked_are_known_as_ours_all_the_same() -> None:
    world = settled(MARK_SETTING)
    assert world.condition(Condition.TOPICS_READY).status == "True"
    assert set(world.kafka.registry.topics["orders"].ids) == set(world.kafka.topics)


def test_what_was_refused_is_not_asked_for_with_every_look_but_another_value_is() -> None:
    world = settled("retention.ms")
    assert reconcile(world.observe()).actions == ()
    world.edit(delaySeconds=[0, 864_000])
    assert [type(action) for action in reconcile(world.observe()).actions if isinstance(action, AlterSettings)]


def test_a_refusal_is_forgotten_after_a_while() -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    refusals.note("orders", {"a": "1", "b": "2"}, {"a": "no"})
    assert set(refusals.of("orders")) == {"a"}
    now = AGAIN_SECONDS
    assert refusals.of("orders") == {}


@pytest.fixture
def opened(api: KubeApi) -> Iterator[Opened]:
    """`opened(settings…)`: a scene on a broker that refuses them."""
    made: list[tuple[Scene, Broker]] = []

    def open_one(*refusing: str) -> Scene:
        broker = Broker(refusing=refusing)
        broker.start()
        scene = Scene(api, broker, OperatorProcess(api, "--resync-seconds=3"))
        made.append((scene, broker))
        scene.open()
        return scene

    yield open_one
    for scene, broker in made:
        scene.close()
        broker.close()


@pytest.mark.slow
@pytest.mark.api
def test_a_service_that_takes_no_settings_of_durability_is_served_as_it_is(opened: Opened) -> None:
    scene = opened(*DURABLE, MARK_SETTING)
    scene.apply()
    scene.wait_until_served()
    for topic in TopicNames.of(scene.topic).topics:
        assert scene.settings(topic)["message.timestamp.type"] == "LogAppendTime"
        assert scene.settings(topic)[MARK_SETTING] == "86400000"
    scene.wait_for("DurabilityReduced", "True", "OneReplica")


@pytest.mark.slow
@pytest.mark.api
def test_a_service_that_keeps_producers_times_is_told_what_it_must_allow(opened: Opened) -> None:
    scene = opened("message.timestamp.type")
    scene.apply()
    scene.wait(
        lambda: "message.timestamp.type" in str(scene.connection_status()),
        "the connection says what is refused",
        seen=scene.connection_status,
    )
    assert CLOCK_TOPIC in str(scene.connection_status())


@pytest.mark.slow
@pytest.mark.api
def test_a_service_that_bounds_retention_is_told_which_promise_needs_more(opened: Opened) -> None:
    scene = opened("retention.ms")
    scene.apply(delaySeconds=[0, 864_000])
    scene.wait_for("TopicsReady", "False", "SettingRefused")
    assert "Altering topic config property 'retention.ms' is disallowed" in scene.condition("Ready")["message"]
    assert scene.stateful_set() is None
