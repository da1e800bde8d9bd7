"""A simulation of Kafka and Kubernetes: executes the actions of plans on values, and observes these values.

It is a third interpreter of plans, next to `execute` and `explain`. A test can stop the operator after each action, and compare the
outcomes.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import Condition
from delayed_topics_core.registry import Owner, TopicsRecord, claim_key, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core.settings import MARK_SETTING
from delayed_topics_crds import Condition as StatusCondition
from delayed_topics_crds import DelayedTopicStatus, Grant, QuotaUsed, parse, to_dict
from delayed_topics_kafka.model import GroupInfo, GroupMember, TopicInfo
from delayed_topics_operator.connection.reconcile.usable import Unusable, Usable
from delayed_topics_operator.delayed_topic.reconcile import handover, reconcile
from delayed_topics_operator.delayed_topic.reconcile.load import Load
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation, Registered
from delayed_topics_operator.delayed_topic.reconcile.target import led, unbegun, unnoted
from delayed_topics_operator.delayed_topic.reconcile.translate import subject, wanted
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.eventlog import WorkerNews
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import (
    Action,
    AddFinalizer,
    AlterSettings,
    ApplyChild,
    CommitOffsets,
    CreateTopics,
    DeleteChild,
    DeleteGroup,
    DeleteTopics,
    FenceWorkers,
    GrowTopic,
    Plan,
    RemoveFinalizer,
    RemoveFromRegistry,
    ScaleWorkers,
    WriteRegistry,
)
from delayed_topics_operator.values.refusal import Refusal
from delayed_topics_operator.values.rollout import Rollout
from delayed_topics_operator.workers.reconcile import worker_sets
from delayed_topics_operator.workers.reconcile.worker_sets import PodSettings

OPERATOR_NAMESPACE = "delayed-topics-system"
CLUSTER = "0000-cluster"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
OF_AUDITS = ("lastAudit", "lastViolation")  # what the controller of audits writes into the status

KAFKAS_OWN = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "604800000",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "max.message.bytes": "1048588",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "max.compaction.lag.ms": "9223372036854775807",
    "segment.bytes": "1073741824",
}
"""Kafka's defaults."""


class Stopped(Exception):
    """The operator was killed."""


@dataclass
class Topic:
    id: str
    partitions: int
    replication_factor: int
    config: dict[str, str]
    ends: dict[int, int] = field(default_factory=dict)


@dataclass
class Kafka:
    """One Kafka cluster with its registry. `rebalancing`: groups for which Kafka reports no assignments now. `leaderless`: topics with a
    partition that has no leader. `unled`: partitions that have no leader."""

    topics: dict[str, Topic] = field(default_factory=dict)
    committed: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    members: dict[str, tuple[GroupMember, ...]] = field(default_factory=dict)
    assignors: dict[str, str] = field(default_factory=dict)
    rebalancing: set[str] = field(default_factory=set)
    leaderless: set[str] = field(default_factory=set)
    unled: set[tuple[str, int]] = field(default_factory=set)
    registry: RegistryState = field(default_factory=RegistryState)
    brokers: int = 3
    made: int = 0
    refuses: frozenset[str] = frozenset()
    """Settings of topics that a policy always refuses."""
    refused: dict[str, dict[str, Refusal]] = field(default_factory=dict)
    unmarked: dict[str, str] = field(default_factory=dict)

    def create(
        self, name: str, partitions: int, replication_factor: int = 3, config: Mapping[str, str] | None = None
    ) -> None:
        self.made += 1
        self.topics[name] = Topic(f"id-{self.made}", partitions, replication_factor, dict(config or {}))

    def delete(self, name: str) -> None:
        """Deletes a topic, and as Kafka does, the offsets that groups have committed for it."""
        del self.topics[name]
        for offsets in self.committed.values():
            for key in [key for key in offsets if key[0] == name]:
                del offsets[key]

    def write(self, key: str, value: bytes | None) -> None:
        self.registry.apply(self.registry.next_offset, key, value)


def resource(
    name: str = "orders", namespace: str = "shop", *, uid: str = "", generation: int = 1, **spec: Any
) -> Manifest:
    """Returns a DelayedTopic in the form in which the API server returns it."""
    return {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopic",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{namespace}-{name}",
            "generation": generation,
            "finalizers": [],
            "annotations": {},
        },
        "spec": {"delaySeconds": [0, 10, 60], **spec},
        "status": {},
    }


def usable(*grants: Grant, brokers: int = 3, registry_replicas: int = 3) -> Usable:
    """Returns a connection. Without grants it is a KafkaConnection, which allows its namespace everything."""
    return Usable(
        brokers=brokers,
        registry_replicas=registry_replicas,
        broker_skew_ms=5,
        files={"bootstrap-servers": "k:9092"},
        grants=grants or None,
    )


