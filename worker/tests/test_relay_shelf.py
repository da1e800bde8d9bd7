"""The order in which waiting records get their turn, and the heap of partitions."""

from confluent_kafka import Message
from delayed_topics_worker.owned import Held, Owned
from delayed_topics_worker.served import Served
from delayed_topics_worker.shelf import Shelf
from hypothesis import given
from hypothesis import strategies as st

OWNED = Owned(Served.of("orders"), "orders", 0, generation=1, assigned_at=0)


def held(offset: int) -> Held:
    return Held(OWNED, offset, Message(topic="orders"), ())


@given(st.lists(st.integers(0, 20)))
def test_turns_come_in_order_and_equal_ones_by_offset(turns: list[int]) -> None:
    shelf = Shelf()
    for offset, turn in enumerate(turns):
        shelf.add(turn, held(offset))
    left = []
    while (record := shelf.pop(20)) is not None:
        left.append((turns[record.offset], record.offset))

    assert left == sorted((turn, offset) for offset, turn in enumerate(turns))
    assert len(shelf) == 0


@given(st.lists(st.integers(0, 20), min_size=1), st.integers(0, 20))
def test_nothing_leaves_before_its_turn(turns: list[int], now: int) -> None:
    shelf = Shelf()
    for offset, turn in enumerate(turns):
        shelf.add(turn, held(offset))

    assert shelf.next_turn_ms == min(turns)
    assert shelf.due_count(now) == sum(turn <= now for turn in turns)
    while (record := shelf.pop(now)) is not None:
        assert turns[record.offset] <= now
    assert len(shelf) == sum(turn > now for turn in turns)
