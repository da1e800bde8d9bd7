"""What a worker knows of the topics that it serves."""

from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.registry import TopicsRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core_testing.served import serving
from delayed_topics_worker.config import WorkerConfig
from delayed_topics_worker.served import RECREATED_SECONDS, ServedTopics
from delayed_topics_worker.topic_watch import TopicsSnapshot

NOTHING_SEEN = TopicsSnapshot({}, {})


def test_topics_that_are_created_again_and_again_interrupt_a_worker_once_a_minute() -> None:
    state, served = RegistryState(), ServedTopics(WorkerConfig(topics=("orders",)))

    def created_again(topic_id: str, now: float) -> list[str]:
        layout = serving("orders", initial(LayoutSpec(delay_seconds=(0,), partitions=1)))
        for record in (layout, TopicsRecord(topic="orders", ids={"orders": topic_id})):
            state.apply(state.next_offset, record.key, encode(record))
        served.follow(state)
        return served.recreated(NOTHING_SEEN, now)

    assert created_again("first", 1) == []
    assert created_again("second", 2) == ["orders"]
    assert created_again("third", 3) == []
    assert served.recreated(NOTHING_SEEN, 1 + RECREATED_SECONDS) == []
    assert served.recreated(NOTHING_SEEN, 2 + RECREATED_SECONDS) == ["orders"]
    assert served.recreated(NOTHING_SEEN, 3 + RECREATED_SECONDS) == []
