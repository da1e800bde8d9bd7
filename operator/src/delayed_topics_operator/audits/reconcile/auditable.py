"""Why a window can't be frozen, or not yet. Pure."""

from collections.abc import Mapping
from datetime import datetime

from delayed_topics_core.layout import format_ranges
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.reasons import Reason
from delayed_topics_core.registry import LayoutRecord, Owner, TopicsRecord
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_crds import DelayedTopicAudit
from delayed_topics_crds.audit import Window
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_operator.audits.reconcile.observation import Unauditable, Waiting

WAIT_SECONDS = 5.0
"""How soon to look again at an audit that has just been created."""


def early(asked: Window, now: datetime) -> Waiting | None:
    """Returns that the window has not ended yet. None: it has."""
    if asked.to is None or asked.to <= now:
        return None
    message = f"spec.window.to is {asked.to:%Y-%m-%d %H:%M:%S} UTC. The audit waits until then"
    return Waiting(reason=Reason.AUDIT_WAITING, message=message)


def wait_seconds(audit: DelayedTopicAudit, now: datetime) -> float:
    """Returns when to look again at an audit that waits for something that does not wake it: at the end of its window, or the less often
    the longer it has waited, because people can create any number of audits. A resync looks at it in any case."""
    made, to = audit.metadata.creation_timestamp or now, audit.spec.window.to
    seconds = max(WAIT_SECONDS, (now - made).total_seconds() / 8)
    return min(seconds, (to - now).total_seconds()) if to is not None and to > now else seconds


def untimely(asked: Window, now: datetime) -> Waiting | Unauditable | None:
    """Returns why the requested part of the records can't be audited now. None: it can."""
    if (waiting := early(asked, now)) is not None:
        return waiting
    if asked.from_ is not None and asked.from_ > now:
        return Unauditable(
            message=f"spec.window.from is {asked.from_:%Y-%m-%d %H:%M:%S} UTC, which is in the future. Without spec.window.to, the window "
            "ends now. Create a new DelayedTopicAudit with either an earlier spec.window.from or a spec.window.to, for which it then waits"
        )
    return None


def served_records(
    registry: RegistryState, names: TopicNames, owner: Owner
) -> tuple[LayoutRecord, TopicsRecord] | Waiting:
    """Returns the records that the registry has of the topics, if the topics belong to the owner and are served."""
    claim, layout, noted = (
        registry.holder(names.front),
        registry.layouts.get(names.front),
        registry.topics.get(names.front),
    )
    if claim is None or claim.owner != owner:
        message = f"topic {names.front} does not belong to DelayedTopic {owner.namespace}/{owner.name}. See the condition Claimed there"
        return Waiting(reason=Reason.AUDIT_WAITING, message=message)
    if layout is None or noted is None or not noted.start_offsets.keys() >= {names.front, names.delays}:
        message = f"topic {names.front} is not served yet. See the conditions of DelayedTopic {owner.namespace}/{owner.name} for the reason"
        return Waiting(reason=Reason.AUDIT_WAITING, message=message)
    return layout, noted


def unlike(noted: TopicsRecord, topics: Mapping[str, TopicInfo | None], names: TopicNames) -> Unauditable | None:
    """Returns why the present topics are not those with which serving began. None: they are."""
    again = ", ".join(name for name in noted.made_again if name in names.topics)
    if again:
        return Unauditable(
            message=f"topic {again} was deleted and created again after serving began, so its former records are gone. No audit can verify "
            "this DelayedTopic any more. Either create one with another spec.topic, or delete this one with spec.deletionPolicy Delete and "
            "create it again"
        )
    for name in names.topics:
        info = topics.get(name)
        if info is None:
            return Unauditable(
                message=f"topic {name} does not exist because somebody deleted it. See the conditions of the DelayedTopic for what to do"
            )
        if info.id != noted.ids.get(name):
            return Unauditable(
                message=f"topic {name} was deleted and created again. Its id was {noted.ids.get(name)}, and is now {info.id}"
            )
    return None


def uncommitted(
    noted: TopicsRecord, committed: Mapping[TopicPartitionKey, OffsetAndMetadata | None], group: str
) -> Unauditable | None:
    """Returns which partitions have been served and have no committed offset. None: there are none."""
    found = []
    for name, starts in noted.start_offsets.items():
        begun = range(min(len(starts), noted.begun.get(name, 0)))
        missing = [p for p in begun if committed.get((name, p)) is None]
        if missing:
            found.append(f"{name} [{format_ranges(missing)}]")
    if not found:
        return None
    return Unauditable(
        message=f"group {group} has lost its committed offsets of {', '.join(found)}, so it is unknown what was served. "
        "Set the offsets with kafka-consumer-groups.sh --reset-offsets while no worker runs. Then create a new DelayedTopicAudit"
    )
