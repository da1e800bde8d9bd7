"""`redrive` sends each dead letter to the front topic once, even if the command is interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from delayed_topics.cli import main
from delayed_topics_client_testing import Copied, Served
from delayed_topics_core.headers import Header
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.commits import committed_offsets
from delayed_topics_worker_testing.foreign_client import produce_with_raw_header_key

pytestmark = pytest.mark.broker

DIES = """
import os, signal, sys
import confluent_kafka
from delayed_topics import transacting

by = getattr(signal, sys.argv.pop(1))

class Dies(confluent_kafka.Producer):
    committed = 0

    def commit_transaction(self, *args):
        if Dies.committed == 2:
            os.kill(os.getpid(), by)
        super().commit_transaction(*args)
        Dies.committed += 1

transacting.Producer = Dies
from delayed_topics.cli import main
main()
"""


WAITS = """
import sys
import confluent_kafka
from delayed_topics import transacting

class Waits(confluent_kafka.Producer):
    committed = 0

    def commit_transaction(self, *args):
        if Waits.committed == 1:
            print("waits", flush=True)
            sys.stdin.readline()
        super().commit_transaction(*args)
        Waits.committed += 1

transacting.Producer = Waits
from delayed_topics.cli import main
main()
"""


ABORTS = """
import sys
import confluent_kafka
from delayed_topics import transacting

when = sys.argv.pop(1)

class Aborts(confluent_kafka.Producer):
    def abort_transaction(self, *args):
        if when == "after":
            super().abort_transaction(*args)
        print("waits", flush=True)
        sys.stdin.readline()
        if when == "before":
            super().abort_transaction(*args)

