import pickle
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_kafka import commits, errors
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import (
    KafkaCallError,
    KafkaRefused,
    KafkaUnreachable,
    LeadersMissing,
    NotAuthorized,
    SettingsRefused,
    call_error,
)
from delayed_topics_kafka.model import TopicInfo

ORDERS = ("orders", 0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._DESTROY_BROKER, KafkaUnreachable),  # fault row B3: a broker left the metadata during a call
        (KafkaError.FENCED_LEADER_EPOCH, KafkaUnreachable),
        (KafkaError.OFFSET_NOT_AVAILABLE, KafkaUnreachable),  # the leader was elected a moment ago
        (KafkaError.KAFKA_STORAGE_ERROR, KafkaUnreachable),
        (KafkaError.REPLICA_NOT_AVAILABLE, KafkaUnreachable),
        (KafkaError.POLICY_VIOLATION, KafkaRefused),
    ],
)
def test_what_passes_by_itself_is_no_refusal(code: int, kind: type) -> None:
    error = call_error(KafkaError(code), doing="describing topic orders", bootstrap_servers="kafka:9092")
    assert type(error) is kind
    assert str(error).startswith("describing topic orders failed because Kafka at kafka:9092 ")


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KafkaCallError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_is_sent_to_another_process_arrives_whole(kind: type[KafkaCallError]) -> None:
    made = TopicInfo(name="orders", id="i", partitions=1, replication_factor=1, leaders_known=False)
    further: dict[str, Any] = {}
    if issubclass(kind, KafkaRefused):
        further = {"code": "NON_EMPTY_GROUP", "words": "it has members"}
    if kind is SettingsRefused:
        further = {"code": "POLICY_VIOLATION", "words_of": {"retention.ms": "too long"}}
    if kind is LeadersMissing:
        further = {"made": made}
    error = kind("orders: not now", **further)
    back = pickle.loads(pickle.dumps({"orders": {0: error}}))["orders"][0]
    assert (type(back), str(back), vars(back)) == (kind, "orders: not now", vars(error))


class Group:
    """Stands in for Kafka's consumer. It gives the answers of a group's coordinator in turn, and repeats the last."""

    def __init__(self, *errors: int | None) -> None:
        self._errors = list(errors)
        self.asked = 0

    def __call__(self, _config: object) -> "Group":
        return self

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        error = self._errors[min(self.asked, len(self._errors) - 1)]
        self.asked += 1
        if error is not None:
            raise KafkaException(KafkaError(error))
        return [TopicPartition(place.topic, place.partition, 7) for place in places]

    def poll(self, _timeout: float) -> None:
        return None

    def close(self) -> None:
        pass


def committed(group: Group, monkeypatch: pytest.MonkeyPatch, *, timeout_seconds: float) -> object:
    monkeypatch.setattr(commits, "Consumer", group)
    connection = Connection(bootstrap_servers="kafka:9092")
    return commits.committed_offsets(connection, "group", iter([ORDERS]), timeout_seconds=timeout_seconds)


def test_offsets_are_asked_for_again_when_the_groups_coordinator_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, None)
    assert committed(group, monkeypatch, timeout_seconds=60) == {ORDERS: OffsetAndMetadata(7)}


def test_offsets_are_not_asked_for_longer_than_allowed_nor_again_when_they_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(KafkaUnreachable):
        committed(Group(KafkaError.NOT_COORDINATOR), monkeypatch, timeout_seconds=0.2)
    group = Group(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(NotAuthorized):
        committed(group, monkeypatch, timeout_seconds=60)
    assert group.asked == 1
