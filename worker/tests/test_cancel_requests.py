"""How long a request to cancel a record stays in force, and how it is answered."""

from typing import Final

import pytest
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_kafka.control import ControlRead
from delayed_topics_worker.requests import MAX_AT_ONCE, MAX_WITHDRAWN, Requests

NOW_MS: Final = 1_790_000_000_000
NEVER_MS: Final = 0


def read(of_id: bytes, kind: ControlKind | None = ControlKind.CANCEL, *, at_ms: int = NOW_MS) -> ControlRead:
    return ControlRead(
        "orders.control", of_id, None if kind is None else Control(kind), is_understood=True, at_ms=at_ms
    )


def take(requests: Requests, record: ControlRead) -> bool:
    return requests.take(record, most=2)


def test_a_request_of_which_nothing_is_heard_is_not_found_and_stays_in_force() -> None:
    requests = Requests()
    assert take(requests, read(b"o-1"))
    assert take(requests, read(b"o-2", at_ms=NOW_MS + 1))
    assert requests.take_answers(not_found_before_ms=NOW_MS) == []
    assert requests.take_answers(not_found_before_ms=NOW_MS + 1) == [(b"o-1", Control(ControlKind.NOT_FOUND))]
    assert take(requests, read(b"o-1", ControlKind.NOT_FOUND))
    assert requests.take_answers(not_found_before_ms=NOW_MS + 1) == []


@pytest.mark.parametrize("answer", [ControlKind.CANCELLED, ControlKind.TOO_LATE])
def test_a_request_that_was_answered_holds_and_has_the_same_answer_again(answer: ControlKind) -> None:
    requests = Requests()
    take(requests, read(b"o-1"))
    assert take(requests, read(b"o-1", answer))
    assert requests.take_answers(not_found_before_ms=NOW_MS + 1) == []
    assert take(requests, read(b"o-1"))
    assert requests.take_answers(not_found_before_ms=NEVER_MS) == [(b"o-1", Control(answer))]


def test_a_request_that_is_withdrawn_is_not_answered() -> None:
    requests = Requests()
    take(requests, read(b"o-1"))
    assert not take(requests, read(b"o-1", None))
    assert requests.take_answers(not_found_before_ms=NOW_MS + 1) == []
    assert requests.expire(NOW_MS + 1) == []


def test_an_answer_that_comes_after_the_request_was_withdrawn_is_taken_back() -> None:
    requests = Requests()
    take(requests, read(b"o-1"))
    take(requests, read(b"o-1", None))
    assert not take(requests, read(b"o-1", ControlKind.CANCELLED))
    assert requests.take_answers(not_found_before_ms=NEVER_MS) == [(b"o-1", None)]
    assert not take(requests, read(b"o-1", None))
    assert requests.take_answers(not_found_before_ms=NEVER_MS) == []
    assert take(requests, read(b"o-1"))
    assert take(requests, read(b"o-1", ControlKind.CANCELLED))


def test_what_was_withdrawn_is_remembered_for_the_last_ones() -> None:
    requests = Requests()
    for number in range(MAX_WITHDRAWN + 1):
        take(requests, read(b"%d" % number, None))
    assert len(requests.withdrawn) == MAX_WITHDRAWN
    assert b"0" not in requests.withdrawn


def test_many_requests_of_which_nothing_is_heard_are_answered_in_parts_and_each_once() -> None:
    """The producer drops answers for which its queue has no room."""
    requests, ids = Requests(), [b"o-%04d" % number for number in range(2 * MAX_AT_ONCE + 1)]
    for of_id in ids:
        requests.take(read(of_id), most=len(ids))
    parts: list[list[bytes]] = []
    while answers := requests.take_answers(not_found_before_ms=NOW_MS + 1):
        parts.append([of_id for of_id, _ in answers])
    assert [len(part) for part in parts] == [MAX_AT_ONCE, MAX_AT_ONCE, 1]
    assert [of_id for part in parts for of_id in part] == ids


def test_requests_end_with_the_retention_of_the_control_topic_counted_from_the_last_word() -> None:
    requests = Requests()
    take(requests, read(b"o-1"))
    take(requests, read(b"o-2"))
    take(requests, read(b"o-1", at_ms=NOW_MS + 5))
    assert requests.expire(NOW_MS) == []
    assert requests.expire(NOW_MS + 1) == [b"o-2"]
    assert requests.take_answers(not_found_before_ms=NOW_MS + 6) == [(b"o-1", Control(ControlKind.NOT_FOUND))]
    assert requests.expire(NOW_MS + 6) == [b"o-1"]


def test_there_is_room_for_so_many_requests_and_one_that_is_over_makes_room() -> None:
    requests = Requests()
    assert take(requests, read(b"o-1"))
    assert take(requests, read(b"o-2"))
    assert not take(requests, read(b"o-3"))
    assert take(requests, read(b"o-2"))  # the request is already in force
    assert (b"o-3", Control(ControlKind.NO_ROOM)) in requests.take_answers(not_found_before_ms=NEVER_MS)
    take(requests, read(b"o-1", None))
    assert take(requests, read(b"o-3"))
