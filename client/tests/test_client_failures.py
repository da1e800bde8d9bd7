"""How each exception of a handler affects its record."""

import asyncio

import pytest
from delayed_topics import DelayedTopic, Record, Reject
from delayed_topics_client_testing import Served
from delayed_topics_client_testing.handling import fail, handle_all

pytestmark = pytest.mark.broker


class Mute(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


class OutOfStock(Reject):
    def __init__(self, number: int) -> None:
        self.number = number


async def cancelled() -> None:
    asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)  # type: ignore[union-attr]
    await asyncio.sleep(60)


def test_whatever_a_handler_raises_is_counted_as_an_attempt_of_its_record(served: Served) -> None:
    errors: dict[bytes, BaseException] = {
        b"mute": Mute(),
        b"rejected": Reject(KeyError("no customer")),
        b"rejected mute": Reject(Mute()),
        b"rejected without a reason": OutOfStock(7),
    }
    for value in (b"cancelled", *errors):
        served.release(value)

    def handle(record: Record) -> None:
        if record.value == b"cancelled":
            asyncio.run(cancelled())
        raise errors[record.value or b""]

    handle_all(served, 5, handle)
    retried = {c.value: c.said["dt-error"] for c in served.read(served.names.front)}
    assert retried == {
        b"cancelled": b"CancelledError: ",
        b"mute": b"Mute: its text can't be had, because __str__ raised LookupError",
    }
    assert {c.value: c.said["dt-error"] for c in served.read(served.names.dead_letter)} == {
        b"rejected": b"'no customer'",
        b"rejected mute": b"its text can't be had, because __str__ raised LookupError",
        b"rejected without a reason": b"7",
    }
    assert served.committed("shipping") == {0: 5}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_to_end_the_process_says_nothing_of_the_record(served: Served, error: type[BaseException]) -> None:
    served.release(b"v")

    def end(_: Record) -> None:
        raise error

    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders, pytest.raises(error):
        orders.consumer("shipping", end).run()
    assert served.committed("shipping") == {}
    assert (served.read(served.names.front), served.read(served.names.dead_letter)) == ([], [])


def test_a_handler_that_always_fails_is_heard_of_and_not_for_each_record(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(3):
        served.release(b"%d" % n)
    handle_all(served, 3, fail)
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert warning.getMessage() == (
        f"{served.names.ready} [0] offset 0, attempt 0, is retried, because the handler raised RuntimeError: not now"
    )
    assert ", in fail\n" in caplog.text
