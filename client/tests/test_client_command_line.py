import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from delayed_topics import DelayedTopic
from delayed_topics.cli import main
from delayed_topics_client_testing import Served
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_kafka.admin import KafkaAdmin

FINISHED = "dt1:eJxjBgAABAAE"
"""The metadata of a commit at offset 1: above it, offsets 2 and 3 are finished."""


def run(*arguments: str, text: str | bytes | None = None, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=text, env={"COLUMNS": "120", "KAFKA_BOOTSTRAP": "", **(env or {})})


@pytest.mark.broker
def test_records_are_sent_from_arguments_and_from_lines(served: Served) -> None:
    bootstrap, topic = ("--bootstrap", served.bootstrap), served.names.front
    options = ("--key", "k", "--header", "trace=1=2", "--delay-level", "2", "--id", "order-7")
    assert "1 sent to" in run(*bootstrap, "send", topic, "one", *options).output
    assert "2 sent to" in run("send", topic, text="two\nthree\n", env={"KAFKA_BOOTSTRAP": served.bootstrap}).output
    copies = {c.value: c for c in served.read(topic)}
    assert set(copies) == {b"one", b"two", b"three"}
    one = copies[b"one"]
    assert (one.key, one.said) == (b"k", {"trace": b"1=2", "dt-delay-level": b"2", "dt-id": b"order-7"})


@pytest.mark.broker
def test_records_are_printed_with_attempt_and_lateness(served: Served) -> None:
    served.release(b"v", attempt=2, number=7)
    shown = run("--bootstrap", served.bootstrap, "consume", served.names.front, "--group", "looks", "--count", "1")
    assert shown.exit_code == 0
    pattern = rf"{served.names.ready} \[0\] 0  attempt 2  late \d+ ms  id f:0:7:topic-id  key k  value v\n"
    assert re.fullmatch(pattern, shown.output)


@pytest.mark.broker
def test_no_part_of_a_record_controls_the_terminal_on_which_it_is_printed(served: Served) -> None:
    erase = b"\x1b[2J"
    served.produce(served.names.ready, erase, headers=[("dt-id", erase)])
    shown = run("--bootstrap", served.bootstrap, "consume", served.names.front, "--group", "looks", "--count", "1")
    assert r"id \x1b[2J" in shown.output
    assert "\x1b" not in shown.output


