"""`delayed-topics why` on records that the test writes. Records of real workers are in the tests of the worker."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType
from delayed_topics.cli import main
from delayed_topics.moments import parse_moment
from delayed_topics.way import RecordPlace
from delayed_topics_client_testing import Served, serve
from delayed_topics_core.headers import Header, Root
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core_testing import copies
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka_testing.rights import AUTHORIZER, rule

FAR_MS = 4_000_000_000_000
NAMES = TopicNames.of("orders")


def why(served: Served, *arguments: str) -> Result:
    command = ["--bootstrap", served.bootstrap, "why", served.names.front, *arguments]
    return CliRunner().invoke(main, command, env={"COLUMNS": "200"})


def attempts(served: Served, *arguments: str) -> list[dict[str, Any]]:
    result = why(served, "--json", *arguments)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["attempts"]
    return found


def way(attempt: dict[str, Any]) -> list[str]:
    return [f"{r['what']} {r['topic'].rpartition('.')[2]} {r['partition']}@{r['offset']}" for r in attempt["records"]]


def commit(served: Served, topic: str, offset: int, *, partition: int = 0) -> None:
    KafkaAdmin(served.connection).commit(served.layout.group, {(topic, partition): OffsetAndMetadata(offset)})


def hop(served: Served, root: Root, *, partition: int, due_at_ms: int = FAR_MS) -> None:
    headers = copies.hop([], root=root, origin=b"f:%d:%d" % root[1:3], due_at_ms=due_at_ms)
    served.produce(served.names.delays, b"v", partition=partition, headers=headers)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0@42", RecordPlace(topic="orders", partition=0, offset=42)),
        ("orders-0@42", RecordPlace(topic="orders", partition=0, offset=42)),
        ("orders.ready-3@1", RecordPlace(topic="orders.ready", partition=3, offset=1)),
        ("f:0:42:AbC-_1", RecordPlace(topic="orders", partition=0, offset=42, topic_id="AbC-_1")),
        ("d:7:1", RecordPlace(topic="orders.delays", partition=7, offset=1)),
        ("r:7:1", RecordPlace(topic="orders.ready", partition=7, offset=1)),
    ],
)
def test_a_place_is_spelled_as_headers_and_as_kafka_spell_it(text: str, place: RecordPlace) -> None:
    assert RecordPlace.parse(text, NAMES) == place


@pytest.mark.parametrize("text", ["", "42", "0@", "0@-1", "x:0:42", "f:0", "other-0@42", "0@42\n", "٣@1x"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a place of a record|is not one of the topics orders, orders\.delays"):
        RecordPlace.parse(text, NAMES)


def test_times_are_moments_or_how_long_ago() -> None:
    assert parse_moment("1970-01-01T00:00:01Z", now_ms=0) == 1000
    assert parse_moment("1970-01-01T01:00:01+01:00", now_ms=0) == 1000
    assert [parse_moment(t, now_ms=10**9) for t in ("9s", "1m", "2h", "3d")] == [
        10**9 - ms for ms in (9000, 60_000, 7_200_000, 259_200_000)
    ]
    for text in ("yesterday", "2026-11-25T04:00:00", "5w"):
        with pytest.raises(ValueError, match=f"'{text}' is not a time. Write either a time"):
            parse_moment(text, now_ms=0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name the record either by its place, such as 0@42, or by --id"),
        (["0@1", "--id", "x"], "name the record either by its place"),
        (["0@1", "--since", "1h"], "--since and --until can be used only with --id"),
        (["--id", "x", "--since", "1h", "--until", "2h"], "--since must be before --until"),
        (["--id", "x", "--since", "soon"], "'soon' is not a time"),
        (["first"], "'first' is not a place of a record. Write orders-0@42"),
    ],
)
def test_wrong_input_gets_a_sentence(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(main, ["--bootstrap", "127.0.0.1:1", "why", "orders", *arguments])
    assert (result.exit_code, says in result.output) == (2, True), result.output


@pytest.mark.slow
@pytest.mark.broker
def test_a_way_that_has_not_ended_says_until_when(served: Served) -> None:
    """The layout is 0-1 → 0 s, 2 → 600 s, 3 → 3600 s."""
    front, delays = served.names.front, served.names.delays
    for n in range(4):
        served.produce(front, b"secret", headers=[("dt-id", b"order-%d" % n), ("dt-delay-level", b"2")])

    (taken_in,) = attempts(served, "0@0")
    assert (taken_in["state"], way(taken_in)) == ("Pending", [f"came in {front} 0@0"])
    assert taken_in["due_at_ms"] == taken_in["records"][0]["appended_at_ms"] + 600_000

    commit(served, front, 2)
    (missing,) = attempts(served, "0@1")
    assert (missing["state"], way(missing)) == ("Missing", [f"came in {front} 0@1"])
    searched = why(served, "0@1")
    assert "Either retention removed its copies, or it is lost" in searched.stdout
    # the topics of copies are empty, so the command read nothing
    assert searched.stderr.startswith("Committed records only.")

    root = Root("f", 0, 0, "")
    hop(served, root, partition=2)
    (waiting,) = attempts(served, "--id", "order-0", "--since", "1d")
    assert (waiting["state"], waiting["due_at_ms"]) == ("Pending", FAR_MS)
    assert way(waiting) == [f"came in {front} 0@0", "hopped delays 2@0"]
    shown = why(served, "0@0")
    assert re.search(r"attempt 0, dt-id (f:0:0:|order-0): pending until 2096-10-02T07:06:40.000Z\n", shown.stdout)
    assert "secret" not in shown.output
    assert re.match(r"reading at most 4 offsets of orders-\w+\n", why(served, "--id", "order-0").stderr)
    assert "value secret" in why(served, "0@0", "--show-value").stdout

    # if the current layout would not send a record to where it went, the command searches all partitions once its offset is committed
    hop(served, Root("f", 0, 1, ""), partition=3)
    served.write_layout(replace(served.layout, ready_partitions=2))
    served.produce(
        served.names.ready,
        b"v",
        partition=2,
        headers=copies.release([], root=root._replace(offset=1), origin=b"d:3:0", due_at_ms=FAR_MS, released_at_ms=1),
    )
    commit(served, delays, 1, partition=3)
    (early,) = attempts(served, "0@1")
    assert (early["state"], way(early)[1:]) == ("Released", ["hopped delays 3@0", "released ready 2@0"])
    assert "ms before its due time" in why(served, "0@1").stdout


@pytest.mark.broker
def test_a_retry_is_not_due_when_the_attempt_before_was(served: Served) -> None:
    """A retry has all headers of the released record. In the front topic, those that workers write have no meaning."""
    headers: list[Header] = [("dt-due-at", b"1"), ("dt-deliver-at", b"%d" % FAR_MS)]
    served.produce(served.names.front, b"v", headers=headers)
    (waits,) = attempts(served, "0@0")
    assert waits["due_at_ms"] == FAR_MS


@pytest.mark.broker
def test_a_record_that_came_out_in_another_ready_topic_is_found_there(served: Served) -> None:
    invoices = f"{served.names.front}.invoices"
    served.make(invoices, 4)
    served.write_layout(replace(served.layout, ready_topics=(AllowedTopic(invoices, 0),)))
    for target, partition in ((invoices, 1), (f"{invoices}:2", 2)):
        asked: list[Header] = [("dt-target", target.encode())]
        root = Root("f", 1, partition - 1, "")
        served.produce(served.names.front, b"v", partition=1, headers=asked)
        headers = copies.release(
            asked, root=root, origin=b"f:1:%d" % (partition - 1), due_at_ms=FAR_MS, released_at_ms=FAR_MS
        )
        served.produce(invoices, b"v", partition=partition, headers=headers)
    commit(served, served.names.front, 2, partition=1)
    for offset in (0, 1):
        (found,) = attempts(served, f"1@{offset}")
        assert found["state"] == "Released"
        assert way(found)[1] == f"released invoices {offset + 1}@0"


@pytest.mark.broker
def test_a_record_that_asks_for_a_partition_that_is_missing_is_still_pending(served: Served) -> None:
    invoices = f"{served.names.front}.invoices"
    served.make(invoices, 4)
    served.write_layout(replace(served.layout, ready_topics=(AllowedTopic(invoices, 0),)))
    served.produce(served.names.front, b"v", partition=1, headers=[("dt-target", f"{invoices}:9".encode())])
    (waits,) = attempts(served, "1@0")
    assert waits["state"] == "Pending"


@pytest.mark.slow
@pytest.mark.broker
def test_ready_topics_that_the_user_may_not_see_matter_only_to_records_that_ask_for_them() -> None:
    with Broker(settings={**AUTHORIZER, **PATIENT}) as broker:
        served = serve(Connection(bootstrap_servers=broker.bootstrap), "orders")
        served.make("invoices", 1)
        served.write_layout(replace(served.layout, ready_topics=(AllowedTopic("invoices", 0),)))
        rule(served.connection, ResourceType.TOPIC, "invoices", [AclOperation.DESCRIBE, AclOperation.READ])
        asks: list[list[Header]] = [[], [("dt-target", b"invoices")]]
        for headers in asks:
            served.produce("orders", b"v", headers=headers)
        commit(served, "orders", 2)
        assert attempts(served, "0@0")[0]["state"] == "Missing"
        refused = why(served, "0@1")
        assert (refused.exit_code, "topic invoices" in refused.output) == (1, True), refused.output


@pytest.mark.broker
def test_copies_that_came_twice_and_rejections_are_shown(served: Served) -> None:
    front, ready = served.names.front, served.names.ready
    served.produce(front, b"v", headers=[])
    commit(served, front, 1)
    served.release(b"v")
    served.release(b"v")
    root = Root("f", 0, 0, "topic-id")
    rejected = copies.dead_letter(
        [], root=root, origin=b"r:0:1", reason=DeadLetterReason.REJECTED, error=b"no such\x1b[2J customer"
    )
    served.produce(served.names.dead_letter, b"v", headers=rejected)
    came_in, dead = f"came in {front} 0@0", "dead-lettered dead 0@0"

    (first,) = attempts(served, "0@0")
    assert (first["state"], way(first)) == ("Released", [came_in, "released ready 0@0"])
    (all_of_it,) = attempts(served, "0@0", "--all-copies")
    assert way(all_of_it) == [came_in, "released ready 0@0", "released ready 0@1", dead]
    assert all_of_it["state"] == "DeadLettered"
    # the root has the id of a topic that no longer exists, so the way begins with the copy
    shown = why(served, f"{ready}-0@1")
    assert r"Rejected; no such\x1b[2J customer" in shown.stdout
    assert re.match(rf"{ready}-0@1, attempt 0, dt-id f:0:0:topic-id: a dead letter\n", shown.stdout)


@pytest.mark.broker
def test_a_cancelled_record_is_said_to_be(served: Served) -> None:
    front, delays, dead = served.names.front, served.names.delays, served.names.dead_letter
    served.produce(front, b"v", headers=[("dt-delay-level", b"2")])
    root = Root("f", 0, 0, "topic-id")
    hop(served, root, partition=2, due_at_ms=1)
    cancelled = copies.dead_letter(
        [], root=root, origin=b"d:2:0", reason=DeadLetterReason.CANCELLED, error=b"by its id"
    )
    served.produce(dead, b"v", headers=cancelled)
    commit(served, front, 1)
    commit(served, delays, 1, partition=2)

    (told,) = attempts(served, "0@0")
    assert way(told) == [f"came in {front} 0@0", "hopped delays 2@0", "dead-lettered dead 0@0"]
    assert told["state"] == "Cancelled"
    shown = why(served, "0@0").stdout
    assert f"{front}-0@0, attempt 0, dt-id f:0:0:topic-id: a dead letter, because it was cancelled\n" in shown
    assert f"{dead}-0@0  Cancelled; by its id\n" in shown

    # after a crash of a worker, the record may have been released as well, and its consumer may have rejected it
    served.release(b"v")
    rejected = copies.dead_letter([], root=root, origin=b"r:0:0", reason=DeadLetterReason.REJECTED, error=b"no")
    served.produce(dead, b"v", headers=rejected)
    assert [found["state"] for found in attempts(served, "0@0", "--all-copies")] == ["DeadLettered"]


@pytest.mark.broker
def test_records_that_are_not_there_are_said_to_be(served: Served) -> None:
    front = served.names.front
    served.produce(front, b"v", headers=[])
    for place, says in {
        "9@0": rf"{front} has no partition 9\. It has 3 partitions, counted from 0",
        "0@7": rf"{front} \[0\] has no committed record at offset 7\. It has committed records from offset 0 to 0",
        "1@0": rf"{front} \[1\] has no committed record at offset 0\. It has no committed records",
        "f:0:0:another": f"the record was in a former topic {front} with the id another",
    }.items():
        result = why(served, place)
        assert result.exit_code == 1
        assert re.search(f"^Error: .*{says}", result.output), result.output
    with pytest.raises(AssertionError, match="in the time that was searched"):
        attempts(served, "--id", "order-1", "--until", "1970-01-01T00:00:01Z")
    result = why(served, "--id", "order-1")
    assert result.stderr.startswith("Error: ")  # the command does not announce that it reads a single offset
    assert f"{front} has no committed record with the dt-id 'order-1'" in result.output


@pytest.mark.broker
def test_a_record_in_a_topic_that_was_made_again_is_not_missing_because_the_former_one_was_further(
    served: Served,
) -> None:
    front = served.names.front
    served.produce(front, b"v", headers=[])
    former = OffsetAndMetadata(1, "dt1::AAAAAAAAAAAAAAAAAAAAAA")
    for committed in (former, OffsetAndMetadata(9)):
        KafkaAdmin(served.connection).commit(served.layout.group, {(front, 0): committed})
        (attempt,) = attempts(served, "0@0")
        assert attempt["state"] == "Pending"


@pytest.mark.broker
def test_only_committed_records_are_read(served: Served) -> None:
    front = served.names.front
    producer = Producer({**served.connection.client_config(), "transactional.id": f"test-{front}"})
    producer.init_transactions(60)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(front, b"v", partition=0, headers=[("dt-id", b"order-1")])
        assert producer.flush(60) == 0  # otherwise the abort would drop the record before it is sent
        end(60)
    assert len(served.read(front)) == 1  # waits for the transaction markers, which Kafka writes after its answer
    aborted, _, committed, _ = range(4)
    assert way(*attempts(served, f"0@{committed}")) == [f"came in {front} 0@{committed}"]
    assert [way(found) for found in attempts(served, "--id", "order-1")] == [[f"came in {front} 0@{committed}"]]
    assert "the mark of a transaction, or to a transaction that was aborted" in why(served, f"0@{aborted}").stderr


@pytest.mark.broker
def test_a_place_in_a_partition_that_somebody_has_added_is_said_to_belong_to_no_layout(served: Served) -> None:
    KafkaAdmin(served.connection).create_partitions({served.names.delays: 6})
    served.produce(served.names.delays, b"v", partition=5, headers=[])

    shown = why(served, f"{served.names.delays}-5@0")

    assert shown.exit_code == 1
    assert f"Error: somebody added partition 5 of {served.names.delays}" in shown.output
