"""Passes of one namespace overlap in any order, operators die, and quotas change: there is never more than was granted."""

from delayed_topics_crds import QuotaUsed
from delayed_topics_operator.connection.reconcile.grants import hard
from delayed_topics_operator.values.plan import Plan
from delayed_topics_operator_testing.namespace_simulation import NamespaceSimulation, live_workers, with_quota, workers
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

NAMES = st.sampled_from(["a", "b", "c"])
SPECS = st.tuples(st.integers(1, 4), st.integers(0, 4), st.sampled_from(["Retain", "Delete"]))
"""Partitions of the front topic, workers, and the deletion policy."""


class NeverMoreThanGranted(RuleBasedStateMachine):
    """Passes overlap in any order: each may be anywhere between its plan and its actions. Operators die, and quotas change."""

    def __init__(self) -> None:
        super().__init__()
        self.tenant = NamespaceSimulation(with_quota(delayedTopics=2, partitions=16, workers=5))
        self.plans: dict[str, Plan] = {}
        self.before = QuotaUsed()
        self.hard = hard(self.tenant.connection.grants or (), {})

    @initialize(specs=st.lists(SPECS, min_size=3, max_size=3))
    def begin(self, specs: list[tuple[int, int, str]]) -> None:
        for name, spec in zip("abc", specs, strict=True):
            self.create(name, spec)

    @rule(name=NAMES, spec=SPECS)
    def create(self, name: str, spec: tuple[int, int, str]) -> None:
        if name not in self.tenant.simulations:
            partitions, replicas, policy = spec
            self.tenant.add(name, delaySeconds=[0], partitions=partitions, deletionPolicy=policy, **workers(replicas))

    @rule(
        name=NAMES,
        partitions=st.integers(1, 8),
        replicas=st.integers(0, 8),
        delays=st.sampled_from([[0], [0, 9], [0, 5]]),
    )
    def edit(self, name: str, partitions: int, replicas: int, delays: list[int]) -> None:
        if name in self.tenant.simulations:
            self.tenant.simulations[name].edit(partitions=partitions, delaySeconds=delays, **workers(replicas))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        """Deletes a resource. Kubernetes removes it at once if it has no finalizer."""
        simulation = self.tenant.simulations.get(name)
        if simulation is not None and simulation.raw["metadata"]["finalizers"]:
            simulation.delete()
        elif simulation is not None and name not in self.plans:
            self.tenant.forget(name)

    @rule(names=st.lists(NAMES, min_size=1, max_size=20))
    def go_on(self, names: list[str]) -> None:
        """Lets each of these resources take one step: its pass either makes a plan or executes the plan that it has made."""
        for name in names:
            if name in self.plans:
                self.tenant.do(name, self.plans.pop(name))
            elif name in self.tenant.simulations:
                self.plans[name] = self.tenant.plan(name)
            self.nothing_grows_beyond_the_quota()

    @rule()
    def restart(self) -> None:
        self.plans.clear()
        self.tenant.restart()
        self.tenant.see()

    @rule(topics=st.integers(0, 3), partitions=st.integers(0, 30), replicas=st.integers(0, 8))
    def change_quota(self, topics: int, partitions: int, replicas: int) -> None:
        """What the former quota let through may come after the change, since workers are created some passes after the topics."""
        self.go_on(list(self.plans))
        self.tenant.connection = with_quota(delayedTopics=topics, partitions=partitions, workers=replicas)
        self.before, self.hard = self.tenant.used(), hard(self.tenant.connection.grants or (), {})

    def existing(self) -> QuotaUsed:
        """Returns what exists in Kafka and Kubernetes, as opposed to what the operator counts."""
        return QuotaUsed(
            delayed_topics=len(self.tenant.kafka.registry.claims),
            partitions=sum(topic.partitions for topic in self.tenant.kafka.topics.values()),
            workers=sum(live_workers(simulation) for simulation in self.tenant.simulations.values()),
        )

    @invariant()
    def nothing_grows_beyond_the_quota(self) -> None:
        """Neither what exists nor what the operator counts grows beyond the quota."""
        for seen in (self.existing(), self.tenant.used()):
            for what in ("delayed_topics", "partitions", "workers"):
                now, before, most = getattr(seen, what), getattr(self.before, what), getattr(self.hard, what)
                assert now <= max(most, before), f"{what}: {now}, {most} granted, {before} before"

    @invariant()
    def what_is_there_counts(self) -> None:
        there, used = self.existing(), self.tenant.used()
        assert there.partitions <= used.partitions
        assert there.workers <= used.workers
        assert there.delayed_topics <= used.delayed_topics


NeverMoreThanGranted.TestCase.settings = settings(max_examples=100, stateful_step_count=12, deadline=None)
TestNeverMoreThanGranted = NeverMoreThanGranted.TestCase
