"""The order of writes: the controller writes a decision before it acts on it, and reports Ready only when all actions are done."""

import asyncio
import copy
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pytest
from delayed_topics_core.registry import RegistryRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_crds import DelayedTopic
from delayed_topics_kafka.errors import KafkaRefused, SettingsRefused
from delayed_topics_operator.connection.controller import Connections
from delayed_topics_operator.connection.usage import Usage
from delayed_topics_operator.delayed_topic import controller as delayed_topic
from delayed_topics_operator.delayed_topic.controller import SOON_SECONDS, UNDONE_SECONDS, DelayedTopics
from delayed_topics_operator.delayed_topic.reconcile.load import Interval, Load
from delayed_topics_operator.delayed_topic.reconcile.observation import Observation, Wanted
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import AlterSettings, ApplyChild
from delayed_topics_operator_testing.context import context
from delayed_topics_operator_testing.simulation import OPERATOR_NAMESPACE, Simulation

ORDERS = Key("DelayedTopic", "shop", "orders")
BEHIND = Load(
    intervals=2
    * (
        Interval(
            seconds=4,
            due_per_second=25_000,
            released_per_second=10_000,
            due_lag=100_000,
            behind=True,
            workers=1,
            shared=True,
        ),
    )
)
"""The load of one worker that cannot catch up."""


class Surroundings:
    """Answers the controller's calls to Kubernetes and Kafka from a simulation.

    `written` has the objects and statuses in the order of the writes. `after_apply` is called after each write of an object.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.written: list[Manifest] = []
        self.after_apply: Callable[[], None] = lambda: None
        self._versions = itertools.count(1)

    async def apply(self, body: Manifest, *, subresource: str = "", **_: Any) -> Manifest:
        if subresource == "status":
            live = self.simulation.raw
            live["status"] = body["status"]
        else:
            self.simulation.execute(ApplyChild(manifest=body, change="changed"))
            live = self.simulation.children[body["kind"], body["metadata"]["name"]]
            self.after_apply()
        live["metadata"]["resourceVersion"] = str(next(self._versions))
        self.written.append(copy.deepcopy(live))
        return copy.deepcopy(live)

    async def create(self, body: Manifest) -> Manifest:
        """Accepts Events."""
        return body

    async def registry(self) -> RegistryState:
        return self.simulation.kafka.registry

    async def write(self, records: Iterable[RegistryRecord]) -> None:
        for record in records:
            self.simulation.kafka.write(record.key, encode(record))

    async def alter_config(self, topic: str, settings: Mapping[str, str]) -> None:
        self.simulation.execute(AlterSettings(topic=topic, settings=dict(settings), present={}))
        if refused := settings.keys() & self.simulation.kafka.refuses:
            words = dict.fromkeys(refused, "not allowed")
            raise SettingsRefused(f"Kafka refuses {refused}", code="POLICY_VIOLATION", words_of=words)

    def conditions(self) -> dict[str, Manifest]:
        """Returns the conditions by type, as they were written last."""
        return {condition["type"]: condition for condition in self.statuses()[-1]["conditions"]}

    def statuses(self) -> list[Manifest]:
        return [written["status"] for written in self.written if written["kind"] == "DelayedTopic"]


class Connected:
    """Connections with one connection, which answers."""

    def doubt(self, *_: object) -> None: ...

    def look(self, _: Key) -> tuple[None, None]:
        return None, None


class Simulated(DelayedTopics):
    """A controller that observes a simulation."""

    def __init__(self, around: Surroundings, *, rolling_at_once: int = 5) -> None:
        given = context(around, namespace=OPERATOR_NAMESPACE, rolling_at_once=rolling_at_once)
        given.store.put(copy.deepcopy(around.simulation.raw))
        connections = cast(Connections, Connected())
        super().__init__(given, connections=connections, usage=Usage(given, changed=lambda _: None))
        self._around = around

    async def _observe(self, key: Key, resource: DelayedTopic, asked: Wanted) -> tuple[Observation, KafkaLink | None]:
        return self._around.simulation.observe(), cast(KafkaLink, self._around)

    def go_on(self) -> None:
        """Makes passes until there is nothing more to be done."""
        passes = 0
        while asyncio.run(self.reconcile(ORDERS)) == SOON_SECONDS:
            passes += 1
            assert passes < 30, "the passes come to no end"


def numbers(around: Surroundings) -> list[tuple[str, int]]:
    """Returns the numbers of workers that were written: in the status, the wanted number; in the StatefulSet, its replicas."""
    return [
        (written["kind"], written["status"]["workers"]["wantedReplicas"])
        if written["kind"] == "DelayedTopic"
        else (written["kind"], written["spec"]["replicas"])
        for written in around.written
        if written["kind"] in ("DelayedTopic", "StatefulSet")
    ]


def test_how_many_workers_there_are_to_be_is_written_before_there_are_and_stays_however_long_that_takes() -> None:
    simulation = Simulation.serving(partitions=6, workers={"autoscale": {"max": 8}})
    around = Surroundings(simulation)
    simulation.load = BEHIND

    def look_again() -> None:
        """While the pods start, it is not known what they can do."""
        simulation.load = Load()

    around.after_apply = look_again
    Simulated(around).go_on()
    assert numbers(around) == [("DelayedTopic", 3), ("StatefulSet", 3), ("DelayedTopic", 3)]


def test_a_status_with_a_decision_says_nothing_else_of_a_generation_that_is_not_carried_out() -> None:
    simulation = Simulation.serving(partitions=6, workers={"autoscale": {"max": 8}})
    simulation.edit(outageBudgetSeconds=864_000)
    simulation.load = BEHIND
    around = Surroundings(simulation)
    Simulated(around).go_on()
    first, last = around.statuses()[0], around.statuses()[-1]
    assert (first["workers"]["wantedReplicas"], first["observedGeneration"], last["observedGeneration"]) == (3, 1, 2)


def test_a_resource_whose_setting_kafka_refuses_is_not_called_ready_first() -> None:
    simulation = Simulation.serving()
    simulation.kafka.refuses = frozenset({"retention.ms"})
    simulation.edit(outageBudgetSeconds=864_000)
    around = Surroundings(simulation)
    Simulated(around).go_on()
    conditions = [
        (condition["status"], condition["reason"])
        for status in around.statuses()
        for condition in status["conditions"]
        if condition["type"] == "Ready" and status["observedGeneration"] == 2
    ]
    assert conditions == [("False", "SettingRefused")]


def test_a_resource_that_was_too_late_for_a_slot_of_the_rollout_writes_no_status() -> None:
    simulation = Simulation.serving()
    simulation.edit(workers={"template": {"labels": {"team": "orders"}}})
    around = Surroundings(simulation)
    assert asyncio.run(Simulated(around, rolling_at_once=0).reconcile(ORDERS)) == SOON_SECONDS
    assert around.statuses() == []


@pytest.mark.parametrize("edit", [{"retryCap": 9}, {"paused": True}])
def test_what_can_be_done_is_done_and_said(edit: Manifest) -> None:
    simulation = Simulation.serving()
    simulation.edit(**edit)
    around = Surroundings(simulation)
    Simulated(around).go_on()
    (status,) = around.statuses()
    (ready,) = (c for c in status["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["observedGeneration"]) == ("True", 2)


class NotAuthorized(Surroundings):
    """Kafka lets the operator change no settings of topics."""

    async def alter_config(self, topic: str, settings: Mapping[str, str]) -> None:
        raise KafkaRefused(f"changing {topic} failed", code="TOPIC_AUTHORIZATION_FAILED")


def test_what_is_refused_again_and_again_is_said_once_and_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation.serving()
    monkeypatch.setattr(delayed_topic, "_now", lambda: simulation.now)
    simulation.kafka.topics["orders.delays"].config["retention.ms"] = "1000"
    around = NotAuthorized(simulation)
    simulated = Simulated(around)
    for _ in range(3):
        simulation.later(30)
        with pytest.raises(KafkaRefused):
            asyncio.run(simulated.reconcile(ORDERS))
    (status,) = around.statuses()
    assert {c["type"] for c in status["conditions"] if c["reason"] == "KafkaRefused"} == {"TopicsReady", "Ready"}


class SomebodyElse(Surroundings):
    """Somebody else undoes at once what the operator changes in a topic's settings."""

    async def alter_config(self, topic: str, settings: Mapping[str, str]) -> None:
        pass


