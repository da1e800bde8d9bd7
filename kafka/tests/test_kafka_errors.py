import pytest
from confluent_kafka import KafkaError
from delayed_topics_kafka.errors import KafkaRefused, KafkaUnreachable, door_error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._DESTROY_BROKER, KafkaUnreachable),  # fault row B3 met it: a broker left the metadata amid a call
        (KafkaError.FENCED_LEADER_EPOCH, KafkaUnreachable),
        (KafkaError.OFFSET_NOT_AVAILABLE, KafkaUnreachable),  # a leader that was elected a moment ago
        (KafkaError.KAFKA_STORAGE_ERROR, KafkaUnreachable),
        (KafkaError.REPLICA_NOT_AVAILABLE, KafkaUnreachable),
        (KafkaError.POLICY_VIOLATION, KafkaRefused),
    ],
)
def test_what_passes_by_itself_is_no_refusal(code: int, kind: type) -> None:
    error = door_error(KafkaError(code), doing="describing topic orders", bootstrap_servers="kafka:9092")
    assert type(error) is kind
    assert str(error).startswith("describing topic orders, Kafka at kafka:9092 ")
