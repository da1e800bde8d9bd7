"""Are the topics there, large enough, and set as the promises need it?"""

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.settings import DURABLE, MARK_SETTING, NEEDED, TopicRole
from delayed_topics_kafka.model import NewTopicSpec

from delayed_topics_operator.observation import KafkaView, Observation
from delayed_topics_operator.plan import (
    Action,
    AlterSettings,
    ConditionState,
    CreateTopics,
    Finding,
    GrowTopic,
    Notice,
    WriteRegistry,
)
from delayed_topics_operator.reconcile.enforced import RETENTION, differing, enforced, is_refused, missing
from delayed_topics_operator.reconcile.target import (
    Target,
    id_of,
    identified,
    noted,
    present,
    settings,
    target,
    without_foreign_control,
    write_layout,
)
from delayed_topics_operator.translate import ACCEPT_LOSS

NO_LEADER_WAKE_SECONDS = 2.0


def check(o: Observation) -> Finding:
    assert o.kafka is not None, "access is checked first"
    t = target(o, o.kafka)
    if t.lost:
        return Finding(conditions={Condition.TOPICS_READY: _lost(o, o.kafka, t)})
    if t.foreign:
        return Finding(
            actions=without_foreign_control(o.kafka, o.wanted.names),
            conditions={Condition.TOPICS_READY: _foreign(t)},
        )
    refused = o.beyond.topics
    if refused is not None and o.kafka.registered.layout is None:
        return Finding(conditions={Condition.TOPICS_READY: refused})
    created = tuple(spec for role in t.roles if (spec := _created(o, o.kafka, t, role)))
    grown = tuple(growth for role in t.roles if (growth := _grown(o.kafka, t, role)))
    made = (*((CreateTopics(specs=created, record=identified(o, o.kafka)),) if created else ()), *grown)
    repaired = tuple(action for role in t.roles if (action := _repaired(o, o.kafka, t, role)))
    planned = write_layout(o, o.kafka, t, complete=False) if made else ()
    leaderless = any(
        (info := o.kafka.topics.get(name)) is not None and not info.leaders_known for name in t.names.values()
    )
    names = (*(spec.name for spec in created), *(action.topic for action in grown))
    # Before something new is served its topics have what a promise needs: what differs may turn out to be refused.
    lacking = any(setting in NEEDED for role in t.roles for setting in differing(o, o.kafka, t, role))
    return Finding(
        actions=(*_identified(o, o.kafka), *planned, *made, *repaired),
        conditions={Condition.TOPICS_READY: refused or _said(o, o.kafka, t, names, leaderless)},
        notices=_made_again(o, o.kafka, t),
        wake_seconds=NO_LEADER_WAKE_SECONDS if leaderless else None,
        proceed=not lacking,
    )


def _identified(o: Observation, kafka: KafkaView) -> tuple[WriteRegistry, ...]:
    """Before anything is done with a topic its id is noted, so that no other of its name is taken for it."""
    record, before = identified(o, kafka), noted(o, kafka)
    if record == before:
        return ()
    names = sorted(name for name, id_ in record.ids.items() if before.ids.get(name) != id_)
    return (WriteRegistry(record=record, why=f"note the ids of {', '.join(names)}"),)


def complete(kafka: KafkaView, t: Target) -> bool:
    """Kafka has all that the layout needs."""
    return not (t.lost or t.foreign) and all(
        (info := kafka.topics.get(t.names[role])) is not None
        and info.leaders_known
        and info.partitions >= t.partitions[role]
        for role in t.roles
    )


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


