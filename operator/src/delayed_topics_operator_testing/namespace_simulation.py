"""A simulation of the DelayedTopics of one namespace: passes that overlap, and one operator that adds up what they use."""

from typing import Any

from delayed_topics_core.reasons import Condition
from delayed_topics_crds import Grant, QuotaUsed
from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.connection.usage import Usage, Use
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.engine.installation import connection_of, front_topic
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.plan import Plan

from delayed_topics_operator_testing.context import context
from delayed_topics_operator_testing.simulation import OPERATOR_NAMESPACE, Kafka, Simulation, resource, usable

DEFAULT = Key("ClusterKafkaConnection", "", "default")


def grant(**fields: object) -> Grant:
    """Returns a grant of every topic to every namespace."""
    return Grant.model_validate({"namespaceSelector": {}, "topicPrefixes": [""], **fields})


def with_quota(**quota: int) -> Usable:
    """Returns a connection with this quota in total."""
    return usable(grant(quota=quota))


def workers(replicas: int) -> dict[str, Any]:
    """Returns the part of a spec that requests this many workers."""
    return {"workers": {"replicas": replicas}}


def live_workers(simulation: Simulation) -> int:
    """Returns how many workers the StatefulSet has."""
    live = simulation.children.get(("StatefulSet", simulation.name))
    return int(live["spec"]["replicas"]) if live is not None else 0


def partitions(kafka: Kafka, topic: str = "orders") -> int:
    """Returns the number of partitions of all its topics."""
    return sum(
        found.partitions for name, found in kafka.topics.items() if name == topic or name.startswith(f"{topic}.")
    )


class NamespaceSimulation:
    """The DelayedTopics of one namespace, with one operator. Other passes can run between the plan of a pass and its actions."""

    def __init__(self, connection: Usable) -> None:
        self.connection = connection
        self.kafka = Kafka()
        self.context = context(namespace=OPERATOR_NAMESPACE)
        self.simulations: dict[str, Simulation] = {}
        self.asked: dict[str, int] = {}
        self.restart()

    def restart(self) -> None:
        self.usage = Usage(self.context, changed=lambda _: None)

    def add(self, name: str, **spec: Any) -> Simulation:
        simulation = self.simulations[name] = Simulation(
            resource(name, **spec), kafka=self.kafka, connection=self.connection
        )
        self.see()
        return simulation

    def see(self) -> None:
        """Updates the store, as the watches would."""
        self.context = self.usage._context = context(namespace=OPERATOR_NAMESPACE)
        for simulation in self.simulations.values():
            self.context.store.put(simulation.raw)
            if ("StatefulSet", simulation.name) in simulation.children:
                self.context.store.put(simulation.children["StatefulSet", simulation.name])

    def plan(self, name: str) -> Plan:
        simulation, key = self.simulations[name], Key("DelayedTopic", "shop", name)
        use = Use(key, front_topic(simulation.raw))
        simulation.connection = self.connection
        simulation.others = self.usage.others(use, connection_of(simulation.raw), self.kafka.registry)
        simulation.own = self.usage.recorded(key)
        plan = reconcile(simulation.observe())
        self.asked[name] = simulation.observe().wanted.replicas
        if plan.takes is not None:
            self.usage.record(use, connection_of(simulation.raw), plan.takes)
        return plan

    def do(self, name: str, plan: Plan) -> None:
        simulation = self.simulations[name]
        before = live_workers(simulation)
        simulation.say(plan.decided if plan.actions else plan.status)
        for action in plan.actions:
            simulation.execute(action)
        if plan.takes is not None:
            assert live_workers(simulation) >= min(before, self.asked[name]), "nobody loses a worker that is asked for"
        if simulation.gone:
            self.forget(name)
        self.see()

    def forget(self, name: str) -> None:
        del self.simulations[name]
        self.usage.forget(Key("DelayedTopic", "shop", name))
        self.see()

    def settle(self, *names: str) -> None:
        for name in names or list(self.simulations):
            for _ in range(30):
                plan = self.plan(name)
                self.do(name, plan)
                if not plan.actions or name not in self.simulations:
                    break

    def used(self) -> QuotaUsed:
        return self.usage.by_namespace(DEFAULT, self.kafka.registry).get("shop", QuotaUsed())

    def reason(self, name: str, condition: Condition) -> tuple[str, str]:
        found = self.simulations[name].condition(condition)
        return found.status, found.reason
