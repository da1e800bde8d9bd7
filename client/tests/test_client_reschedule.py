"""Rescheduling records. The test plays the worker and writes its answers."""

import time
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result
from delayed_topics import ChangeOutcome, DelayedTopic
from delayed_topics.cli import main
from delayed_topics_client_testing import Served, serve
from delayed_topics_client_testing.control import ID, worker, written

pytestmark = pytest.mark.broker

PATIENCE_SECONDS = 120


@pytest.fixture
def controlled(served: Served) -> Served:
    made = serve(served.connection, f"{served.names.front}-rescheduled", control=True)
    made.write_layout(
        replace(made.layout, layout=replace(made.layout.layout, ladder_seconds=(1, 2)), max_delay_seconds=3600)
    )
    return made


def in_ms(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


def run(served: Served, *arguments: str) -> Result:
    command = ["--bootstrap", served.bootstrap, "reschedule", served.names.front, "order-7", *arguments]
    return CliRunner().invoke(main, command)


def test_the_answer_that_is_about_this_time_is_returned(controlled: Served) -> None:
    at_ms = in_ms(60)
    asked, other = b"deliver-at %d" % at_ms, b"rescheduled %d" % (at_ms + 1)
    with DelayedTopic.connect(controlled.bootstrap, controlled.names.front) as orders:
        assert orders.reschedule("order-7", at_ms) is ChangeOutcome.REQUESTED
        assert written(controlled) == [(ID, asked)]
        with worker(controlled, other, b"cancelled", b"too-deep %d" % at_ms, asked=asked):
            found = orders.reschedule("order-7", at_ms, wait_seconds=PATIENCE_SECONDS)
    assert found is ChangeOutcome.TOO_DEEP


def test_who_asks_for_what_nobody_gets_is_told_before_anything_is_written(controlled: Served, served: Served) -> None:
    with DelayedTopic.connect(controlled.bootstrap, controlled.names.front) as orders:
        with pytest.raises(ValueError, match="deliver_at_ms must be at most 3600 s ahead"):
            orders.reschedule("order-7", in_ms(4000))
        with pytest.raises(ValueError, match="deliver_at_ms must be"):
            orders.reschedule("order-7", -1)
    assert written(controlled) == []
    plain = serve(served.connection, f"{served.names.front}-without-ladder", control=True)
    says = r"Set spec\.ladder of its DelayedTopic"
    with DelayedTopic.connect(plain.bootstrap, plain.names.front) as orders, pytest.raises(ValueError, match=says):
        orders.reschedule("order-7", in_ms(5))


@pytest.mark.slow
def test_the_command_line_says_what_became_of_it(controlled: Served) -> None:
    front, at_ms = controlled.names.front, in_ms(600) // 1000 * 1000
    asked = b"deliver-at %d" % at_ms
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))
    requested = run(controlled, "--deliver-at", moment)
    assert requested.exit_code == 0, requested.output
    assert requested.stdout.startswith(f"order-7 of {front}: requested. No worker has answered yet.")
    assert written(controlled) == [(ID, asked)]
    with worker(controlled, b"rescheduled %d" % at_ms, asked=asked):
        shown = run(controlled, "--deliver-at", moment, "--wait", str(PATIENCE_SECONDS))
    assert (shown.exit_code, shown.stdout) == (
        0,
        f"order-7 of {front}: rescheduled. The record has come out at that time, or waits for it\n",
    )
    with worker(controlled, b"too-late %d" % at_ms, asked=asked):
        late = run(controlled, "--deliver-at", moment, "--wait", str(PATIENCE_SECONDS))
    assert late.exit_code == 1
    assert late.output.startswith(
        f"Error: order-7 of {front}: too-late. A record with this id was released before workers read the request."
    )
