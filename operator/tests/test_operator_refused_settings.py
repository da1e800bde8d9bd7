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
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import OperatorProcess
from delayed_topics_operator_testing.simulation import Kafka, Simulation, resource

Opened = Callable[..., OperatorHarness]


def settled(*refused: str) -> Simulation:
    simulation = Simulation(resource(), kafka=Kafka(refuses=frozenset(refused)))
    simulation.settle()
    return simulation


@pytest.mark.parametrize("setting", ["message.timestamp.type", "retention.ms"])
def test_a_setting_that_a_promise_needs_is_named_and_nothing_is_served_without_it(setting: str) -> None:
    simulation = Simulation(resource(delaySeconds=[0, 864_000]), kafka=Kafka(refuses=frozenset({setting})))
    simulation.settle()
    for kind in (Condition.TOPICS_READY, Condition.READY):
        said = simulation.condition(kind)
        assert (said.status, said.reason) == ("False", Reason.SETTING_REFUSED)
        assert setting in said.message
        assert NEEDED[setting] in said.message
    assert simulation.kafka.registry.layouts["orders"].state == "planned"
    assert not [kind for kind, _ in simulation.children if kind == "StatefulSet"]


def test_once_it_is_allowed_everything_is_served() -> None:
    simulation = settled("message.timestamp.type")
    simulation.kafka.refuses, simulation.kafka.refused = frozenset(), {}
    simulation.settle()
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    assert simulation.kafka.registry.layouts["orders"].state == "serving"


@pytest.mark.parametrize("setting", ["cleanup.policy", "unclean.leader.election.enable"])
def test_a_refused_setting_that_kafka_has_anyway_is_left_out_without_a_word(setting: str) -> None:
    simulation = settled(setting)
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    assert simulation.condition(Condition.DURABILITY_REDUCED).status == "False"
    assert setting not in simulation.condition(Condition.TOPICS_READY).message


def test_a_refused_number_of_replicas_in_sync_reduces_durability_and_says_why() -> None:
    simulation = settled("min.insync.replicas")
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    said = simulation.condition(Condition.DURABILITY_REDUCED)
    assert (said.status, said.reason) == ("True", Reason.SETTING_REFUSED)
    assert "refuses min.insync.replicas=2 for topic orders (not allowed). The present value is 1" in said.message


def test_a_refused_size_is_said_and_everything_is_served() -> None:
    said = settled("max.message.bytes").condition(Condition.TOPICS_READY)
    assert said.status == "True"
    assert (
        "max.message.bytes=8388608 for topic orders.ready (not allowed). The present value is 1048588" in said.message
    )


def test_topics_that_can_not_be_marked_are_known_as_ours_all_the_same() -> None:
    simulation = settled(MARK_SETTING)
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    assert set(simulation.kafka.registry.topics["orders"].ids) == set(simulation.kafka.topics)


def test_what_was_refused_is_not_asked_for_with_every_look_but_another_value_is() -> None:
    simulation = settled("retention.ms")
    assert reconcile(simulation.observe()).actions == ()
    simulation.edit(delaySeconds=[0, 864_000])
    assert [type(action) for action in reconcile(simulation.observe()).actions if isinstance(action, AlterSettings)]


def test_a_refusal_is_forgotten_after_a_while() -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    refusals.note("orders", {"a": "1", "b": "2"}, {"a": "no"})
    assert set(refusals.of("orders")) == {"a"}
    now = AGAIN_SECONDS
    assert refusals.of("orders") == {}


@pytest.fixture
def opened(api: KubeApi) -> Iterator[Opened]:
    """`opened(settings…)`: a harness on a broker that refuses them."""
    made: list[tuple[OperatorHarness, Broker]] = []

    def open_one(*refusing: str) -> OperatorHarness:
        broker = Broker(refusing=refusing)
        broker.start()
        harness = OperatorHarness(api, broker, OperatorProcess(api, "--resync-seconds=3"))
        made.append((harness, broker))
        harness.open()
        return harness

    yield open_one
    for harness, broker in made:
        harness.close()
        broker.close()


@pytest.mark.slow
@pytest.mark.api
def test_a_service_that_takes_no_settings_of_durability_is_served_as_it_is(opened: Opened) -> None:
    harness = opened(*DURABLE, MARK_SETTING)
    harness.apply()
    harness.wait_until_served()
    for topic in TopicNames.of(harness.topic).topics:
        assert harness.settings(topic)["message.timestamp.type"] == "LogAppendTime"
        assert harness.settings(topic)[MARK_SETTING] == "86400000"
    harness.wait_for("DurabilityReduced", "True", "OneReplica")


@pytest.mark.slow
@pytest.mark.api
def test_a_service_that_keeps_producers_times_is_told_what_it_must_allow(opened: Opened) -> None:
    harness = opened("message.timestamp.type")
    harness.apply()
    harness.wait(
        lambda: "message.timestamp.type" in str(harness.connection_status()),
        "the connection says what is refused",
        seen=harness.connection_status,
    )
    assert CLOCK_TOPIC in str(harness.connection_status())


@pytest.mark.slow
@pytest.mark.api
def test_a_service_that_bounds_retention_is_told_which_promise_needs_more(opened: Opened) -> None:
    harness = opened("retention.ms")
    harness.apply(delaySeconds=[0, 864_000])
    harness.wait_for("TopicsReady", "False", "SettingRefused")
    assert "Altering topic config property 'retention.ms' is disallowed" in harness.condition("Ready")["message"]
    assert harness.stateful_set() is None