def undone(simulation: Simulation) -> tuple[SomebodyElse, Simulated]:
    """Returns the state after a pass in which somebody else has lowered the retention of the delays topic again."""
    simulation.kafka.topics["orders.delays"].config["retention.ms"] = "1000"
    around = SomebodyElse(simulation)
    simulated = Simulated(around)
    assert asyncio.run(simulated.reconcile(ORDERS)) == UNDONE_SECONDS
    return around, simulated


def test_while_somebody_undoes_it_a_resource_is_not_ready_and_says_what_is_undone() -> None:
    around, _ = undone(Simulation.serving())
    conditions = around.conditions()
    assert [
        (conditions[kind]["status"], conditions[kind]["reason"]) for kind in ("TopicsReady", "Ready", "WorkersReady")
    ] == [
        ("False", "InProgress"),
        ("False", "InProgress"),
        ("True", "AsDeclared"),
    ]
    assert conditions["Ready"]["message"] == conditions["TopicsReady"]["message"]
    for words in ("change settings of topic orders.delays (retention.ms from 1000 to ", "Somebody else undoes", "stop"):
        assert words in conditions["Ready"]["message"]


def test_the_status_of_a_resource_that_somebody_undoes_is_written_once_and_not_with_every_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation.serving()
    monkeypatch.setattr(delayed_topic, "_now", lambda: simulation.now)
    around, simulated = undone(simulation)
    simulation.later(UNDONE_SECONDS)
    assert asyncio.run(simulated.reconcile(ORDERS)) == UNDONE_SECONDS
    assert len(around.statuses()) == 1


def test_a_resource_is_ready_when_no_one_undoes_it_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    around, simulated = undone(Simulation.serving())
    monkeypatch.setattr(SomebodyElse, "alter_config", Surroundings.alter_config)
    simulated.go_on()
    conditions = around.conditions()
    assert (conditions["TopicsReady"]["status"], conditions["Ready"]["status"]) == ("True", "True")
    assert "undoes" not in str(conditions)


def test_what_keeps_a_resource_from_being_ready_anyway_is_said_with_what_is_undone() -> None:
    simulation = Simulation.serving()
    simulation.kafka.delete("orders.ready")
    simulation.kafka.create("orders.ready", 20)
    around, _ = undone(simulation)
    conditions = around.conditions()
    for kind in ("TopicsReady", "Ready"):
        assert conditions[kind]["reason"] == "TopicForeign"
        assert "somebody else has created orders.ready" in conditions[kind]["message"]
        assert "change settings of topic orders.delays" in conditions[kind]["message"]