def _said(o: Observation, kafka: KafkaView, t: Target, made: tuple[str, ...], leaderless: bool) -> ConditionState:
    delays = t.names["delays"]
    if made:
        return ConditionState(
            status="False", reason=Reason.TOPICS_CREATING, message=f"being made or grown: {', '.join(made)}"
        )
    if leaderless:
        return ConditionState(
            status="False", reason=Reason.TOPICS_CREATING, message="some partitions have no leader: look at the brokers"
        )
    if present(kafka, delays) > t.partitions["delays"]:
        message = (
            f"{delays} has {present(kafka, delays)} partitions, the layout {t.partitions['delays']}: somebody else grew it, and "
            "records in the further ones wait for ever; raise spec.partitions by the difference to have them served at the first delay"
        )
        return ConditionState(status="False", reason=Reason.PARTITIONS_FOREIGN, message=message)
    if present(kafka, control := t.names.get("control", "")) > t.partitions["control"]:
        message = (
            f"{control} has {present(kafka, control)} partitions: somebody else grew it, and only the first is read; delete it, then the "
            "operator makes it again, and cancel once more what is to be cancelled"
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
    """A promise that can't be kept because Kafka refuses a setting."""
    lacking = missing(o, kafka, t, NEEDED.__contains__)
    if not lacking:
        return None
    message = "; ".join(f"{found}: {NEEDED[found.setting]}" for found in lacking)
    message += "; have it allowed by whoever runs Kafka, see docs/managed-kafka.md. Until then nothing new is served"
    return ConditionState(status="False", reason=Reason.SETTING_REFUSED, message=message)


def _without(o: Observation, kafka: KafkaView, t: Target) -> str:
    """What is left out, as far as neither TopicsReady nor DurabilityReduced is about it."""
    lacking = missing(o, kafka, t, lambda setting: setting not in (*NEEDED, *DURABLE))
    return "".join(f"; {found}: a copy that doesn't fit becomes a dead letter" for found in lacking)


def _replicas(o: Observation, kafka: KafkaView, t: Target) -> ConditionState | None:
    """The operator moves no replicas: that copies all data, at a speed and to brokers that their owners choose."""
    asked = o.wanted.replication_factor
    differ = [
        f"{name} has {info.replication_factor}"
        for name in t.names.values()
        if asked is not None and (info := kafka.topics.get(name)) is not None and info.replication_factor != asked
    ]
    if not differ:
        return None
    message = (
        f"spec.replicationFactor is {asked} and {', '.join(differ)}: it is for topics that are made, those that exist keep their "
        "replicas; move them with kafka-reassign-partitions.sh"
    )
    return ConditionState(status="True", reason=Reason.REPLICATION_DIFFERS, message=message)


def _kept_longer(o: Observation, kafka: KafkaView, t: Target) -> str:
    longer = []
    for role in t.roles:
        name = t.names[role]
        info, live = kafka.topics.get(name), kafka.configs.get(name, {}).get(RETENTION)
        if info is not None and live is not None and live != (asked := enforced(o, t, role, info)[RETENTION]):
            longer.append(f"{RETENTION} of {name} is {live} and not {asked}")
    return f"; kept for longer than that: {', '.join(longer)} (kafka-configs.sh lowers it)" if longer else ""


def _lost(o: Observation, kafka: KafkaView, t: Target) -> ConditionState:
    name = t.lost[0]
    old, new = noted(o, kafka).ids[name], id_of(kafka.topics.get(name))
    what = f"was deleted and made again (its id was {old} and is {new})" if new else f"was deleted (its id was {old})"
    message = (
        f"topic {name} {what}, by somebody else; what waited in it is gone. It is not served by guess: to begin anew with an "
        f"empty one, {'delete the topic and ' if new else ''}annotate this resource with {ACCEPT_LOSS}={old}"
    )
    return ConditionState(
        status="False", reason=Reason.TOPIC_RECREATED if new else Reason.TOPIC_MISSING, message=message
    )


def _foreign(t: Target) -> ConditionState:
    names = ", ".join(t.foreign)
    without = (
        "remove spec.control"
        if t.foreign == (t.names.get("control"),)
        else "choose another spec.topic in a new resource"
    )
    message = (
        f"somebody else has made {names}: nothing is written there, changed or deleted; delete {'them' if len(t.foreign) > 1 else 'it'}, "
        f"then the operator makes its own, or {without}"
    )
    return ConditionState(status="False", reason=Reason.TOPIC_FOREIGN, message=message)


def _made_again(o: Observation, kafka: KafkaView, t: Target) -> tuple[Notice, ...]:
    """Nothing waits in ready, dead-letter and control topics, so that they are made again: it is said."""
    ids = noted(o, kafka).ids
    lost: dict[TopicRole, str] = {
        "ready": "records in it that were not consumed are gone",
        "dead-letter": "records in it that were not consumed are gone",
        "control": "what was cancelled there and still waits is released, unless it is cancelled again",
    }
    return tuple(
        Notice(
            type="Warning",
            reason=Reason.TOPIC_MISSING,
            message=f"topic {name} (id {ids[name]}) was deleted by somebody else; {gone}",
        )
        for role, gone in lost.items()
        if role in t.names and (name := t.names[role]) in ids and kafka.topics.get(name) is None
    )
