"""Writers to a missing system topic count failures and go on, and no client creates a topic."""

from collections.abc import Callable, Iterator

import pytest
from delayed_topics_core.events import Event
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.events import EventWriter
from delayed_topics_kafka.outbox import Outbox

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[Broker]:
    """Yields a broker that does not create topics when clients write to them."""
    with Broker(settings={**PATIENT, "auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.mark.slow
def test_without_the_events_topic_events_are_counted_as_failed(strict_broker: Broker) -> None:
    events = EventWriter(
        Connection(bootstrap_servers=strict_broker.bootstrap, further={"log_level": 0}), client_id="w-0"
    )

    def failed() -> bool:
        events.write(Event(kind="worker-started", topic="orders", member="w-0", at_ms=1, detail={}))
        return events.failed > 3

    wait_until(failed, what="events are counted as failed")
    events.close()


def test_no_client_makes_a_topic_that_is_missing(
    connection: Connection, admin: KafkaAdmin, fresh: Callable[[str], str]
) -> None:
    """By default, brokers create a missing topic if a client requests it. The topic would have the broker's settings and no owner."""
    topic = fresh("gone")
    outbox = Outbox(connection, client_id="w-0")
    outbox.write(topic, key=b"o-1", value=b"cancelled")
    outbox.close(20)
    assert admin.describe_topics([topic]) == {topic: None}
    assert outbox.failed == 1
