"""Loops over the records of a group: how each record is settled, also the current one when a loop is left."""

from contextlib import suppress
from dataclasses import replace

import confluent_kafka
import pytest
from confluent_kafka import Message
from delayed_topics import DelayedTopic, Record, Records
from delayed_topics import records as records_module
from delayed_topics_client_testing import Served

pytestmark = pytest.mark.broker


class TemporaryError(Exception):
    """An error of something that the user's code needs."""


def read_until(
    records: Records, last: bytes, *, leave_at: bytes | None = None, by: str = "break"
) -> list[bytes | None]:
    """Returns the values that one loop hands out until it is left or has handed out the last record."""
    seen: list[bytes | None] = []
    with suppress(TemporaryError):
        for record in records:
            seen.append(record.value)
            if record.value == last:
                records.stop()
            elif record.value == leave_at:
                if by == "exception":
                    raise TemporaryError
                break
    return seen


def consumed(served: Served, last: bytes) -> list[bytes | None]:
    """Returns the values that the group receives from its position up to the value `last`."""
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders, orders.records("shipping") as records:
        return read_until(records, last)


def test_the_iteration_can_be_used_without_a_handler(served: Served) -> None:
    for value in (b"good", b"bad", b"ugly", b"last"):
        served.release(value)
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders, orders.records("shipping") as records:
        for record in records:
            match record.value:
                case b"bad":
                    records.retry(record, TimeoutError("slow"))
                case b"ugly":
                    records.reject(record, "ugly")
                case b"last":
                    records.stop()
    assert [c.value for c in served.read(served.names.front)] == [b"bad"]
    assert [c.value for c in served.read(served.names.dead_letter)] == [b"ugly"]
    assert served.committed("shipping") == {0: 4}


def test_a_record_at_hand_when_the_loop_is_left_comes_again(served: Served) -> None:
    served.release(b"one")
    served.release(b"two")
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        with orders.records("shipping") as records:
            for record in records:
                if record.value == b"two":
                    break
        assert served.committed("shipping") == {0: 1}
    assert consumed(served, b"two") == [b"two"]


@pytest.mark.parametrize("by", ["break", "exception"])
def test_a_record_at_hand_when_the_loop_is_left_is_the_first_of_the_next_loop(served: Served, by: str) -> None:
    for value in (b"one", b"two", b"three"):
        served.release(value)
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders, orders.records("shipping") as records:
        first = read_until(records, b"three", leave_at=b"two", by=by)
        again = read_until(records, b"three", leave_at=b"two", by=by)
        rest = read_until(records, b"three")
    assert (first, again, rest) == ([b"one", b"two"], [b"two"], [b"two", b"three"])
    assert served.committed("shipping") == {0: 3}
    served.release(b"later")
    assert consumed(served, b"later") == [b"later"]


def test_a_record_that_no_loop_has_finished_is_not_committed_however_many_were_begun(served: Served) -> None:
    for value in (b"one", b"two", b"three"):
        served.release(value)
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders, orders.records("shipping") as records:
        for _ in range(3):
            read_until(records, b"three", leave_at=b"two")
    assert served.committed("shipping") == {0: 1}
    assert consumed(served, b"three") == [b"two", b"three"]


def test_a_record_that_is_retried_after_the_loop_was_left_is_not_handed_out_by_the_next(served: Served) -> None:
    for value in (b"one", b"two", b"three"):
        served.release(value)
    seen: list[bytes | None] = []
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders, orders.records("shipping") as records:
        for record in records:
            seen.append(record.value)
            if record.value == b"two":
                break
        records.retry(record, TimeoutError("slow"))
        seen += read_until(records, b"three")
    assert seen == [b"one", b"two", b"three"]
    assert [c.value for c in served.read(served.names.front)] == [b"two"]
    assert served.committed("shipping") == {0: 3}


def test_only_the_current_record_has_an_outcome_to_decide_and_only_one(served: Served) -> None:
    for value in (b"one", b"two", b"three"):
        served.release(value)
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders, orders.records("shipping") as records:
        first = next(iter(records))
        seen: list[Record] = []
        for record in records:
            seen.append(record)
            if record.value == b"two":
                with pytest.raises(ValueError, match=r"offset 0 is done, because the loop has asked for the next one"):
                    records.retry(first, TimeoutError("slow"))
                with pytest.raises(ValueError, match="offset 0 is done"):
                    records.reject(seen[0], "ugly")
                records.retry(replace(record, value=b"TWO"), TimeoutError("slow"))
                with pytest.raises(ValueError, match=r"offset 1 has had its `retry` or `reject` already"):
                    records.reject(record, "ugly")
            if record.value == b"three":
                records.stop()
    assert [record.value for record in seen] == [b"one", b"two", b"three"]
    assert [c.value for c in served.read(served.names.front)] == [b"TWO"]
    assert served.read(served.names.dead_letter) == []
    assert served.committed("shipping") == {0: 3}


def test_a_consumer_that_is_closed_gives_no_empty_loop(served: Served) -> None:
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        with orders.records("shipping") as records:
            pass
        with pytest.raises(RuntimeError, match="the consumer of group shipping is closed"):
            next(iter(records))


def test_a_record_whose_partition_was_revoked_after_the_loop_was_left_comes_once(served: Served) -> None:
    for value in (b"one", b"two", b"three"):
        served.release(value)
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders, orders.records("shipping") as records:
        assert read_until(records, b"three", leave_at=b"two") == [b"one", b"two"]
        records._stranded.set()  # makes the consumer leave the group and join again
        assert read_until(records, b"three") == [b"two", b"three"]
    assert served.committed("shipping") == {0: 3}


def test_a_signal_that_raises_while_a_record_arrives_does_not_have_the_next_loop_skip_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(confluent_kafka.Consumer):
        """The client library drops the message if a signal handler raises when the message has arrived."""

        def poll(self, timeout: float = -1) -> Message | None:
            message = super().poll(timeout)
            if message is not None and message.value() == b"two" and not interrupted:
                interrupted.append(message.value())
                raise TemporaryError
            return message

    interrupted: list[bytes | None] = []
    monkeypatch.setattr(records_module, "Consumer", Interrupted)
    for value in (b"one", b"two", b"three"):
        served.release(value)
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders, orders.records("shipping") as records:
        assert read_until(records, b"three") == [b"one"]
        assert read_until(records, b"three") == [b"two", b"three"]
    assert served.committed("shipping") == {0: 3}