transacting.Producer = Aborts
from delayed_topics.cli import main
main()
"""


def run(served: Served, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--bootstrap", served.bootstrap, "redrive", served.names.front, *arguments])


def bury(
    served: Served,
    value: bytes | None,
    *,
    reason: bytes | None = b"RetryCapExceeded",
    partition: int = 0,
    further: tuple[Header, ...] = (),
) -> None:
    """Writes a dead letter as workers and consumers do. Its root is offset 7 of front partition 2."""
    headers: list[Header] = [
        ("trace", b"1"),
        ("dt-attempt", b"5"),
        ("dt-root", b"f:2:7:topic-id"),
        ("dt-origin", b"r:2:9"),
        ("dt-due-at", b"1700000000000"),
        ("dt-error", b"OSError: no room"),
        *further,
    ]
    if reason is not None:
        headers.append(("dt-reason", reason))
    served.produce(served.names.dead_letter, value, partition=partition, key=b"k", headers=headers)


def bury_old(served: Served, value: bytes, *, partition: int = 0) -> None:
    """Writes a dead letter that is older than the time for which Kafka keeps the committed offsets of a group without members."""
    dead_letter = served.names.dead_letter
    settings = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    KafkaAdmin(served.connection).alter_topic_configs({dead_letter: settings})
    producer = Producer(served.connection.client_config())
    eight_days_ago_ms = int(time.time() * 1000) - 8 * 86_400_000
    headers: list[Header] = [("dt-reason", b"Rejected")]
    producer.produce(dead_letter, value, b"k", partition, timestamp=eight_days_ago_ms, headers=[*headers])
    assert producer.flush(60) == 0


def open_transactions(served: Served) -> bool:
    places = [(served.names.front, partition) for partition in range(3)]
    admin = KafkaAdmin(served.connection)
    return admin.list_offsets(places, "latest", isolation="read_committed") != admin.list_offsets(places, "latest")


def sent_again(served: Served) -> list[Copied]:
    return served.read(served.names.front)


def test_a_dead_letter_becomes_a_first_attempt_of_the_same_record_for_the_group_that_failed(served: Served) -> None:
    mine: tuple[Header, ...] = (
        ("dt-id", b"order-7"),
        ("dt-group", b"billing"),
        ("dt-created-at", b"1699999999999"),
        ("dt-target", b"elsewhere"),
        ("trace", b"2"),
    )
    bury(served, b"v", further=mine)

    shown = run(served)

    assert shown.exit_code == 0, shown.output
    assert (
        f"1 dead letter of {served.names.dead_letter} sent to {served.names.front}: 1 RetryCapExceeded" in shown.output
    )
    (copy,) = sent_again(served)
    assert (copy.key, copy.value, copy.partition) == (b"k", b"v", 2)
    assert copy.headers == [("trace", b"1"), *mine]


def test_each_is_sent_once_however_often_the_command_runs(served: Served) -> None:
    for n in range(1_200):
        bury(served, b"%d" % n, partition=n % 2)
    assert "1,200 dead letters" in run(served).output
    assert "0 dead letters" in run(served).output
    bury(served, b"new")
    assert "1 dead letter" in run(served).output

    expected = Counter([*(b"%d" % n for n in range(1_200)), b"new"])
    assert Counter(copy.value for copy in sent_again(served)) == expected


@pytest.mark.parametrize(
    ("by", "code"), [("SIGKILL", -signal.SIGKILL), pytest.param("SIGINT", 1, marks=pytest.mark.slow)]
)
def test_a_command_that_is_ended_in_the_middle_is_continued_without_a_loss_or_a_double(
    served: Served, by: str, code: int
) -> None:
    for n in range(2_000):
        bury(served, b"%d" % n, partition=n % 2)
    command = [sys.executable, "-c", DIES, by, "--bootstrap", served.bootstrap, "redrive", served.names.front]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == code, ended.stderr
    if by == "SIGINT":  # the command has aborted its transaction, so no reader waits for its end
        assert not open_transactions(served)
    assert len(sent_again(served)) == 1_000

    assert "1,000 dead letters" in run(served).output

    assert Counter(copy.value for copy in sent_again(served)) == Counter(b"%d" % n for n in range(2_000))


def test_what_kafka_no_longer_knows_to_be_sent_is_not_sent_again_unless_it_is_asked_for(served: Served) -> None:
    for n in range(3):
        bury_old(served, b"%d" % n, partition=n % 2)
    assert "3 dead letters" in run(served, "--from-beginning").output
    KafkaAdmin(served.connection).delete_groups([served.names.redrive_group])  # Kafka does the same after a week

    for arguments in ((), ("--dry-run",)):
        refused = run(served, *arguments)
        assert refused.exit_code == 1, refused.output
        assert "can't be known whether" in refused.output
        assert "Kafka forgets that 7 days after the last redrive" in refused.output
        assert "--assume-sent-until TIME" in refused.output
        assert "--from-beginning" in refused.output
    assert len(sent_again(served)) == 3

    bury(served, b"new")
    assert "1 dead letter of" in run(served, "--assume-sent-until", "1h").output
    bury(served, b"newer")
    assert "1 dead letter of" in run(served, "--assume-sent-until", "0s").output, "the position is known again"
    assert "0 dead letters" in run(served).output
    assert [copy.value for copy in sent_again(served)][3:] == [b"new", b"newer"]


def test_each_redrive_renews_the_positions_of_all_partitions(served: Served) -> None:
    admin, places = KafkaAdmin(served.connection), [(served.names.dead_letter, partition) for partition in range(2)]
    admin.commit(served.names.redrive_group, dict.fromkeys(places, OffsetAndMetadata(0, "")))
    bury(served, b"v")

    assert "1 dead letter of" in run(served).output

    committed = committed_offsets(served.connection, served.names.redrive_group, places)
    assert {place: at.metadata != "" for place, at in committed.items()} == dict.fromkeys(places, True)


@pytest.mark.parametrize("beginning", [(), ("--from-beginning",)])
def test_what_was_sent_for_one_reason_leaves_the_others_to_be_sent(served: Served, beginning: tuple[str, ...]) -> None:
    for n in range(2):
        bury(served, b"rejected %d" % n, reason=b"Rejected")
        bury(served, b"cap %d" % n)
        bury(served, b"cancelled %d" % n, reason=b"Cancelled")

    assert "2 dead letters of" in run(served, *beginning, "--reason", "RetryCapExceeded").output
    bury(served, b"cap 2")
    assert "1 dead letter of" in run(served, "--reason", "Rejected", "--count", "1").output
    assert "2 dead letters of" in (rest := run(served).output), rest
    assert "2 dead letters left: 2 Cancelled" in rest
    assert "0 dead letters of" in run(served).output
    assert "2 dead letters of" in run(served, "--reason", "Cancelled").output
    assert "0 dead letters of" in run(served, "--reason", "Cancelled", "--reason", "Rejected").output

    sent = [copy.value for copy in sent_again(served)]
    expected = ["cap 0", "cap 1", "rejected 0", "rejected 1", "cap 2", "cancelled 0", "cancelled 1"]
    assert sent == [value.encode() for value in expected]


def test_what_was_cancelled_or_has_lost_its_value_is_left_unless_it_is_asked_for(served: Served) -> None:
    bury(served, b"cancelled", reason=b"Cancelled")
    bury(served, None, reason=b"TooLarge")
    bury(served, b"foreign", reason=None)
    bury(served, b"rejected", reason=b"Rejected")

    first = run(served, "--json")
    assert json.loads(first.output) == {
        "sent": {"none": 1, "Rejected": 1},
        "left": {"Cancelled": 1, "TooLarge": 1},
        "dryRun": False,
    }
    asked = run(served, "--from-beginning", "--reason", "Cancelled", "--count", "1")
    assert "sent to" in asked.output
    assert "0 dead letters" in run(served).output
    assert [copy.value for copy in sent_again(served)] == [b"foreign", b"rejected", b"cancelled"]


@pytest.mark.slow
def test_a_dry_run_changes_nothing_and_a_count_sends_the_first_ones(served: Served) -> None:
    for n in range(5):
        bury(served, b"%d" % n)
    assert "5 dead letters" in (dry := run(served, "--dry-run").output)
    assert "would be sent" in dry
    assert sent_again(served) == []

    assert "2 dead letters" in run(served, "--count", "2").output
    assert [copy.value for copy in sent_again(served)] == [b"0", b"1"]
    assert "3 dead letters" in run(served).output
    assert [copy.value for copy in sent_again(served)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.slow
def test_a_named_dead_letter_is_sent_whenever_it_is_named(served: Served) -> None:
    for n in range(3):
        bury(served, b"%d" % n, reason=b"Cancelled")
    place = f"{served.names.dead_letter}-0@1"

    for _ in range(2):
        assert "1 dead letter" in run(served, place).output

    assert [copy.value for copy in sent_again(served)] == [b"1", b"1"]
    last = [f"{served.names.dead_letter}-0@{n}" for n in (0, 2)]
    assert "2 dead letters" in run(served, *last).output
    assert [copy.value for copy in sent_again(served)] == [b"1", b"1", b"0", b"2"]
    refused = run(served, f"{served.names.front}-0@1")
    assert (refused.exit_code, "is not in" in refused.output) == (2, True)
    beyond = run(served, f"{served.names.dead_letter}-0@3")
    assert (beyond.exit_code, "has no committed record at offset 3" in beyond.output) == (1, True)


@pytest.mark.slow
def test_a_header_that_no_client_can_write_leaves_its_dead_letter_where_it_is(served: Served) -> None:
    bury(served, b"good")
    produce_with_raw_header_key(
        served.connection, served.names.dead_letter, partition=0, key=b"k", value=b"odd", headers=[(b"caf\xe9", b"v")]
    )
    bury(served, b"too")

    assert "1 dead letter left: 1 none" in run(served).output
    assert [copy.value for copy in sent_again(served)] == [b"good", b"too"]


@pytest.mark.slow
def test_a_dead_letter_that_is_too_large_for_the_front_topic_is_left_and_its_neighbours_are_sent(
    served: Served,
) -> None:
    KafkaAdmin(served.connection).alter_topic_configs({served.names.front: {"max.message.bytes": "3000"}})
    for value in (b"before", os.urandom(5_000), b"after"):
        bury(served, value)

    shown = run(served).output

    assert "2 dead letters" in shown
    assert "1 dead letter left" in shown
    assert [copy.value for copy in sent_again(served)] == [b"before", b"after"]
    assert "0 dead letters" in run(served).output


@pytest.mark.slow
def test_of_a_dead_letter_topic_that_was_made_again_everything_is_sent(served: Served) -> None:
    admin = KafkaAdmin(served.connection)
    for n in range(3):
        bury(served, b"%d" % n)
    run(served)
    group = served.names.redrive_group
    former = committed_offsets(served.connection, group, [(served.names.dead_letter, 0)])
    admin.delete_topics([served.names.dead_letter])
    served.make(served.names.dead_letter, 2)
    # Kafka removes the offsets of a deleted topic, but a mirror may bring back a topic together with its former offsets
    admin.commit(group, former)
    for n in range(5):
        bury(served, b"new %d" % n)

    assert "5 dead letters" in run(served).output


@pytest.mark.slow
def test_a_second_redrive_ends_the_first_and_nothing_comes_twice(served: Served) -> None:
    for n in range(2_000):
        bury(served, b"%d" % n)
    command = [sys.executable, "-c", WAITS, "--bootstrap", served.bootstrap, "redrive", served.names.front]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"waits\n"
        assert "1,500 dead letters" in run(served).output
        _, said = first.communicate(b"\n")

    assert first.returncode == 1
    assert said.startswith(f"Error: this redrive of {served.names.front} has ended early".encode())
    assert b"Either another redrive of the topic has begun" in said
    assert Counter(copy.value for copy in sent_again(served)) == Counter(b"%d" % n for n in range(2_000))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_redrive_that_was_overtaken_at_a_dead_letter_that_is_too_large_sends_nothing_twice(
    served: Served, when: str
) -> None:
    KafkaAdmin(served.connection).alter_topic_configs({served.names.front: {"max.message.bytes": "3000"}})
    for value in (b"before", os.urandom(5_000), b"after"):
        bury(served, value)
    command = [sys.executable, "-c", ABORTS, when, "--bootstrap", served.bootstrap, "redrive", served.names.front]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"waits\n"
        assert "2 dead letters" in run(served).output
        _, said = first.communicate(b"\n\n\n")

    assert [copy.value for copy in sent_again(served)] == [b"before", b"after"]
    assert (first.returncode, b"Either another redrive of the topic has begun" in said) == (1, True), said


@pytest.mark.slow
def test_a_redrive_that_stood_still_until_kafka_ended_its_transaction_says_so_and_can_be_continued(
    served: Served,
) -> None:
    for n in range(600):
        bury(served, b"%d" % n)
    command = [sys.executable, "-c", WAITS, "--bootstrap", served.bootstrap, "redrive", served.names.front]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"waits\n"
        wait_until(lambda: not open_transactions(served), what="Kafka has ended the transaction", timeout_seconds=60)
        _, said = first.communicate(b"\n")

    assert (first.returncode, b"or this one stood still for more than 10 s" in said) == (1, True), said
    assert "100 dead letters" in run(served).output
    assert Counter(copy.value for copy in sent_again(served)) == Counter(b"%d" % n for n in range(600))
