"""Parts that several resources share."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from delayed_topics_crds.base import ListMap, Spec, Status, Time, matches

NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
NAME_MESSAGE = "must be the name of a Kubernetes object: lower-case letters, digits, '-' and '.'"

ObjectName = Annotated[str, matches(NAME, NAME_MESSAGE, 253)]
MAX_MESSAGE = 4000
"""The maximum length of a condition's message. Messages from Kafka, or about many topics, have no limit of their own."""


def _shorten(message: object) -> object:
    if isinstance(message, str) and len(message) > MAX_MESSAGE:
        return message[: MAX_MESSAGE - 1] + "…"
    return message


Verdict = Literal["Verified", "Violated", "Unknown"]


class SecretRef(Spec):
    """A Secret. For a ClusterKafkaConnection it is in the operator's namespace, for a KafkaConnection in the namespace of the
    connection."""

    name: ObjectName
    """The name of the Secret."""


class Condition(Status):
    """One aspect of the state. It says what is so, since when, why, and what to do."""

    type: Annotated[str, Field(max_length=316)]
    """The name of the aspect, such as `Ready`."""
    status: Literal["True", "False", "Unknown"]
    """Whether the aspect holds."""
    reason: Annotated[str, Field(max_length=1024)]
    """The reason in one word, for programs."""
    message: Annotated[str, BeforeValidator(_shorten), Field(max_length=32768)]
    """The reason in a sentence, for people. It says what is wrong, where, and what to do."""
    last_transition_time: Time
    """When `status` last changed."""
    observed_generation: int | None = None
    """The `metadata.generation` that the condition describes."""


Conditions = Annotated[tuple[Condition, ...], ListMap("type")]


class StatusBase(Status):
    """The fields that every status has."""

    observed_generation: int | None = None
    """The `metadata.generation` that the rest of the status describes."""
    conditions: Conditions = ()
    """The state of the resource, one condition for each aspect."""