@pytest.mark.broker
def test_an_output_that_is_closed_ends_the_command_and_has_no_record_retried(served: Served) -> None:
    for n in range(1_500):  # more than a pipe can hold
        served.release(b"v", number=n)
    command = ("consume", served.names.front, "--group", "looks")
    with subprocess.Popen(
        [sys.executable, "-m", "delayed_topics", "--bootstrap", served.bootstrap, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as printing:
        assert printing.stdout is not None
        assert printing.stderr is not None
        assert "[0] 0 " in printing.stdout.readline()
        printing.stdout.close()
        assert "Traceback" not in printing.stderr.read()
    assert printing.returncode == 1
    assert [copy for copy in served.read(served.names.front) if "dt-group" in copy.said] == []


def table(shown: Result) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.output.splitlines() if "│" in line]


@pytest.mark.broker
def test_the_status_counts_what_waits_and_what_is_due(served: Served) -> None:
    """The layout is 0-1 → 0 s, 2 → 600 s, 3 → 3600 s. The wait of a record begins when the test produces it."""
    front, delays = served.names.front, served.names.delays
    for partition, count in ((0, 3), (2, 5), (3, 2)):
        for _ in range(count):
            served.produce(delays, b"x", partition=partition, headers=[])
    for _ in range(4):
        served.produce(front, b"x", headers=[])
    served.release(b"x")
    starts = {(front, p): OffsetAndMetadata(0) for p in range(3)} | {
        (delays, p): OffsetAndMetadata(0) for p in range(3)
    }
    # of the five records in partition 2, offset 0 is committed, and 2 and 3 are finished above the commit
    starts[delays, 2] = OffsetAndMetadata(1, FINISHED)
    starts[front, 0] = OffsetAndMetadata(3)
    KafkaAdmin(served.connection).commit(served.layout.group, starts)
    shown = run("--bootstrap", served.bootstrap, "status", front)
    assert shown.exit_code == 0, shown.output
    assert table(shown) == [
        ["", "front", "0-2", "1", "1", "0", "0", "0", "0", "0"],
        ["0 s", "main", "0-1", "3", "3", "0", "0", "0", "0", "0"],
        ["600 s", "delay", "2", "2", "0", "0", "2", "0", "0", "0"],
        ["3600 s", "delay", "3", "-", "-", "-", "-", "-", "-", "-"],
    ]
    parsed = json.loads(run("--bootstrap", served.bootstrap, "status", front, "--json").output)
    assert parsed["front"] == {
        "waiting": 1,
        "due_within_seconds": dict.fromkeys(("0", "60", "600", "3600", "86400"), 1),
    }
    (of_600_s,) = [kind for kind in parsed["delays"] if kind["delay_seconds"] == 600]
    assert (of_600_s["role"], of_600_s["partitions"], of_600_s["waiting"]) == ("delay", "2", 2)
    assert of_600_s["due_within_seconds"] == {"0": 0, "60": 0, "600": 2, "3600": 2, "86400": 2}
    assert "generation 1, retry cap 3, releasing, of shop/orders" in shown.output
    assert f"Workers: 0 in group {served.layout.group}" in shown.output
    assert "Records in the ready topic: 1, dead letters: 0" in shown.output


UNKNOWN = ["-"] * 7
NOTHING = ["0"] * 7


def fill(served: Served, commits: dict[tuple[str, int], OffsetAndMetadata]) -> None:
    """Writes ten records into each partition of the delays topic, none into the front topic, and commits. The layout is 0-1 → 0 s,
    2 → 600 s, 3 → 3600 s."""
    front, delays = served.names.front, served.names.delays
    for partition in range(4):
        for _ in range(10):
            served.produce(delays, b"x", partition=partition, headers=[])
    of_front = {(front, partition): OffsetAndMetadata(0) for partition in range(3)}
    KafkaAdmin(served.connection).commit(served.layout.group, of_front | commits)


@pytest.mark.broker
def test_the_status_does_not_count_partitions_of_which_it_is_not_known_what_waits_as_empty(served: Served) -> None:
    delays = served.names.delays
    fill(
        served,
        {
            (delays, 0): OffsetAndMetadata(4),  # partition 1 has no committed offset
            (delays, 2): OffsetAndMetadata(0, "dt1::AAAAAAAAAAAAAAAAAAAAAA"),
            (delays, 3): OffsetAndMetadata(11),
        },
    )

    shown = run("--bootstrap", served.bootstrap, "status", served.names.front)

    assert shown.exit_code == 0, shown.output
    assert table(shown) == [
        ["", "front", "0-2", *NOTHING],
        ["0 s", "main", "0-1", *UNKNOWN],
        ["600 s", "delay", "2", *UNKNOWN],
        ["3600 s", "delay", "3", *UNKNOWN],
    ]
    notes = [line for line in shown.output.splitlines() if "it is not known what waits" in line]
    assert [re.split(r": it is not known what waits, because |\. Either", note)[:2] for note in notes] == [
        [f"{delays} [1]", "there is no committed offset"],
        [f"{delays} [2]", "the committed offset is of another topic, which had this name before"],
        [f"{delays} [3]", "the committed offset 11 is above the end 10"],
    ]
    parsed = json.loads(run("--bootstrap", served.bootstrap, "status", served.names.front, "--json").output)
    assert [kind["waiting"] for kind in parsed["delays"]] == [None, None, None]
    assert parsed["front"]["waiting"] == 0
    assert [f"{n['topic']} [{n['partitions']}]: {n['message']}" for n in parsed["notes"]] == notes


@pytest.mark.broker
def test_the_status_names_records_that_were_removed_and_does_not_count_them_as_waiting(served: Served) -> None:
    delays = served.names.delays
    fill(served, {(delays, p): OffsetAndMetadata(2) for p in range(4)} | {(delays, 2): OffsetAndMetadata(1, FINISHED)})
    client = AdminClient(served.connection.client_config())
    for deleted in client.delete_records([TopicPartition(delays, p, 6) for p in (1, 2)]).values():
        deleted.result(60)

    shown = run("--bootstrap", served.bootstrap, "status", served.names.front)

    assert [row[3:5] for row in table(shown)] == [["0", "0"], ["12", "12"], ["4", "0"], ["8", "0"]]
    assert f"{delays} [1]: 4 offsets from 2 on were removed before they were released\n" in shown.output
    assert f"{delays} [2]: 3 offsets from 1 on were removed before they were released\n" in shown.output
    assert f"{delays} [0]" not in shown.output


@pytest.mark.broker
def test_the_status_does_not_say_of_a_topic_that_is_gone_that_it_is_empty(served: Served) -> None:
    ready, dead_letter = served.names.ready, served.names.dead_letter
    fill(served, {(served.names.delays, p): OffsetAndMetadata(0) for p in range(4)})
    KafkaAdmin(served.connection).delete_topics([ready, dead_letter])

    shown = run("--bootstrap", served.bootstrap, "status", served.names.front)

    assert "Records in the ready topic: -, dead letters: -\n" in shown.output
    assert f"{ready}: it does not exist\n{dead_letter}: it does not exist\n" in shown.output
    parsed = json.loads(run("--bootstrap", served.bootstrap, "status", served.names.front, "--json").output)
    assert (parsed["ready"], parsed["dead_letters"]) == (None, None)


@pytest.mark.broker
def test_what_comes_next_in_a_topic_that_was_made_again_is_shown_although_the_former_was_further(
    served: Served,
) -> None:
    delays = served.names.delays
    fill(served, {(delays, p): OffsetAndMetadata(10) for p in range(3)} | {(delays, 3): OffsetAndMetadata(11)})

    shown = run("--bootstrap", served.bootstrap, "peek", served.names.front, "-n", "1")

    assert f"  {delays}-3@0  3600 s  " in shown.output
    assert f"{delays} [3]: it is not known what waits" in shown.stderr


@pytest.mark.broker
def test_what_comes_next_is_shown_soonest_first_and_without_its_content(served: Served) -> None:
    """The layout is 0-1 → 0 s, 2 → 600 s, 3 → 3600 s."""
    bootstrap, front, delays = ("--bootstrap", served.bootstrap), served.names.front, served.names.delays
    assert f"Nothing waits in {delays}." in run(*bootstrap, "peek", front).output
    for number in range(4):
        served.produce(delays, b"secret %d" % number, partition=2, headers=[("dt-id", b"order-%d" % number)])
    served.produce(delays, b"an hour", partition=3, headers=[])
    # of the four records in partition 2, offset 0 is committed, and 2 and 3 are finished above the commit
    KafkaAdmin(served.connection).commit(
        served.layout.group, {(delays, 2): OffsetAndMetadata(1, FINISHED), (delays, 3): OffsetAndMetadata(0)}
    )
    served.produce(delays, b"secret 4", partition=2, headers=[("dt-due-at", b"1790000000000"), ("dt-id", b"order-4")])

    shown = run(*bootstrap, "peek", front).output.splitlines()

    assert [line.split("  ")[1] for line in shown] == [f"{delays}-2@4", f"{delays}-2@1", f"{delays}-3@0"]
    assert shown[0].startswith("due since 2026-09-21T14:13:20.000Z  ")
    assert shown[0].endswith("  600 s  attempt 0  dt-id order-4")
    assert "secret" not in "".join(shown)
    assert "value secret 1" in run(*bootstrap, "peek", front, "--show-value").output
    assert len(run(*bootstrap, "peek", front, "-n", "1").output.splitlines()) == 1
    assert run(*bootstrap, "peek", front, "--delay", "3600").output.splitlines() == shown[2:]
    assert run(*bootstrap, "peek", front, "--partition", "3").output.splitlines() == shown[2:]
    (parsed,) = json.loads(run(*bootstrap, "peek", front, "--delay", "3600", "--json").output)
    assert (parsed["partition"], parsed["offset"], parsed["due_at_ms"] - parsed["appended_at_ms"]) == (3, 0, 3_600_000)
    assert (
        "has no partition for a delay of 7 s. It has partitions for 0 s, 600 s, 3600 s"
        in run(*bootstrap, "peek", front, "--delay", "7").output
    )
    assert (
        "has no partition 9. It has 4 partitions, counted from 0"
        in run(*bootstrap, "peek", front, "--partition", "9").output
    )


@pytest.mark.broker
def test_the_marks_of_transactions_are_no_backlog(served: Served) -> None:
    front = served.names.front
    served.release(b"v")
    with DelayedTopic.connect(served.bootstrap, front) as topic, topic.records("shipping") as records:
        for record in records:
            records.retry(record, TimeoutError("slow"))
            records.stop()
    (copy,) = served.read(front)
    starts = {(front, p): OffsetAndMetadata(0) for p in range(3)}
    starts[front, copy.partition] = OffsetAndMetadata(1)
    KafkaAdmin(served.connection).commit(served.layout.group, starts)
    ends = KafkaAdmin(served.connection).list_offsets([(front, copy.partition)], "latest")
    assert ends == {(front, copy.partition): 2}  # the copy and the transaction marker
    shown = run("--bootstrap", served.bootstrap, "status", front).output
    assert re.search(r"front │ 0-2 +│ +0 │ +0 │", shown)


@pytest.mark.broker
def test_properties_come_from_a_file(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# how to reach it\nbootstrap.servers={served.bootstrap}\n\nclient.id = shop\n")
    assert run("--config", str(file), "send", served.names.front, "x").exit_code == 0


@pytest.mark.parametrize("line", ["sasl.password {}", "{}", "-----BEGIN {}-----", "sasl.password: {}=", "{}/+=="])
def test_a_line_of_the_properties_that_can_not_be_read_is_named_and_not_shown(tmp_path: Path, line: str) -> None:
    """The line may contain a password or part of a key."""
    file = tmp_path / "client.properties"
    file.write_text(f"# how to reach it\nbootstrap.servers=127.0.0.1:1\n{line.format('s3cr3t')}\n")
    shown = run("--config", str(file), "status", "x")
    assert (shown.exit_code, f"line 3 of {file} must be name=value" in shown.output) == (2, True), shown.output
    assert "s3cr3t" not in shown.output


@pytest.mark.broker
@pytest.mark.parametrize("named", ["bootstrap.servers", "metadata.broker.list"])
def test_the_address_in_a_file_is_used_and_not_that_of_the_environment(
    served: Served, tmp_path: Path, named: str
) -> None:
    """The file has the password of its own cluster, which must not be sent to another one."""
    file = tmp_path / "client.properties"
    file.write_text(f"{named}={served.bootstrap}\n")
    left_over = {"KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    assert run("--config", str(file), "send", served.names.front, "x", env=left_over).exit_code == 0
    file.write_text(f"{named}=127.0.0.1:1\n")
    shown = run("--config", str(file), "--bootstrap", served.bootstrap, "send", served.names.front, "x", env=left_over)
    assert shown.exit_code == 0, shown.output


@pytest.mark.broker
def test_values_keys_and_headers_are_bytes_of_any_kind(served: Served) -> None:
    bootstrap, topic = ("--bootstrap", served.bootstrap), served.names.front
    assert "3 sent to" in run(*bootstrap, "send", topic, text=b"one\n\xff two\r\n\n").output
    given = [os.fsdecode(word) for word in (b"\xfe", b"k\xff", b"trace=\xfd=1")]
    shown = run(*bootstrap, "send", topic, given[0], "--key", given[1], "--header", given[2])
    assert shown.exit_code == 0, shown.output
    copies = {c.value: c for c in served.read(topic)}
    assert set(copies) == {b"one", b"\xff two", b"", b"\xfe"}
    assert (copies[b"\xfe"].key, copies[b"\xfe"].said) == (b"k\xff", {"trace": b"\xfd=1"})

    shown = run(*bootstrap, "send", topic, "x", "--header", os.fsdecode(b"\xff=1"))
    assert (shown.exit_code, "must have a name in UTF-8" in shown.output) == (2, True), shown.output
    shown = run(*bootstrap, "why", topic, "--id", os.fsdecode(b"\xff"))
    assert (shown.exit_code, "has no committed record with the dt-id" in shown.output) == (1, True), shown.output


@pytest.mark.parametrize("arguments", ["--bootstrap 127.0.0.1:1 registry import {}", "--config {} status orders"])
def test_a_file_that_is_not_utf_8_is_named_in_one_line(tmp_path: Path, arguments: str) -> None:
    file = tmp_path / "caf.txt"
    file.write_bytes(b"sasl.password=caf\xe9\n")
    shown = run(*arguments.format(file).split())
    assert shown.exit_code == 1
    assert re.fullmatch(rf"Error: {re.escape(str(file))} is not UTF-8: [^\n]* position 17[^\n]*\n", shown.output), (
        shown.output
    )


@pytest.mark.broker
def test_a_property_that_the_client_can_not_have_is_said_in_one_line(served: Served, tmp_path: Path) -> None:
    """The file may be shared with other applications."""
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={served.bootstrap}\nacks=1\n")
    shown = run("--config", str(file), "send", served.names.front, "x")
    assert shown.exit_code == 1
    assert re.fullmatch(r"Error: the connection to Kafka at .* can't be used: .*`acks`.* properties\n", shown.output)


@pytest.mark.broker
def test_an_error_is_one_line(served: Served) -> None:
    shown = run("--bootstrap", served.bootstrap, "status", "nowhere")
    assert shown.exit_code == 1
    assert re.fullmatch(r"Error: topic nowhere is not in delayedtopics\.registry .*\n", shown.output)
    assert (
        "header dt-root is reserved for delayed topics"
        in run("--bootstrap", served.bootstrap, "send", served.names.front, "x", "--header", "dt-root=x").output
    )


def test_without_an_address_it_says_how_to_give_one() -> None:
    shown = run("status", "orders")
    assert shown.exit_code == 2
    assert "--bootstrap HOST:PORT, $KAFKA_BOOTSTRAP, or bootstrap.servers in --config" in shown.output


@pytest.mark.process
def test_the_manifest_of_a_handler_is_printed(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from delayed_topics import delayed_topic\n"
        "@delayed_topic(topic='orders', delay_seconds=[0, 10], retry_cap=2)\n"
        "def ship(record): ...\n"
        "def plain(record): ...\n"
    )

    def manifest(handler: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "delayed_topics", "manifest", handler]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert yaml.safe_load(manifest("shop:ship").stdout)["spec"] == {"delaySeconds": [0, 10], "retryCap": 2}
    assert "must be a function decorated with @delayed_topic" in manifest("shop:plain").stderr
    (tmp_path / "broken.py").write_text("{}['absent']")
    for wrong in ("shop:absent", "shop", "./shop.py:ship", ":ship", "broken:ship"):
        shown = manifest(wrong).stderr
        assert re.fullmatch(rf"Error: {re.escape(wrong)} can't be imported \(.*\)\. Write MODULE:HANDLER.*\n", shown), (
            shown
        )