@dataclass
class Simulation:
    """One DelayedTopic in its surroundings. `kafka` may be shared by several. `cluster`: the id of the Kubernetes cluster."""

    raw: Manifest
    kafka: Kafka = field(default_factory=Kafka)
    children: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    connection: Usable | Unusable = field(default_factory=usable)
    now: datetime = BEGIN
    labels: dict[str, str] = field(default_factory=dict)
    terminating: bool = False
    may_roll: bool = True
    stuck: int = 0
    news: WorkerNews = field(default_factory=WorkerNews)
    load: Load | None = None
    vanished: tuple[str, ...] = ()
    taken: frozenset[str] = frozenset()
    others: QuotaUsed = field(default_factory=QuotaUsed)
    own: QuotaUsed = field(default_factory=QuotaUsed)
    worker_pods: tuple[Manifest, ...] = ()
    gone: bool = False
    cluster: str = CLUSTER
    done: list[Action] = field(default_factory=list)

    @property
    def owner(self) -> Owner:
        return Owner(self.cluster, self.raw["metadata"]["namespace"], self.raw["metadata"]["name"])

    @property
    def name(self) -> str:
        """The name of the StatefulSet."""
        return worker_sets.object_name(namespace=self.owner.namespace, name=self.owner.name, home=OPERATOR_NAMESPACE)

    def edit(self, **spec: Any) -> None:
        self.raw["spec"].update(spec)
        self.raw["metadata"]["generation"] += 1

    def annotate(self, **annotations: str) -> None:
        """Sets annotations of our own domain, named by their last part with underscores."""
        ours = {f"delayedtopics.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
        self.raw["metadata"]["annotations"].update(ours)

    def delete(self) -> None:
        self.raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    def condition(self, kind: Condition) -> StatusCondition:
        found = parse("DelayedTopic", self.raw).status.conditions
        return next(c for c in found if c.type == kind)

    def observe(self) -> Observation:
        model = parse("DelayedTopic", self.raw)
        return Observation(
            now=self.now,
            gone_after_seconds=300,
            subject=subject(
                model, cluster=self.cluster, namespace_labels=self.labels, namespace_terminating=self.terminating
            ),
            wanted=wanted(model),
            connection=self.connection,
            kafka=self._kafka_view() if isinstance(self.connection, Usable) else None,
            pods=PodSettings(image="worker:1", image_pull_policy="IfNotPresent", home=OPERATOR_NAMESPACE, allowed=True),
            children=copy.deepcopy(self.children),
            rollout=Rollout(may_begin=self.may_roll, stuck=self.stuck),
            vanished=self.vanished,
            taken=self.taken,
            others=self.others,
            own=self.own,
            worker_pods=self.worker_pods,
            audits=tuple(child for (kind, _), child in self.children.items() if kind == "DelayedTopicAudit"),
        )

    def settle(self, *, actions: int | None = None, passes: int = 30) -> Plan:
        """Runs passes until nothing is left to do. Raises Stopped after this many actions, as if the operator was killed just then. A
        status is written when the controller writes it: `decided` before the actions, and the whole status at the end."""
        for _ in range(passes):
            plan = reconcile(self.observe())
            self._stop_after(actions)
            self.say(plan.decided if plan.actions else plan.status)
            if not plan.actions:
                return plan
            for action in plan.actions:
                self._stop_after(actions)
                self.execute(action)
                self.done.append(action)
        raise AssertionError(f"still something to do after {passes} passes: {plan.actions}")

    def _stop_after(self, actions: int | None) -> None:
        if actions is not None and len(self.done) >= actions:
            raise Stopped

    def say(self, status: DelayedTopicStatus | None) -> None:
        """Writes the status, but leaves what the controller of audits writes. None: leaves the whole status."""
        if status is not None:
            theirs = {name: self.raw["status"][name] for name in OF_AUDITS if name in self.raw["status"]}
            self.raw["status"] = {**to_dict(status), **theirs}

    def serve(self) -> "Simulation":
        """Settles with workers that become ready, and forgets the actions. Returns itself."""
        self.settle()
        self.workers_come_up()
        self.settle()
        self.done.clear()
        return self

    @classmethod
    def serving(cls, **spec: Any) -> "Simulation":
        """Returns the simulation of a resource with this spec that is served."""
        return cls(resource(**spec)).serve()

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def workers_come_up(self) -> None:
        """Makes all workers ready, as the StatefulSet controller and the workers would."""
        live = self.children["StatefulSet", self.name]
        replicas = live["spec"]["replicas"]
        live["status"] = {
            "observedGeneration": live["metadata"]["generation"],
            "replicas": replicas,
            "readyReplicas": replicas,
            "updatedReplicas": replicas,
        }

    def execute(self, action: Action) -> None:  # noqa: C901  one case per action
        kafka = self.kafka
        match action:
            case AddFinalizer():
                self.raw["metadata"]["finalizers"] = [FINALIZER]
            case RemoveFinalizer():
                self.raw["metadata"]["finalizers"] = []
                self.gone = True
            case WriteRegistry():
                kafka.write(action.record.key, encode(action.record))
            case RemoveFromRegistry():
                for key in action.keys:
                    kafka.write(key, None)
            case CreateTopics():
                for spec in action.specs:
                    assert spec.name not in kafka.topics
                    config = {**spec.config, **{key: KAFKAS_OWN[key] for key in kafka.refuses}}
                    kafka.create(spec.name, spec.partitions, spec.replication_factor, config)
                if MARK_SETTING in kafka.refuses:
                    ids = {spec.name: kafka.topics[spec.name].id for spec in action.specs}
                    record = replace(action.record, ids={**action.record.ids, **ids})
                    kafka.write(record.key, encode(record))
            case GrowTopic():
                assert kafka.topics[action.topic].partitions == action.present < action.total
                kafka.topics[action.topic].partitions = action.total
            case AlterSettings():
                for key, value in action.settings.items():
                    if key in kafka.refuses:
                        kafka.refused.setdefault(action.topic, {})[key] = Refusal(value=value, words="not allowed")
                    else:
                        kafka.topics[action.topic].config[key] = value
            case CommitOffsets():
                assert not kafka.members.get(action.group)
                kafka.committed.setdefault(action.group, {}).update(action.offsets)
            case DeleteGroup():
                kafka.committed.pop(action.group)
            case FenceWorkers():
                self.vanished = ()
            case DeleteTopics():
                for name in action.topics:
                    kafka.delete(name)
            case ApplyChild():
                self._apply(action.manifest)
            case ScaleWorkers():
                live = copy.deepcopy(self.children["StatefulSet", action.name])
                assert (live["metadata"]["uid"], live["spec"]["replicas"]) == (action.uid, action.present)
                live["spec"]["replicas"] = action.replicas
                self._apply(live)
            case DeleteChild():
                del self.children[action.kind, action.name]
            case _:
                assert_never(action)

    def _apply(self, manifest: Manifest) -> None:
        key = (manifest["kind"], manifest["metadata"]["name"])
        before = self.children.get(key)
        live = copy.deepcopy(manifest)
        live["metadata"]["uid"] = f"uid-{key}"
        live["metadata"]["creationTimestamp"] = self.now.isoformat()
        live["metadata"]["generation"] = before["metadata"]["generation"] + 1 if before else 1
        live["status"] = before.get("status", {}) if before else {}
        self.children[key] = live

    def _kafka_view(self) -> KafkaView:
        kafka, names = self.kafka, wanted(parse("DelayedTopic", self.raw)).names
        topics = {name: self._info(name) for name in names.possible}
        state = kafka.registry
        entry = state.claims.get(claim_key(names.front, self.owner))
        registered = Registered(
            holder=state.holder(names.front),
            own=entry.claim if entry else None,
            layout=state.layouts.get(names.front),
            topics=state.topics.get(names.front),
        )
        record, sources = registered.topics or TopicsRecord(topic=names.front), (names.front, names.delays)
        fresh = led(unnoted(record, topics, sources), topics)
        group = registered.layout.group if registered.layout is not None else names.group
        committed = kafka.committed.get(group, {})
        members = kafka.members.get(group, ())
        group_state = "Stable" if members else "Empty" if group in kafka.committed else "Dead"
        if group in kafka.rebalancing:
            members, group_state = tuple(replace(m, assignment=()) for m in members), "PreparingRebalance"
        at_rest = not members or "deletionTimestamp" in self.raw["metadata"]
        handed = handover.places(record, registered.layout, at_rest=at_rest)
        asked = (*unbegun(record, topics, sources), *handed)
        return KafkaView(
            registered=replace(registered),
            topics=topics,
            configs={name: dict(kafka.topics[name].config) for name in topics if name in kafka.topics},
            earliest=dict.fromkeys(fresh, 0),
            latest={(name, p): kafka.topics[name].ends.get(p, 0) for name, p in fresh},
            committed={key: OffsetAndMetadata(committed[key]) if key in committed else None for key in asked},
            group=GroupInfo(
                group=group,
                state=group_state,
                protocol="classic",
                members=members,
                assignor=kafka.assignors.get(group, "") if members else "",
            ),
            news=self.news,
            refused=kafka.refused,
            unmarked=kafka.unmarked,
            load=self.load,
        )

    def _info(self, name: str) -> TopicInfo | None:
        topic = self.kafka.topics.get(name)
        if topic is None:
            return None
        return TopicInfo(
            name=name,
            id=topic.id,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            leaders_known=name not in self.kafka.leaderless | {of for of, _ in self.kafka.unled},
            leaderless=tuple(sorted(p for of, p in self.kafka.unled if of == name)),
        )


def member(name: str, *assignment: tuple[str, int]) -> GroupMember:
    return GroupMember(client_id=name, assignment=assignment, target=None)
