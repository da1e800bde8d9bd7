"""Brokers that refuse topic settings, as managed services do: a setting is left out, or a condition says which promise needs it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest
from delayed_topics_core.names import CLOCK_TOPIC, TopicNames
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import RegistryRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core.settings import DURABLE, MARK_SETTING, NEEDED
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.errors import (
    KafkaCallError,
    KafkaRefused,
    KafkaUnreachable,
    LeadersMissing,
    TopicExists,
)
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.engine.execute import Executor
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.recorder import Recorder
from delayed_topics_operator.gateways.refusals import AGAIN_SECONDS, Refusals
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.plan import AlterSettings, CreateTopics
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import OperatorProcess
from delayed_topics_operator_testing.simulation import Kafka, Simulation, Stopped, resource

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
        condition = simulation.condition(kind)
        assert (condition.status, condition.reason) == ("False", Reason.SETTING_REFUSED)
        assert setting in condition.message
        assert NEEDED[setting] in condition.message
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
    condition = simulation.condition(Condition.DURABILITY_REDUCED)
    assert (condition.status, condition.reason) == ("True", Reason.SETTING_REFUSED)
    assert "refuses min.insync.replicas=2 for topic orders (not allowed). The present value is 1" in condition.message


def test_a_refused_size_is_said_and_everything_is_served() -> None:
    condition = settled("max.message.bytes").condition(Condition.TOPICS_READY)
    assert condition.status == "True"
    assert (
        "max.message.bytes=8388608 for topic orders.ready (not allowed). The present value is 1048588"
        in condition.message
    )


def test_topics_that_can_not_be_marked_are_known_as_ours_all_the_same() -> None:
    simulation = settled(MARK_SETTING)
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    assert set(simulation.kafka.registry.topics["orders"].ids) == set(simulation.kafka.topics)


class UnmarkedLink:
    """Creates topics without their mark. For `orders.delays`, it returns `outcome`. `deaf`: writes to the registry fail."""

    def __init__(self, simulation: Simulation, outcome: KafkaCallError, *, deaf: bool = False) -> None:
        self._simulation = simulation
        self._outcome = outcome
        self._deaf = deaf

    async def registry(self) -> RegistryState:
        return self._simulation.kafka.registry.copy()

    async def create_topics(self, specs: Sequence[NewTopicSpec]) -> dict[str, TopicInfo | KafkaCallError]:
        outcomes: dict[str, TopicInfo | KafkaCallError] = {}
        for spec in specs:
            if spec.name == "orders.delays" and not isinstance(self._outcome, LeadersMissing):
                outcomes[spec.name] = self._outcome
                continue
            config = {name: value for name, value in spec.config.items() if name != MARK_SETTING}
            self._simulation.kafka.create(spec.name, spec.partitions, spec.replication_factor, config)
            made = info(spec.name, self._simulation.kafka.topics[spec.name].id)
            late = spec.name == "orders.delays"
            outcomes[spec.name] = LeadersMissing(str(self._outcome), made=made) if late else made
        return outcomes

    async def write(self, records: Sequence[RegistryRecord]) -> None:
        if self._deaf:
            raise KafkaUnreachable("no answer")
        for record in records:
            self._simulation.kafka.write(record.key, encode(record))


def info(name: str, topic_id: str) -> TopicInfo:
    return TopicInfo(
        name=name, id=topic_id, partitions=1, replication_factor=1, leaders_known=True, left_out=(MARK_SETTING,)
    )


OUTCOMES = (
    KafkaRefused("too many", code="POLICY_VIOLATION"),
    TopicExists("there is one", code="TOPIC_ALREADY_EXISTS"),
    LeadersMissing("no leader yet", made=info("orders.delays", "")),
    KafkaUnreachable("no answer"),
)


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_topics_that_can_not_be_marked_are_ours_whatever_becomes_of_one_of_them(
    outcome: KafkaCallError, deaf: bool
) -> None:
    simulation = Simulation(resource())
    with pytest.raises(Stopped):
        simulation.settle(actions=3)
    executor = Executor(cast(Kube, None), Store(), cast(Recorder, None), rolling_at_once=1)
    link = cast(KafkaLink, UnmarkedLink(simulation, outcome, deaf=deaf))
    (creating,) = (a for a in reconcile(simulation.observe()).actions if isinstance(a, CreateTopics))
    key = Key("DelayedTopic", "shop", "orders")
    assert asyncio.run(executor.execute(key, (creating,), link)).failures
    made = {name: topic.id for name, topic in simulation.kafka.topics.items()}
    assert len(made) == 3 + isinstance(outcome, LeadersMissing)
    recorded = simulation.kafka.registry.topics.get("orders")
    assert recorded is None if deaf else recorded is not None and recorded.ids == made

    simulation.kafka.unmarked = dict(executor.unmarked(key))
    simulation.kafka.refuses = frozenset({MARK_SETTING})
    simulation.settle()
    assert simulation.condition(Condition.TOPICS_READY).status == "True"
    assert made.items() <= simulation.kafka.registry.topics["orders"].ids.items()


def test_what_was_refused_is_not_asked_for_with_every_look_but_another_value_is() -> None:
    simulation = settled("retention.ms")
    assert reconcile(simulation.observe()).actions == ()
    simulation.edit(delaySeconds=[0, 864_000])
    assert [type(action) for action in reconcile(simulation.observe()).actions if isinstance(action, AlterSettings)]


def test_a_refusal_is_forgotten_after_a_while() -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    refusals.record("orders", {"a": "1", "b": "2"}, {"a": "no"})
    assert set(refusals.of("orders")) == {"a"}
    now = AGAIN_SECONDS
    assert refusals.of("orders") == {}


class Counted(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_the_refusals_of_a_topic_are_found_without_a_look_at_those_of_all_others() -> None:
    refusals = Refusals()
    for number in range(500):
        refusals.record(Counted(f"orders-{number}"), {"a": "1"}, {"a": "no"})
    Counted.compared = 0
    assert set(refusals.of(Counted("orders-7"))) == {"a"}
    assert Counted.compared < 10


def test_refusals_of_topics_that_are_gone_are_not_kept_for_ever() -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    refusals.record("gone", {"a": "1"}, {"a": "no"})
    now = AGAIN_SECONDS
    refusals.record("orders", {"a": "1"}, {"a": "no"})
    now = 0.0
    assert (set(refusals.of("gone")), set(refusals.of("orders"))) == (set(), {"a"})


@pytest.fixture
def opened(api: KubeApi) -> Iterator[Opened]:
    """Yields a function that opens a harness on a broker that refuses the given settings, and topics of more than `most_partitions`."""
    made: list[tuple[OperatorHarness, Broker]] = []

    def open_one(*refusing: str, most_partitions: int | None = None) -> OperatorHarness:
        limits = {} if most_partitions is None else {"most.partitions": f"{most_partitions}"}
        broker = Broker(refusing=refusing, settings=limits)
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


@pytest.mark.slow
@pytest.mark.api
def test_topics_that_can_not_be_marked_stay_ours_though_one_of_them_is_refused_at_first(opened: Opened) -> None:
    harness = opened(MARK_SETTING, most_partitions=12)
    harness.apply(partitions=40, frontPartitions=3)
    harness.wait_for("TopicsReady", "False", "SpecInvalid")
    assert "A topic must not have more than 12 partitions" in harness.condition("Ready")["message"]
    made = harness.topic_ids()
    assert len(made) == 3
    harness.wait(lambda: harness.registry().topics[harness.topic].ids == made, "the registry records the new topics")
    harness.apply(partitions=12, frontPartitions=3)
    harness.wait_until_served()
    assert made.items() <= harness.topic_ids().items()
