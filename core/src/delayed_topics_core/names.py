"""The names that a delayed topic, and the system as a whole, use in a Kafka cluster."""

import re
from dataclasses import dataclass

from delayed_topics_core.errors import IllegalTopicName

REGISTRY_TOPIC = "delayedtopics.registry"
EVENTS_TOPIC = "delayedtopics.events"
CLOCK_TOPIC = "delayedtopics.clock"

DELAYS_SUFFIX = ".delays"
READY_SUFFIX = ".ready"
DEAD_LETTER_SUFFIX = ".dead"
CONTROL_SUFFIX = ".control"
SUFFIXES = (DELAYS_SUFFIX, READY_SUFFIX, DEAD_LETTER_SUFFIX, CONTROL_SUFFIX)
RESERVED_PREFIXES = ("delayedtopics.", "__")

MAX_TOPIC_NAME_LENGTH = 249  # org.apache.kafka.common.internals.Topic.MAX_NAME_LENGTH
MAX_FRONT_NAME_LENGTH = MAX_TOPIC_NAME_LENGTH - max(len(suffix) for suffix in SUFFIXES)
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicNames:
    """The topics and the consumer group of one delayed topic."""

    front: str
    delays: str
    ready: str
    dead_letter: str
    group: str

    @classmethod
    def of(cls, topic: str) -> "TopicNames":
        """Raises IllegalTopicName."""
        check_topic_name(topic)
        return cls(
            front=topic,
            delays=topic + DELAYS_SUFFIX,
            ready=topic + READY_SUFFIX,
            dead_letter=topic + DEAD_LETTER_SUFFIX,
            group="delayedtopics." + topic,
        )

    @property
    def topics(self) -> tuple[str, str, str, str]:
        """The four topics that each delayed topic has."""
        return (self.front, self.delays, self.ready, self.dead_letter)

    @property
    def possible(self) -> tuple[str, ...]:
        """All topics that a delayed topic can have: the four, and the control topic."""
        return (*self.topics, self.control)

    @property
    def control(self) -> str:
        """The control topic, which exists only with `spec.control`."""
        return self.front + CONTROL_SUFFIX

    @property
    def redrive_group(self) -> str:
        """The consumer group whose offsets say up to where dead letters were redriven, and also the transactional id of redrives. The slash
        keeps it distinct from the group of every delayed topic, because no topic name contains a slash."""
        return f"delayedtopics.redrive/{self.front}"


def shared_group(cluster: str, installation: str, kind: str, namespace: str, name: str) -> str:
    """Returns the consumer group of the shared workers of a connection. The slashes keep it distinct from the group of every delayed topic,
    because no topic name contains a slash.

    `cluster` is the UID of the kube-system namespace, and `installation` is the operator's namespace. `kind`, `namespace` and `name` are
    those of the connection.
    """
    return f"delayedtopics.shared/{cluster}/{installation}/{kind}/{namespace}/{name}"


def transactional_id(group: str, member: str) -> str:
    """Returns the transactional id of a worker with `ExactlyOnce`. All processes of the same member name have the same id, so that each
    process ends the transaction that the previous one has left open."""
    return f"{group}.{member}"


def collision_key(topic: str) -> str:
    """Returns a key that is equal for topic names that collide. Kafka refuses `a.b` next to `a_b`, because metric names replace the dot."""
    return topic.replace(".", "_")


def check_topic_name(topic: str) -> None:
    """Raises IllegalTopicName unless `topic` can be a front topic."""
    if not _LEGAL.fullmatch(topic) or topic in (".", ".."):
        raise IllegalTopicName(
            f"topic {topic!r} must consist of letters, digits, '.', '_' and '-', and must not be '.' or '..'"
        )
    if len(topic) > MAX_FRONT_NAME_LENGTH:
        raise IllegalTopicName(
            f"topic {topic[:20]}… must have at most {MAX_FRONT_NAME_LENGTH} characters, but has {len(topic)}. "
            f"Kafka allows {MAX_TOPIC_NAME_LENGTH}, and the operator appends {CONTROL_SUFFIX}"
        )
    if topic.startswith(RESERVED_PREFIXES):
        raise IllegalTopicName(
            f"topic {topic!r} must not start with {' or '.join(RESERVED_PREFIXES)} because such names are reserved"
        )
    if topic.endswith(SUFFIXES):
        raise IllegalTopicName(
            f"topic {topic!r} must not end with {' or '.join(SUFFIXES)} because the operator appends these to front topics"
        )
