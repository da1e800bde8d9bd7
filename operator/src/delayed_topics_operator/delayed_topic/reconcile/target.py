"""Computes what the topics of a resource should be. Several checks use it, so that they all get the same result."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from delayed_topics_core.handover import Handover
from delayed_topics_core.layout import Layout, LayoutSpec, evolve, initial
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.registry import LayoutRecord, TopicsRecord
from delayed_topics_core.settings import MARK_SETTING, TopicRole, topic_settings
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_operator.connection.reconcile.usable import DEFAULT_SKEW_MS, Usable
from delayed_topics_operator.delayed_topic.reconcile import handover, history
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation
from delayed_topics_operator.values.partitions import has_control
from delayed_topics_operator.values.plan import WriteRegistry

ROLES: tuple[TopicRole, ...] = ("dead-letter", "control", "ready", "delays", "front")
"""The order in which topics are created: a topic exists before records are copied into it."""

SOURCES: tuple[TopicRole, TopicRole] = ("front", "delays")
"""The topics that workers read."""

DEFAULT_REPLICATION = 3


@dataclass(frozen=True, kw_only=True)
class Target:
    """The topics as they should be. `layout` and `partitions` (by role) are those of the registry if no more are granted.

    `names`: the names of these topics. A control topic that somebody else has created is left out, because the other topics can do without
    it. `lost`: registered front or delays topics that are gone, or were created again. `foreign`: topics that somebody else has created.
    """

    names: Mapping[TopicRole, str]
    layout: Layout
    partitions: Mapping[TopicRole, int]
    replication_factor: int
    lost: tuple[str, ...]
    foreign: tuple[str, ...]

    @property
    def roles(self) -> tuple[TopicRole, ...]:
        """The roles of the topics that should exist, in the order in which they are created."""
        return tuple(role for role in ROLES if role in self.names)

    @property
    def stuck(self) -> bool:
        """Whether somebody has to decide about a topic that is lost or foreign. Until then no topic is created or grown."""
        return bool(self.lost) or not set(self.foreign).isdisjoint(self.names.values())


def target(o: Observation, kafka: KafkaView) -> Target:
    names = dict(names_of(o))
    # While the spec exceeds the grants, no further topic is created.
    if not o.wanted.control or (o.beyond.topics is not None and not has_control(kafka.registered.topics)):
        del names["control"]
    foreign = tuple(name for name in names.values() if _is_foreign(kafka, name))
    if o.wanted.names.control in foreign:
        del names["control"]
    previous = kafka.registered.layout
    if (kept := _kept(o, previous)) is not None:
        front, ready, layout = kept.front_partitions, kept.ready_partitions, kept.layout
    else:
        served = previous if previous is not None and previous.state == "serving" else None
        front = max(
            o.wanted.front_partitions,
            _partitions_ever(o, kafka, names["front"]),
            served.front_partitions if served else 0,
        )
        ready = max(front, _own_partitions(kafka, names["ready"]), served.ready_partitions if served else 0)
        layout = _layout(previous, o.wanted.layout, _partitions_ever(o, kafka, names["delays"]))
    brokers = o.connection.brokers if isinstance(o.connection, Usable) else 1
    ids = topics_record(o, kafka).ids
    return Target(
        names=names,
        layout=layout,
        partitions={
            "front": front,
            "ready": ready,
            "delays": layout.partition_count,
            "dead-letter": present(kafka, names["dead-letter"]) or ready,
            "control": 1,
        },
        replication_factor=o.wanted.spec.replication_factor or min(DEFAULT_REPLICATION, brokers),
        lost=tuple(
            name
            for name in (names["front"], names["delays"])
            if name in ids and ids[name] != id_of(kafka.topics.get(name)) and ids[name] not in o.subject.accepted_losses
        ),
        foreign=foreign,
    )


def complete(kafka: KafkaView, t: Target) -> bool:
    """Whether Kafka has all that the layout needs. Partitions without a leader count too, once their start offsets are known: any partition
    can lose its leader at any time."""
    return not t.stuck and _has_partitions(kafka, t, t.roles) and _start_offsets_known(kafka, t)


def _has_partitions(kafka: KafkaView, t: Target, roles: Iterable[TopicRole]) -> bool:
    """Whether Kafka has the partitions of these topics, apart from topics that are lost or foreign."""
    others = ((role, t.names[role]) for role in roles if t.names[role] not in (*t.lost, *t.foreign))
    return all(present(kafka, name) >= t.partitions[role] for role, name in others)


def _can_be_given_back(kafka: KafkaView, t: Target) -> bool:
    """Whether the former group can continue with its retired layout. It did without a control topic that has yet to be created."""
    return _has_partitions(kafka, t, (role for role in t.roles if role != "control")) and _start_offsets_known(kafka, t)


def _start_offsets_known(kafka: KafkaView, t: Target) -> bool:
    """Whether the start offset of each partition of the layout is in the registry, or Kafka has reported it in this pass."""
    sources = {t.names[role]: t.partitions[role] for role in SOURCES if t.names[role] not in (*t.lost, *t.foreign)}
    missing = unnoted(_record(kafka, t.names["front"]), kafka.topics, sources)
    return all(place in kafka.earliest for place in missing if place[1] < sources[place[0]])


def _kept(o: Observation, previous: LayoutRecord | None) -> LayoutRecord | None:
    """Returns the layout that stays as it is, or None. The layout stays while the spec exceeds the grants. A retired layout stays until
    workers begin to serve again."""
    if previous is not None and previous.state == "retired":
        return previous.before or previous
    return previous if o.beyond.topics is not None else None


def _layout(previous: LayoutRecord | None, spec: LayoutSpec, known: int) -> Layout:
    """Returns the first layout, or the one that follows from the previous layout.

    Planned partitions that Kafka never created are planned anew, since no record was written into them. A growth that Kafka refuses can
    therefore be taken back.
    """
    if previous is None:
        return initial(spec)
    layout = previous.layout
    if previous.state == "serving":
        return evolve(layout, spec)
    made = (replace(kind, partitions=tuple(p for p in kind.partitions if p < known)) for kind in layout.kinds)
    following = evolve(replace(layout, kinds=tuple(kind for kind in made if kind.partitions)), spec)
    same = replace(following, generation=layout.generation) == layout
    return layout if same else replace(following, generation=layout.generation + 1)


def _partitions_ever(o: Observation, kafka: KafkaView, name: str) -> int:
    """Returns the number of partitions that a front or delays topic has, or once had."""
    return max(_own_partitions(kafka, name), len(topics_record(o, kafka).start_offsets.get(name, ())))


def names_of(o: Observation) -> Mapping[TopicRole, str]:
    """Returns the names of all topics that a resource can have, by role."""
    names = o.wanted.names
    return {
        "front": names.front,
        "delays": names.delays,
        "ready": names.ready,
        "dead-letter": names.dead_letter,
        "control": names.control,
    }


def topics_record(o: Observation, kafka: KafkaView) -> TopicsRecord:
    """Returns what the registry has about the topics of this resource; an empty record if it has nothing."""
    return _record(kafka, o.wanted.names.front)


def _record(kafka: KafkaView, front: str) -> TopicsRecord:
    return kafka.registered.topics or TopicsRecord(topic=front)


def is_ours(kafka: KafkaView, name: str) -> bool:
    """Whether the topic exists and belongs to this resource: the registry has its id, it has the mark of the claim, or the claim adopts it.
    A topic that could not be marked is known to the executor until the registry has its id."""
    info, own = kafka.topics.get(name), kafka.registered.own
    if info is None or own is None:
        return False
    registered_id = kafka.registered.topics.ids.get(name) if kafka.registered.topics else None
    made = own.mark and kafka.configs.get(name, {}).get(MARK_SETTING) == str(own.mark)
    return (
        info.id in (registered_id, kafka.unmarked.get(name))
        or bool(made)
        or (own.adopted and name == own.topic and registered_id is None)
    )


def _is_foreign(kafka: KafkaView, name: str) -> bool:
    """Whether somebody else has created a topic whose name this resource has claimed."""
    return kafka.registered.own is not None and kafka.topics.get(name) is not None and not is_ours(kafka, name)


def identified(o: Observation, kafka: KafkaView) -> TopicsRecord:
    """Returns the topics record with the ids of all topics that belong to this resource. What the record has about former topics with these
    names is removed."""
    before, own = topics_record(o, kafka), kafka.registered.own
    ids = {name: info.id for name, info in kafka.topics.items() if info is not None and is_ours(kafka, name)}
    again = {name for name, known in before.ids.items() if ids.get(name, known) != known}
    starts = {name: offsets for name, offsets in before.start_offsets.items() if name not in again}
    handed = before.handover.without(again) if before.handover else None
    if own is not None and own.adopted and own.topic in ids and own.topic not in before.ids:
        # Records from before the adoption belong to the topic's owner. Partitions that are added later are ours from the first record.
        info = kafka.topics[own.topic]
        assert info is not None, "it has an id"
        starts[own.topic] = tuple(kafka.latest[own.topic, partition] for partition in range(info.partitions))
        # Commits of this group may be left from before the adoption, at lower offsets.
        handed = Handover(group=o.group, positions={own.topic: tuple(map(OffsetAndMetadata, starts[own.topic]))})
    return replace(
        before,
        handover=handed,
        ids={**before.ids, **ids},
        start_offsets=starts,
        begun={name: count for name, count in before.begun.items() if name not in again},
        made_again=tuple(sorted(again.union(before.made_again))),
        mirrored_from={name: id_ for name, id_ in before.mirrored_from.items() if name not in again},
    )


def present(kafka: KafkaView, name: str) -> int:
    """Returns the number of partitions that the topic has, 0 if it does not exist."""
    info = kafka.topics.get(name)
    return info.partitions if info else 0


def _own_partitions(kafka: KafkaView, name: str) -> int:
    """Like `present`, but 0 for a foreign topic."""
    return 0 if _is_foreign(kafka, name) else present(kafka, name)


def id_of(info: TopicInfo | None) -> str | None:
    return info.id if info else None


def record(
    o: Observation, t: Target, state: Literal["planned", "serving", "retired"], *, group: str = ""
) -> LayoutRecord:
    """Returns the layout record as it should be. `group`: the consumer group that gets the layout, if it is to be another."""
    group = group or o.group
    skew_ms = o.connection.broker_skew_ms if isinstance(o.connection, Usable) else DEFAULT_SKEW_MS
    ready = t.partitions["ready"]
    before = o.kafka.registered.layout if o.kafka is not None else None
    served, planned = before.served if before is not None else None, state == "planned"
    ready_topics, forgotten_ms = history.ready_topics(o, before)
    return LayoutRecord(
        topic=o.wanted.names.front,
        owner=o.subject.owner,
        state=state,
        layout=t.layout,
        retry_cap=o.wanted.spec.retry_cap,
        front_partitions=t.partitions["front"],
        ready_partitions=ready,
        group=group,
        paused=o.wanted.spec.paused,
        compression=o.wanted.spec.compression,
        broker_skew_ms=skew_ms,
        highest_retry_cap=max(before.highest_retry_cap if before else 0, o.wanted.spec.retry_cap),
        least_ready_partitions=min(before.least_ready_partitions if before else ready, ready),
        # no worker follows a planned layout, and an audit judges by what workers followed
        exactly_once_from_ms=served.exactly_once_from_ms
        if served and planned
        else history.exactly_once_from_ms(o, before, group),
        lists=served.lists if served and planned else history.lists(o, served or before, t.layout),
        max_delay_seconds=o.wanted.spec.max_delay_seconds,
        ready_topics=ready_topics,
        ready_topics_forgotten_ms=forgotten_ms,
        outage_budget_seconds=o.wanted.spec.outage_budget_seconds,
        workers=o.wanted.replicas if group == o.wanted.names.group else None,
        # workers read the control topic only when it exists
        control=o.kafka is not None and "control" in t.names and is_ours(o.kafka, t.names["control"]),
        before=_before(o, before) if planned else None,
    )


def _before(o: Observation, registered: LayoutRecord | None) -> LayoutRecord | None:
    """Returns what workers continue to serve while the next layout is planned."""
    served = registered.served if registered is not None else None
    return kept_serving(o, served) if served is not None else None


def kept_serving(o: Observation, served: LayoutRecord) -> LayoutRecord:
    """Returns a layout that workers continue to serve although it is not what the resource asks for. It can be paused and have fewer
    workers. It has no control topic if that is foreign, and it belongs to this resource, which may just have taken the topics over."""
    assert o.kafka is not None, "its registry has the layout"
    return replace(
        served,
        owner=o.subject.owner,
        paused=o.wanted.spec.paused,
        workers=o.wanted.replicas if served.workers is not None else None,
        control=served.control and not _is_foreign(o.kafka, o.wanted.names.control),
        before=kept_serving(o, served.before) if served.before is not None else None,
    )


def given_back(o: Observation, kafka: KafkaView, retired: LayoutRecord) -> LayoutRecord:
    """Returns a retired layout as its former group serves it again, or in its present state if Kafka does not have all of it."""
    kept = kept_serving(o, retired.before or retired)
    return replace(kept, state="serving") if _can_be_given_back(kafka, target(o, kafka)) else kept


def settings(o: Observation, t: Target, role: TopicRole, replication_factor: int) -> dict[str, str]:
    """Returns the enforced settings of one topic."""
    return topic_settings(
        role=role,
        # an audit looks up where a record with its own due time was first seen
        delay_seconds=t.layout.waits_seconds(o.wanted.spec.max_delay_seconds),
        outage_budget_seconds=o.wanted.spec.outage_budget_seconds,
        dead_letter_retention_seconds=o.wanted.spec.dead_letter.retention_seconds,
        replication_factor=replication_factor,
    )


def unnoted(
    record: TopicsRecord, topics: Mapping[str, TopicInfo | None], names: Iterable[str]
) -> list[TopicPartitionKey]:
    """Returns the existing partitions of these topics for which the registry has no start offset, or only one of a former topic with the
    same name."""
    return _beyond({name: len(offsets) for name, offsets in record.start_offsets.items()}, record, topics, names)


def led(places: Iterable[TopicPartitionKey], topics: Mapping[str, TopicInfo | None]) -> list[TopicPartitionKey]:
    """Returns the partitions that have a leader. About the others Kafka has no answer: a call would fail after 15 s, and all that is read
    together with it."""
    return [(name, p) for name, p in places if (info := topics.get(name)) is not None and p not in info.leaderless]


def unbegun(
    record: TopicsRecord, topics: Mapping[str, TopicInfo | None], names: tuple[str, str]
) -> list[TopicPartitionKey]:
    """Returns the existing partitions of these topics that are not known to have had a committed offset."""
    return _beyond(record.begun, record, topics, names)


def _beyond(
    known: Mapping[str, int], record: TopicsRecord, topics: Mapping[str, TopicInfo | None], names: Iterable[str]
) -> list[TopicPartitionKey]:
    """Returns the existing partitions without the first `known` ones of each topic that still has its registered id."""
    missing: list[TopicPartitionKey] = []
    for name in names:
        info = topics.get(name)
        if info is not None:
            begin = known.get(name, 0) if record.ids.get(name) == info.id else 0
            missing += [(name, partition) for partition in range(begin, info.partitions)]
    return missing


def write_layout(o: Observation, kafka: KafkaView, t: Target) -> tuple[WriteRegistry, ...]:
    """Returns the write of the layout record if it differs from the registered one.

    The layout serves once Kafka has all of it, or if workers can continue as before. It moves to another group only when Kafka has all of
    it.
    """
    planned, whole = record(o, t, "planned"), complete(kafka, t)
    if not (whole or _can_go_on(kafka, t, planned)):
        wanted, verb = planned, "plan"
    elif not (whole and handover.under_way(o)):
        wanted, verb = record(o, t, "serving"), "serve"
    elif handover.is_given_up(o):
        wanted, verb = record(o, t, "serving", group=o.wanted_group), f"let group {o.wanted_group} serve"
    else:
        wanted, verb = record(o, t, "retired"), f"let the workers of group {o.group} give up"
    return written(kafka, wanted, verb)


def written(kafka: KafkaView, wanted: LayoutRecord, verb: str) -> tuple[WriteRegistry, ...]:
    """Returns the write of this layout record if it differs from the registered one. `verb`: what is done with the layout, for people."""
    if kafka.registered.layout == wanted:
        return ()
    what = f"layout generation {wanted.layout.generation} of {wanted.topic}"
    return (WriteRegistry(record=wanted, why=f"{verb} {what} ({summary(wanted)})"),)


def summary(wanted: LayoutRecord) -> str:
    """Describes a layout for people."""
    delays = ", ".join(f"{ranges} → {seconds} s" for seconds, _, ranges in wanted.layout.ranges())
    control = ", with a control topic" if wanted.control else ""
    return f"partitions {delays}, retry cap {wanted.retry_cap}{control}{', paused' if wanted.paused else ''}"


def _can_go_on(kafka: KafkaView, t: Target, planned: LayoutRecord) -> bool:
    """Whether workers can continue to serve although Kafka does not have all of the layout. No partition is new, and workers leave topics
    alone that are missing or have another id than the registered one."""
    previous = kafka.registered.layout
    if previous is None or previous.state == "planned":
        return False
    if previous.state == "retired":
        return _can_be_given_back(kafka, t)
    needing = ("layout", "front_partitions", "ready_partitions")
    return all(getattr(previous, name) == getattr(planned, name) for name in needing)
