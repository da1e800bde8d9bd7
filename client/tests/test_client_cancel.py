"""Cancelling records. The test plays the worker and writes its answers."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AclOperation, ResourceType
from delayed_topics import ChangeOutcome, DelayedTopic, SendFailed
from delayed_topics.cli import main
from delayed_topics_client_testing import Served, serve
from delayed_topics_client_testing.control import worker, write, written
from delayed_topics_core.control import ControlKind
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import NotAuthorized
from delayed_topics_kafka_testing.rights import AUTHORIZER, deny_only, lift

pytestmark = pytest.mark.broker

ANSWERS = [
    ControlKind.CANCELLED,
    ControlKind.TOO_LATE,
    ControlKind.NOT_FOUND,
    ControlKind.NOT_UNDERSTOOD,
    ControlKind.NO_ROOM,
]
PATIENCE_SECONDS = 120


@pytest.fixture
def controlled(served: Served) -> Served:
    return serve(served.connection, f"{served.names.front}-controlled", control=True)


def cancel(served: Served, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--bootstrap", served.bootstrap, "cancel", served.names.front, *arguments])


def test_a_request_and_its_withdrawal_are_written_under_the_id_of_the_record(controlled: Served) -> None:
    with DelayedTopic.connect(controlled.bootstrap, controlled.names.front) as orders:
        for record_id in ("order-7", "f:3:7:AbC-_1", "i" * 256):
            assert orders.cancel(record_id) is ChangeOutcome.REQUESTED
            assert written(controlled)[-1] == (record_id.encode(), b"cancel")
        orders.withdraw("order-7")
        assert written(controlled)[-1] == (b"order-7", None)


def test_what_a_worker_answers_is_returned(controlled: Served) -> None:
    """The answer to the previous request is in the control topic each time, and must not pass for the answer to this one."""
    with DelayedTopic.connect(controlled.bootstrap, controlled.names.front) as orders:
        for answer in ANSWERS:
            with worker(controlled, answer.encode()):
                assert orders.cancel("order-7", wait_seconds=PATIENCE_SECONDS) == answer.value


@pytest.mark.slow
def test_answers_to_earlier_requests_and_of_other_ids_are_not_waited_for_longer_than_was_said(
    controlled: Served,
) -> None:
    write(controlled, b"cancelled")
    with DelayedTopic.connect(controlled.bootstrap, controlled.names.front) as orders, ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        waiting = pool.submit(orders.cancel, "order-7", wait_seconds=10)
        wait_until(lambda: (b"order-7", b"cancel") in written(controlled), what="the request is in the control topic")
        write(controlled, b"cancelled", key=b"order-8")
        assert waiting.result() is ChangeOutcome.REQUESTED
        assert time.monotonic() - began > 10


def test_everybody_who_cancels_a_record_is_told_what_became_of_it(controlled: Served) -> None:
    with (
        DelayedTopic.connect(controlled.bootstrap, controlled.names.front) as orders,
        ThreadPoolExecutor(5) as pool,
        worker(controlled, b"cancelled", requests=5),
    ):
        outcomes = [pool.submit(orders.cancel, "order-7", wait_seconds=PATIENCE_SECONDS) for _ in range(5)]
        assert [outcome.result() for outcome in outcomes] == [ChangeOutcome.CANCELLED] * 5


@pytest.mark.slow
def test_a_request_that_somebody_withdraws_may_be_answered_all_the_same(controlled: Served) -> None:
    with DelayedTopic.connect(controlled.bootstrap, controlled.names.front) as orders:
        with worker(controlled, None, b"cancelled"):
            assert orders.cancel("order-7", wait_seconds=PATIENCE_SECONDS) is ChangeOutcome.CANCELLED
        with worker(controlled, None, b"what is no answer"):
            assert orders.cancel("order-7", wait_seconds=10) is ChangeOutcome.REPLACED


def test_ids_that_no_record_has_are_refused(controlled: Served) -> None:
    with DelayedTopic.connect(controlled.bootstrap, controlled.names.front) as orders:
        for wrong in ("", "größe", "i" * 257):
            for refuse in (orders.cancel, orders.withdraw):
                with pytest.raises(ValueError, match="id must be 1 to 256 ASCII characters"):
                    refuse(wrong)
    assert written(controlled) == []


def test_without_a_control_topic_it_is_said_how_to_get_one(served: Served) -> None:
    says = f"{served.names.front} has no control topic. Set spec.control of its DelayedTopic"
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        for refuse in (orders.cancel, orders.withdraw):
            with pytest.raises(ValueError, match=says):
                refuse("order-7")
    shown = cancel(served, "order-7")
    assert (shown.exit_code, f"Error: {says}" in shown.output) == (2, True), shown.output


@pytest.mark.slow
def test_why_kafka_did_not_take_a_request_is_said() -> None:
    with Broker(settings={**AUTHORIZER, **PATIENT, "auto.create.topics.enable": "false"}) as broker:
        connection = Connection(bootstrap_servers=broker.bootstrap)
        served = serve(connection, "orders", control=True)
        with DelayedTopic.connect(served.bootstrap, "orders") as orders:
            deny_only(connection, ResourceType.TOPIC, "orders.control", AclOperation.WRITE)
            with pytest.raises(
                SendFailed,
                match=r"^writing to orders\.control failed because Kafka at .* refused it .*\. Either grant this to",
            ):
                orders.cancel("order-7")
            lift(connection, ResourceType.TOPIC, "orders.control")
            assert orders.cancel("order-7") is ChangeOutcome.REQUESTED

            deny_only(connection, ResourceType.TOPIC, "orders.control", AclOperation.READ)
            with pytest.raises(NotAuthorized, match=r"^reading orders\.control failed because Kafka at .* refused it "):
                orders.cancel("order-8", wait_seconds=PATIENCE_SECONDS)
            lift(connection, ResourceType.TOPIC, "orders.control")
        assert written(served) == [(b"order-7", b"cancel"), (b"order-8", b"cancel")]

        refunds = serve(connection, "refunds")
        refunds.write_layout(replace(refunds.layout, control=True))
        shown = cancel(refunds, "order-7")
        assert (shown.exit_code, shown.output[:58]) == (1, "Error: writing to refunds.control failed because Kafka at ")
        assert "nknown topic" in shown.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "exit_code", "line"),
    [
        ("cancelled", 0, "order-7 of {0}: cancelled. The record is in {0}.dead"),
        (
            "not-found",
            0,
            "order-7 of {0}: not-found. Workers have met no record with this id. The request stays in force",
        ),
        (
            "too-late",
            1,
            "Error: order-7 of {0}: too-late. A record with this id was released before workers read the request. The request stays",
        ),
        ("no-room", 1, "Error: order-7 of {0}: no-room. Workers accept no more requests in {0}.control. Withdraw some"),
        (
            "not-understood",
            1,
            "Error: order-7 of {0}: not-understood. Somebody has written another value over the request in {0}.control",
        ),
    ],
)
def test_the_command_line_says_what_became_of_it(controlled: Served, answer: str, exit_code: int, line: str) -> None:
    with worker(controlled, answer.encode()):
        shown = cancel(controlled, "order-7", "--wait", str(PATIENCE_SECONDS))
    assert shown.exit_code == exit_code, shown.output
    assert shown.output.startswith(line.format(controlled.names.front))
    assert shown.output.count("\n") == 1


def test_the_command_line_requests_and_withdraws_without_waiting(controlled: Served) -> None:
    front = controlled.names.front
    requested = cancel(controlled, "order-7")
    assert requested.exit_code == 0
    assert requested.stdout.startswith(
        f"order-7 of {front}: requested. No worker has answered yet. A worker answers in {front}.control when"
    )
    withdrawn = cancel(controlled, "order-7", "--withdraw")
    assert (withdrawn.exit_code, withdrawn.stdout) == (
        0,
        f"order-7 of {front}: withdrawn. Records with this id are released when they are due\n",
    )
    assert written(controlled) == [(b"order-7", b"cancel"), (b"order-7", None)]
    assert cancel(controlled, "order-7", "--withdraw", "--wait", "1").exit_code == 2
    assert "id must be 1 to 256 ASCII characters" in cancel(controlled, "i" * 257).output


def test_programs_get_the_outcome_as_json(controlled: Served) -> None:
    expected = {"topic": controlled.names.front, "id": "order-7"}
    assert json.loads(cancel(controlled, "order-7", "--json").stdout) == {**expected, "outcome": "requested"}
    with worker(controlled, b"too-late"):
        shown = cancel(controlled, "order-7", "--json", "--wait", str(PATIENCE_SECONDS))
    assert (shown.exit_code, json.loads(shown.stdout)) == (1, {**expected, "outcome": "too-late"})
