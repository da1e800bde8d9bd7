"""The three system topics. The operator creates them, and repairs their settings if somebody has changed them. Only partition 0 is used."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from delayed_topics_core.events import KEPT_MS
from delayed_topics_core.names import CLOCK_TOPIC, EVENTS_TOPIC, REGISTRY_TOPIC
from delayed_topics_core.settings import MIN_ISR, least_in_sync

from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import (
    KafkaRefused,
    KafkaUnreachable,
    RegistryLost,
    SettingsRefused,
    TopicExists,
    value_of,
    values_of,
)
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo

_DAY_MS: Final = 86_400_000

_SETTINGS: Final[dict[str, dict[str, str]]] = {
    REGISTRY_TOPIC: {
        "cleanup.policy": "compact",
        # if somebody changes the policy, Kafka still removes nothing before the operator has repaired it
        "retention.ms": "-1",
        "retention.bytes": "-1",
        # how long a follower may be disconnected and still see the tombstone of a removed record
        "delete.retention.ms": str(7 * _DAY_MS),
    },
    EVENTS_TOPIC: {"cleanup.policy": "delete", "retention.ms": str(KEPT_MS), "retention.bytes": "-1"},
    CLOCK_TOPIC: {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"},
}

SYSTEM_TOPICS: Final = tuple(_SETTINGS)

_NEEDED: Final[dict[str, tuple[str, str]]] = {
    REGISTRY_TOPIC: ("cleanup.policy", "Kafka would otherwise remove its records when they are old"),
    CLOCK_TOPIC: (
        "message.timestamp.type",
        "workers release records by the brokers' time, which they read from this topic",
    ),
}
"""The settings that are required, and why. Other settings that Kafka refuses stay as Kafka has them."""


def system_topic_settings(topic: str, *, replication_factor: int) -> dict[str, str]:
    """Returns the enforced settings of a system topic. The clock topic needs the broker's own time, and the other topics must not lose
    records (promise 2)."""
    return {
        **_SETTINGS[topic],
        "message.timestamp.type": "LogAppendTime",
        MIN_ISR: str(least_in_sync(replication_factor)),
        "unclean.leader.election.enable": "false",
    }


def drifted_settings(info: TopicInfo, settings: Mapping[str, str], *, replication_factor: int) -> dict[str, str]:
    """Returns the wanted values of those enforced settings of a system topic that differ from `settings`. `replication_factor` is the
    most replicas to assume, because Kafka counts the old and the new ones while replicas move. `min.insync.replicas` is not raised until
    all replicas are in sync."""
    wanted = system_topic_settings(info.name, replication_factor=min(replication_factor, info.replication_factor))
    if info.lagging and int(settings.get(MIN_ISR, 1)) < int(wanted[MIN_ISR]):
        del wanted[MIN_ISR]
    return {name: value for name, value in wanted.items() if settings.get(name) != value}


def same_registry(known_id: str | None, found: TopicInfo | None) -> None:
    """Checks that the registry is the one that was used before, by its topic id `known_id`, None if there was none. Raises RegistryLost.

    Without the claims of the lost registry, no topic has an owner, and anyone could claim it next. People have to decide what to do.
    """
    if known_id is None or (found is not None and found.id == known_id):
        return
    again = f" and created again (its id is {found.id} now)" if found is not None else ""
    raise RegistryLost(
        f"topic {REGISTRY_TOPIC} with the id {known_id} was deleted{again}, so it is unknown which resource owns which topic",
        code="UNKNOWN_TOPIC_ID",
    )


def ensure_system_topics(
    admin: KafkaAdmin,
    *,
    replication_factor: int,
    registry_id: str | None = None,
    topics: Sequence[str] = SYSTEM_TOPICS,
) -> dict[str, TopicInfo]:
    """Creates the system topics that are missing, and repairs the settings of the others. Safe to repeat, and to run twice at once.
    Raises KafkaCallError.

    `registry_id` is the topic id of the registry that was used before, see `same_registry`. `topics` must include the registry. In the
    result, `left_out` has the wanted settings of a topic that Kafka refuses.
    """
    known = values_of(admin.describe_topics(topics))
    same_registry(registry_id, known[REGISTRY_TOPIC])
    missing = [
        NewTopicSpec(
            name=topic,
            partitions=1,
            replication_factor=replication_factor,
            config=system_topic_settings(topic, replication_factor=replication_factor),
        )
        for topic, info in known.items()
        if info is None
    ]
    existing = {topic: info for topic, info in known.items() if info is not None}
    found, others = dict(existing), []
    for topic, outcome in admin.create_topics(missing).items():
        if isinstance(outcome, TopicExists):
            others.append(topic)
        else:
            found[topic] = value_of(outcome)
    # only topics that another process has just created: the broker that answers may not know a topic yet that was created above
    for topic, info in admin.describe_topics(others).items():
        if (described := value_of(info)) is None:
            raise KafkaUnreachable(f"topic {topic} was created a moment ago, and the broker does not know it yet")
        found[topic] = described
    # clock and events may have more partitions, if a broker created them automatically when a worker wrote to them
    if (partitions := found[REGISTRY_TOPIC].partitions) != 1:
        raise KafkaRefused(
            f"topic {REGISTRY_TOPIC} must have one partition, but has {partitions}, so somebody else created it. "
            "Delete it if it has no records that you need",
            code="INVALID_PARTITIONS",
        )
    incomplete = {topic: info for topic, info in found.items() if info.left_out}
    refused = _repair(admin, {**existing, **incomplete}, replication_factor)
    return {topic: replace(info, left_out=refused.get(topic, ())) for topic, info in found.items()}


def _repair(admin: KafkaAdmin, existing: dict[str, TopicInfo], replication_factor: int) -> dict[str, tuple[str, ...]]:
    """Sets the settings that differ. Returns the names of those that Kafka refuses, by topic."""
    drift: dict[str, dict[str, str]] = {}
    for topic, settings in admin.topic_configs(list(existing)).items():
        drifted = drifted_settings(existing[topic], value_of(settings), replication_factor=replication_factor)
        if drifted:
            drift[topic] = drifted
    refused: dict[str, tuple[str, ...]] = {}
    for topic, outcome in admin.alter_topic_configs(drift).items():
        if not isinstance(outcome, SettingsRefused):
            value_of(outcome)
            continue
        refused[topic] = tuple(sorted(outcome.words_of))
        if topic in _NEEDED and (words := outcome.words_of.get(_NEEDED[topic][0])) is not None:
            setting, why = _NEEDED[topic]
            raise KafkaRefused(
                f"Kafka refuses {setting}={drift[topic][setting]} of topic {topic} ({words}). The setting is needed because {why}. "
                "Ask the team that runs Kafka to allow it",
                code=outcome.code,
            )
    return refused
