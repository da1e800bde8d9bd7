"""The positions up to which `redrive` has sent the dead letters of each reason, as metadata of commits."""

from delayed_topics.redrive import NO_REASON
from delayed_topics.sent import Sent
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import DeadLetterReason

TOPIC_ID = "u9bGsJPYQqqmMyT6hHbJxg"
MAX_METADATA_BYTES = 4096
"""The default of `offset.metadata.max.bytes`."""


def test_the_positions_of_all_reasons_fit_into_a_commit_and_come_back() -> None:
    reasons = [*DeadLetterReason, NO_REASON]
    sent = Sent(10**15, {reason: 10**15 + number for number, reason in enumerate(reasons, 1)})

    metadata = sent.metadata(TOPIC_ID)

    assert len(metadata) < MAX_METADATA_BYTES
    assert Sent.decode(OffsetAndMetadata(sent.others, metadata), TOPIC_ID) == sent
    assert Sent.decode(OffsetAndMetadata(sent.others, metadata), "another") is None


def test_an_offset_that_somebody_has_set_by_hand_counts_for_all_reasons() -> None:
    assert Sent.decode(OffsetAndMetadata(7, ""), TOPIC_ID) == Sent(7)
