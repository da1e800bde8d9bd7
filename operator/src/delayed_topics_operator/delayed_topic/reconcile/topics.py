"""Checks that the topics exist, are large enough, and have the settings that the promises need."""

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.settings import LESSER, MARK_SETTING, NEEDED, TopicRole
from delayed_topics_core.words import counted
from delayed_topics_kafka.model import NewTopicSpec

from delayed_topics_operator.delayed_topic.reconcile.enforced import RETENTION, differing, enforced, is_refused, missing
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation
from delayed_topics_operator.delayed_topic.reconcile.target import (
    Target,
    complete,
    id_of,
    identified,
    present,
    settings,
    target,
    topics_record,
    write_layout,
)
from delayed_topics_operator.values.annotations import ACCEPT_LOSS
from delayed_topics_operator.values.plan import (
    Action,
    AlterSettings,
    ConditionState,
    CreateTopics,
    Finding,
    GrowTopic,
    Notice,
    WriteRegistry,
)

NO_LEADER_WAKE_SECONDS = 2.0


def check(o: Observation) -> Finding:
    assert o.kafka is not None, "access is checked first"
    t, layout, refused = target(o, o.kafka), o.kafka.registered.layout, o.beyond.topics
    repaired = tuple(action for role in t.roles if (action := _repaired(o, o.kafka, t, role)))
    # Nothing new is served before the topics have the settings that a promise needs, because Kafka may refuse these settings.
    lacking = any(setting in NEEDED for role in t.roles for setting in differing(o, o.kafka, t, role))
    if t.stuck:
        followed = write_layout(o, o.kafka, t) if layout is not None and not lacking else ()
        state = _lost(o, o.kafka, t) if t.lost else _foreign(o, t)
        return Finding(actions=(*followed, *repaired), conditions={Condition.TOPICS_READY: state}, proceed=not lacking)
    if refused is not None and layout is None:
        return Finding(conditions={Condition.TOPICS_READY: refused})
    created = tuple(spec for role in t.roles if (spec := _created(o, o.kafka, t, role)))
    grown = tuple(growth for role in t.roles if (growth := _grown(o.kafka, t, role)))
    made = (*((CreateTopics(specs=created, record=identified(o, o.kafka)),) if created else ()), *grown)
    planned = () if complete(o.kafka, t) else write_layout(o, o.kafka, t)
    leaderless = any(
        (info := o.kafka.topics.get(name)) is not None and not info.leaders_known for name in t.names.values()
    )
    names = (*(spec.name for spec in created), *(action.topic for action in grown))
    return Finding(
        actions=(*_identified(o, o.kafka), *planned, *made, *repaired),
        conditions={Condition.TOPICS_READY: refused or _topics_state(o, o.kafka, t, names, leaderless)},
        notices=_made_again(o, o.kafka, t),
        wake_seconds=NO_LEADER_WAKE_SECONDS if leaderless else None,
        proceed=not lacking,
    )


def _identified(o: Observation, kafka: KafkaView) -> tuple[WriteRegistry, ...]:
    """Writes the ids of topics to the registry before anything is done with the topics, so that no other topic of the same name is taken
    for one of them."""
    record, before = identified(o, kafka), topics_record(o, kafka)
    if record == before:
        return ()
    names = sorted(name for name, id_ in record.ids.items() if before.ids.get(name) != id_)
    return (WriteRegistry(record=record, why=f"note the ids of {', '.join(names)}"),)


def _created(o: Observation, kafka: KafkaView, t: Target, role: TopicRole) -> NewTopicSpec | None:
    name, own = t.names[role], kafka.registered.own
    if present(kafka, name) or own is None:
        return None
    mark = {MARK_SETTING: str(own.mark)} if own.mark else {}
    return NewTopicSpec(
        name=name,
        partitions=t.partitions[role],
        replication_factor=t.replication_factor,
        config={**settings(o, t, role, t.replication_factor), **mark},
    )


def _grown(kafka: KafkaView, t: Target, role: TopicRole) -> GrowTopic | None:
    name, total = t.names[role], t.partitions[role]
    have = present(kafka, name)
    return GrowTopic(topic=name, present=have, total=total) if 0 < have < total else None


def _repaired(o: Observation, kafka: KafkaView, t: Target, role: TopicRole) -> Action | None:
    name, live = t.names[role], kafka.configs.get(t.names[role], {})
    differ = {
        key: value for key, value in differing(o, kafka, t, role).items() if not is_refused(kafka, name, key, value)
    }
    return (
        AlterSettings(topic=name, settings=differ, present={key: live.get(key) for key in differ}) if differ else None
    )


