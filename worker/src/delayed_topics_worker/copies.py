"""A decision as the record that is produced."""

from typing import NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from delayed_topics_core.headers import Header, OwnHeaders, Root, origin, write_dead_letter, write_hop, write_release
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core.routing import DeadLetter, Decision, Hop, Policy, Source, Wait, decide_delays, decide_front

from delayed_topics_worker.owned import Held

MOST_CUTS = 3
"""0: as it is. Dead letters only: 2 without value, 3 without key and foreign headers either."""


class Copy(NamedTuple):
    """What goes to Kafka."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def decide(held: Held, policy: Policy, now_ms: int) -> Decision:
    """What becomes of a record that has just been taken in. `now_ms`: a lower bound of the broker's time."""
    owned, message = held.owned, held.message
    kind, appended_at_ms = message.timestamp()
    if kind != TIMESTAMP_LOG_APPEND_TIME:
        appended_at_ms = now_ms  # a producer's clock decides nothing
    source = Source(owned.partition, held.offset, owned.topic_id, appended_at_ms)
    if held.headers is None:
        root = Root(owned.door, owned.partition, held.offset, owned.topic_id)
        reason = DeadLetterReason.HEADER_UNREADABLE
        return DeadLetter(OwnHeaders(), root, reason, "a header key is not UTF-8; the headers are left out")
    if owned.door == "f":
        return decide_front(held.headers, source, policy, now_ms)
    return decide_delays(held.headers, message.key(), source, policy)


def copy_of(held: Held, decision: Decision, now_ms: int) -> Copy:
    owned, message = held.owned, held.message
    names = owned.served.names
    headers = held.headers or ()
    made_from = origin(owned.door, owned.partition, held.offset)
    own, root = decision.own, decision.root
    match decision:
        case Wait(due_at_ms=due_at_ms):
            topic, partition = names.ready, decision.ready_partition
            written = write_release(
                headers, own, root=root, origin=made_from, due_at_ms=due_at_ms, released_at_ms=now_ms
            )
        case Hop(due_at_ms=due_at_ms):
            topic, partition = names.delays, decision.partition
            written = write_hop(headers, own, root=root, origin=made_from, due_at_ms=due_at_ms)
        case DeadLetter(reason=reason, error=error):
            # 0 while the topic isn't there: the produce fails then, and stops the partition
            topic, partition = names.dead_letter, root.partition % max(1, owned.served.dead_letter_partitions)
            kept = headers if held.cuts < MOST_CUTS else ()
            written = write_dead_letter(kept, own, root=root, origin=made_from, reason=reason, error=error)
    return Copy(
        topic,
        partition,
        message.key() if held.cuts < MOST_CUTS else None,
        message.value() if held.cuts < MOST_CUTS - 1 else None,
        written,
    )


def cut(held: Held, decision: Decision) -> bool:
    """Make the copy of a record smaller after it was refused as too large; False: there is nothing left to leave out."""
    if held.cuts == MOST_CUTS:
        return False
    if held.cuts == 0 and not isinstance(decision, DeadLetter):
        held.cuts = 1
    else:
        held.cuts = max(2, held.cuts + 1)
    error = f"the copy of {len(held.message)} bytes was refused as too large"
    held.decision = DeadLetter(decision.own, decision.root, DeadLetterReason.TOO_LARGE, error)
    return True
