"""Computes the settings that a topic has to have, those that differ, and those that Kafka refuses. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from delayed_topics_core.settings import MIN_ISR, TopicRole
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation
from delayed_topics_operator.delayed_topic.reconcile.target import Target, is_ours, settings

RETENTION = "retention.ms"
FLOORS = frozenset({RETENTION, "max.message.bytes", MIN_ISR})
"""Settings that are never lowered."""
UNLIMITED = -1


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A setting that a topic has to have, and that Kafka refuses. `live`: the present value. `words`: the error message of Kafka."""

    topic: str
    setting: str
    wanted: str
    live: str | None
    words: str

    def __str__(self) -> str:
        return f"Kafka refuses {self.setting}={self.wanted} for topic {self.topic} ({self.words}). The present value is {self.live}"


def enforced(o: Observation, t: Target, role: TopicRole, info: TopicInfo) -> dict[str, str]:
    """Returns the settings that a topic has to have. While replicas move, Kafka counts both the old and the new ones, so the replication
    factor is taken to be at most the one that is asked for."""
    return settings(o, t, role, min(t.replication_factor, info.replication_factor))


def differing(o: Observation, kafka: KafkaView, t: Target, role: TopicRole) -> dict[str, str]:
    """Returns the settings whose live values are wrong, with the right values. Empty if the topic does not exist or is not ours."""
    name = t.names[role]
    info, live = kafka.topics.get(name), kafka.configs.get(name)
    if info is None or live is None or not is_ours(kafka, name):
        return {}
    wanted = enforced(o, t, role, info)
    return {key: value for key, value in wanted.items() if not _holds(info, key, live.get(key), value)}


def is_refused(kafka: KafkaView, topic: str, setting: str, value: str) -> bool:
    refusal = kafka.refused.get(topic, {}).get(setting)
    return refusal is not None and refusal.value == value


def missing(o: Observation, kafka: KafkaView, t: Target, counts: Callable[[str], bool]) -> tuple[Missing, ...]:
    """Returns the settings that Kafka refuses and for whose names `counts` is True."""
    return tuple(
        Missing(
            topic=t.names[role],
            setting=setting,
            wanted=value,
            live=kafka.configs[t.names[role]].get(setting),
            words=kafka.refused[t.names[role]][setting].words,
        )
        for role in t.roles
        for setting, value in differing(o, kafka, t, role).items()
        if counts(setting) and is_refused(kafka, t.names[role], setting, value)
    )


def _holds(info: TopicInfo, key: str, live: str | None, wanted: str) -> bool:
    """Whether a live value is good enough. A value that somebody set higher than the promises need stays, because lowering a retention
    would delete records."""
    if live is None or key not in FLOORS:
        return live == wanted
    if key == MIN_ISR and int(live) > info.replication_factor:
        return False  # no record could be written
    return int(live) >= int(wanted) or (key == RETENTION and int(live) == UNLIMITED)