def _topics_state(
    o: Observation, kafka: KafkaView, t: Target, made: tuple[str, ...], leaderless: bool
) -> ConditionState:
    delays = t.names["delays"]
    if t.foreign:
        return _foreign(o, t)
    if made:
        return ConditionState(
            status="False",
            reason=Reason.TOPICS_CREATING,
            message=f"the operator creates these topics or adds partitions to them: {', '.join(made)}",
        )
    if leaderless:
        return ConditionState(
            status="False", reason=Reason.TOPICS_CREATING, message="some partitions have no leader. Check the brokers"
        )
    if present(kafka, delays) > t.partitions["delays"]:
        message = (
            f"{delays} has {counted(present(kafka, delays), 'partition')}, but the layout has {t.partitions['delays']}. Somebody else "
            "added partitions, and records in these partitions wait forever. Raise spec.partitions by the difference, so that the "
            "layout gives these partitions a delay"
        )
        return ConditionState(status="False", reason=Reason.PARTITIONS_FOREIGN, message=message)
    if present(kafka, control := t.names.get("control", "")) > t.partitions["control"]:
        message = (
            f"{control} has {present(kafka, control)} partitions, because somebody else added some. Workers read only the first one. "
            "Delete the topic, so that the operator creates it again. Then repeat the requests to cancel or reschedule records"
        )
        return ConditionState(status="False", reason=Reason.PARTITIONS_FOREIGN, message=message)
    return (
        _needed(o, kafka, t)
        or _replicas(o, kafka, t)
        or ConditionState(
            status="True",
            reason=Reason.AS_DECLARED,
            message=f"all topics are as declared{_kept_longer(o, kafka, t)}{_without(o, kafka, t)}",
        )
    )


def _needed(o: Observation, kafka: KafkaView, t: Target) -> ConditionState | None:
    """Returns the condition if a promise can't be kept because Kafka refuses a setting."""
    lacking = missing(o, kafka, t, NEEDED.__contains__)
    if not lacking:
        return None
    message = ". ".join(f"{found}. The setting is needed because {NEEDED[found.setting]}" for found in lacking)
    message += ". Until Kafka accepts it, nothing new is served. Ask the team that runs Kafka to allow it (see docs/managed-kafka.md)"
    return ConditionState(status="False", reason=Reason.SETTING_REFUSED, message=message)


def _without(o: Observation, kafka: KafkaView, t: Target) -> str:
    """Names the settings that Kafka refuses and that make neither TopicsReady False nor DurabilityReduced True."""
    lacking = missing(o, kafka, t, LESSER.__contains__)
    return "".join(f". {found}. {LESSER[found.setting]}" for found in lacking)


def _replicas(o: Observation, kafka: KafkaView, t: Target) -> ConditionState | None:
    """The operator moves no replicas, because that copies all data. The owners of the brokers choose when, where to and how fast."""
    asked = o.wanted.spec.replication_factor
    differ = [
        f"{name} has {info.replication_factor}"
        for name in t.names.values()
        if asked is not None and (info := kafka.topics.get(name)) is not None and info.replication_factor != asked
    ]
    if not differ:
        return None
    message = (
        f"spec.replicationFactor is {asked}, but {', '.join(differ)}. The field is only for topics that the operator creates, and "
        "existing topics keep their replicas. Move the replicas with kafka-reassign-partitions.sh"
    )
    return ConditionState(status="True", reason=Reason.REPLICATION_DIFFERS, message=message)


def _kept_longer(o: Observation, kafka: KafkaView, t: Target) -> str:
    longer = []
    for role in t.roles:
        name = t.names[role]
        info, live = kafka.topics.get(name), kafka.configs.get(name, {}).get(RETENTION)
        if info is not None and live is not None and live != (asked := enforced(o, t, role, info)[RETENTION]):
            longer.append(f"{RETENTION} of {name} is {live} instead of {asked}")
    return (
        f". Some topics keep records for longer: {', '.join(longer)}. You can lower it with kafka-configs.sh"
        if longer
        else ""
    )


def _lost(o: Observation, kafka: KafkaView, t: Target) -> ConditionState:
    name = t.lost[0]
    old, new = topics_record(o, kafka).ids[name], id_of(kafka.topics.get(name))
    what = f"{name} and created it again (its id was {old} and is {new})" if new else f"{name} (its id was {old})"
    message = (
        f"somebody else deleted topic {what}. The records that waited in it are lost. The operator does not continue with another topic "
        f"on its own. To start again with an empty topic, {'delete the topic and ' if new else ''}annotate this resource with "
        f"{ACCEPT_LOSS}={old}"
    )
    return ConditionState(
        status="False", reason=Reason.TOPIC_RECREATED if new else Reason.TOPIC_MISSING, message=message
    )


def _foreign(o: Observation, t: Target) -> ConditionState:
    names = ", ".join(t.foreign)
    without = (
        "remove spec.control"
        if t.foreign == (o.wanted.names.control,)
        else "choose another spec.topic in a new resource"
    )
    message = (
        f"somebody else has created {names}. The operator does not write to topics of others, change them or delete them. Either delete "
        f"{'them' if len(t.foreign) > 1 else 'it'}, so that the operator creates its own, or {without}"
    )
    return ConditionState(status="False", reason=Reason.TOPIC_FOREIGN, message=message)


def _made_again(o: Observation, kafka: KafkaView, t: Target) -> tuple[Notice, ...]:
    """Reports that ready, dead-letter or control topics were deleted. No record waits in them, so the operator creates them again."""
    ids = topics_record(o, kafka).ids
    lost: dict[TopicRole, str] = {
        "ready": "Records in it that were not consumed are lost",
        "dead-letter": "Records in it that were not consumed are lost",
        "control": "Waiting records that were cancelled or rescheduled there come out as if nobody had asked. Repeat these requests",
    }
    return tuple(
        Notice(
            type="Warning",
            reason=Reason.TOPIC_MISSING,
            message=f"somebody else deleted topic {name} (id {ids[name]}), and the operator creates it again. {gone}",
        )
        for role, gone in lost.items()
        if role in t.names and (name := t.names[role]) in ids and kafka.topics.get(name) is None
    )
