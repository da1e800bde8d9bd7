"""Audits of 1,600 records on a real broker: a clean one, one with a lost and a doubled record, and ones that can't see everything."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from delayed_topics.cli import main
from delayed_topics_audit import sources
from delayed_topics_audit.account import Account, Result
from delayed_topics_audit.job import audit
from delayed_topics_audit.output import Output
from delayed_topics_audit_testing.topics import whole_window
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.carried import Carried
from delayed_topics_core.headers import DELAY_LEVEL, DUE_AT, ROOT, Header, Root, origin
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core_testing import copies
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_kafka_testing.reading import read_committed
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RECORDS = 1_600
PARTITIONS = 2
DELAYS = (0, 1)
DEAD = 100
"""Every hundredth record is dead-lettered."""


@dataclass(kw_only=True)
class Relayed:
    """A delayed topic. This test relayed all of its records except the last of each front partition."""

    connection: Connection
    names: TopicNames
    admin: KafkaAdmin
    ids: dict[str, str]
    committed: dict[str, list[int]] = field(default_factory=dict)
    rejecting: Producer
    """The producer of a consumer. Its open transaction began before the first dead letter, and holds the last stable offset there."""

    def produce(self, records: Iterable[tuple[str, int, bytes, list[Header]]], transaction: str | None = None) -> None:
        """`records`: topic, partition, value, headers. `transaction`: id for three committed transactions, each after an aborted one."""
        config = {"bootstrap.servers": self.connection.bootstrap_servers, "linger.ms": 20}
        if transaction is None:
            self._send(Producer(config), records)
            return
        producer = Producer({**config, "transactional.id": transaction})
        producer.init_transactions()
        every = list(records)
        for part in range(3):
            producer.begin_transaction()
            self._send(producer, every[:50])
            producer.abort_transaction()
            producer.begin_transaction()
            self._send(producer, every[part::3])
            producer.commit_transaction()

    def _send(self, producer: Producer, records: Iterable[tuple[str, int, bytes, list[Header]]]) -> None:
        for topic, partition, value, headers in records:
            producer.produce(topic, value, partition=partition, headers=list(headers))
            producer.poll(0)
        assert producer.flush(120) == 0

    def ends(self, topic: str) -> list[int]:
        partitions = [(topic, p) for p in range(PARTITIONS)]
        found = self.admin.list_offsets(partitions, "latest")
        return [end for key in partitions if isinstance(end := found[key], int)]

    def read(self, topic: str) -> list[Message]:
        return read_committed(self.connection, topic)

    def freeze(self) -> AuditWindow:
        return whole_window(
            self.names,
            topic_ids=self.ids,
            delay_seconds=DELAYS,
            retry_cap=3,
            max_lateness_ms=600_000,
            committed_offsets=self.committed,
            end_offsets={topic: self.ends(topic) for topic in self.names.topics},
        )


def headers_of(message: Message) -> list[Header]:
    return cast("list[Header]", message.headers() or [])


def place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def headers_at(number: int) -> list[Header]:
    target: list[Header] = [("dt-target", b"elsewhere")] if number % DEAD == 0 else []
    return [("dt-delay-level", b"%d" % (1 + number // 2 % 2)), ("trace", None), *target]


def relay_front(relayed: Relayed, messages: Sequence[Message]) -> None:
    """Releases records of level 1, lets those of level 2 hop, and dead-letters every hundredth."""
    made: list[tuple[str, int, bytes, list[Header]]] = []
    for message in messages:
        partition, offset = place(message)
        headers, value = headers_of(message), message.value() or b""
        level = int(dict(headers).get(DELAY_LEVEL) or b"1")
        root, by = Root("f", partition, offset, relayed.ids[relayed.names.front]), origin("f", partition, offset)
        due_at_ms = message.timestamp()[1] + DELAYS[level - 1] * 1000
        if int(value) % DEAD == 0:
            reason = DeadLetterReason.TARGET_NOT_ALLOWED
            letter = copies.dead_letter(headers, root=root, origin=by, reason=reason, error=b"")
            made.append((relayed.names.dead_letter, partition, value, letter))
        elif level == 2:
            hop = copies.hop(headers, root=root, origin=by, due_at_ms=due_at_ms)
            made.append((relayed.names.delays, 1, value, hop))
        else:
            release = copies.release(headers, root=root, origin=by, due_at_ms=due_at_ms, released_at_ms=due_at_ms)
            made.append((relayed.names.ready, partition, value, release))
    relayed.produce(made)


def relay_delays(relayed: Relayed) -> None:
    made: list[tuple[str, int, bytes, list[Header]]] = []
    latest_due_ms = 0
    for message in relayed.read(relayed.names.delays):
        said = dict(headers_of(message))
        root, due_at_ms = Root.decode(said[ROOT] or b""), int(said[DUE_AT] or b"")
        latest_due_ms = max(latest_due_ms, due_at_ms)
        release = copies.release(
            headers_of(message),
            root=root,
            origin=origin("d", *place(message)),
            due_at_ms=due_at_ms,
            released_at_ms=due_at_ms,
            hops=1,
        )
        made.append((relayed.names.ready, root.partition, message.value() or b"", release))
    while time.time() * 1000 <= latest_due_ms:  # the broker and the test have the same clock
        time.sleep(0.01)
    relayed.produce(made)


@pytest.fixture(scope="module")
def amid_a_rejection(broker: Broker) -> Relayed:
    connection = Connection(bootstrap_servers=broker.bootstrap)
    admin = KafkaAdmin(connection)
    names = TopicNames.of(f"audited-{uuid.uuid4().hex[:8]}")
    config = {"message.timestamp.type": "LogAppendTime"}
    made = admin.create_topics(
        [NewTopicSpec(name=name, partitions=PARTITIONS, replication_factor=1, config=config) for name in names.topics]
    )
    ids = {name: info.id for name, info in made.items() if isinstance(info, TopicInfo)}
    rejecting = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": names.dead_letter,
            "transaction.timeout.ms": 900_000,
        }
    )
    rejecting.init_transactions()
    rejecting.begin_transaction()
    rejecting.produce(names.dead_letter, b"rejected", partition=0, headers=[("dt-origin", b"r:0:1")])
    assert rejecting.flush(120) == 0
    topic = Relayed(connection=connection, names=names, admin=admin, ids=ids, rejecting=rejecting)
    records = [(names.front, i % PARTITIONS, str(i).encode(), headers_at(i)) for i in range(RECORDS)]
    topic.produce(records, transaction=names.front)
    came_in = topic.read(names.front)
    last = {message.partition(): place(message) for message in came_in}
    relay_front(topic, [message for message in came_in if last[message.partition()] != place(message)])
    relay_delays(topic)
    topic.committed = {names.front: [last[p][1] for p in range(PARTITIONS)], names.delays: topic.ends(names.delays)}
    return topic


@pytest.fixture(scope="module")
def relayed(amid_a_rejection: Relayed) -> Relayed:
    """The delayed topic after the consumer has aborted its transaction."""
    amid_a_rejection.rejecting.abort_transaction()
    return amid_a_rejection


@pytest.fixture
def judged(spark: SparkSession, amid_a_rejection: Relayed) -> Callable[[AuditWindow], Result]:
    return lambda window: audit(window, amid_a_rejection.connection, lambda: spark, print).result


def copy_of_a_release(relayed: Relayed) -> Message:
    """Appends a record of the ready topic once more, byte for byte, and returns it."""
    released = relayed.read(relayed.names.ready)[17]
    partition, _ = place(released)
    relayed.produce([(relayed.names.ready, partition, released.value() or b"", headers_of(released))])
    return released


def test_a_clean_run_is_called_clean_and_one_lost_and_one_doubled_are_found(
    amid_a_rejection: Relayed, judged: Callable[[AuditWindow], Result], request: pytest.FixtureRequest
) -> None:
    window = amid_a_rejection.freeze()
    relayed: Relayed = request.getfixturevalue("relayed")
    clean = judged(window)
    dead = RECORDS // DEAD
    hopped = RECORDS // 2 - PARTITIONS  # the last record of each partition has level 2, and no hundredth record has
    assert clean.verdict == "Verified", clean.message
    assert clean.account == Account(
        offsets_read=sum(map(sum, window.end_offsets.values())),
        produced=RECORDS + hopped,
        released=RECORDS - dead - PARTITIONS,
        hopped=hopped,
        dead_lettered=dead,
        pending=PARTITIONS,
    ), clean

    # someone moves the committed offset past a record that waits, and appends a copy of a release
    lost_at = relayed.committed[relayed.names.front][1]
    relayed.committed[relayed.names.front][1] += 1
    doubled = copy_of_a_release(relayed)
    window = relayed.freeze()
    result = judged(window)
    assert result.verdict == "Violated"
    assert clean.account is not None
    read = sum(map(sum, window.end_offsets.values()))
    wrong = {"lost": 1, "doubled": 1, "doubled_beyond_promise": 1, "pending": PARTITIONS - 1}
    assert result.account == replace(clean.account, **wrong, offsets_read=read)
    assert result.offenders["lost"] == [f"f:1:{lost_at}"]
    (double,) = result.offenders["doubled"]
    root = Root.decode(dict(headers_of(doubled))["dt-root"] or b"")
    ready_partition, first = place(doubled)
    second = relayed.ends(relayed.names.ready)[ready_partition] - 1
    assert double == f"f:{root.partition}:{root.offset} r:{ready_partition}:{first} r:{ready_partition}:{second}"


def test_a_partition_of_many_records_is_read_by_many_tasks(relayed: Relayed, spark: SparkSession) -> None:
    rows = sources.read(spark, relayed.connection, relayed.names.front, (0, 0), (160_000_000, RECORDS))
    assert rows.rdd.getNumPartitions() == 80 + 1


@pytest.mark.slow
def test_a_link_reads_what_is_new_and_everything_if_what_was_kept_for_it_is_altered(
    relayed: Relayed, spark: SparkSession, tmp_path: Path
) -> None:
    def link(name: str, window: AuditWindow) -> Result:
        output = Output(folder=str(tmp_path / name), parquet=False)
        return audit(window, relayed.connection, lambda: spark, print, output).result

    first = link("first", replace(relayed.freeze(), carries=True))
    assert first.carried_sha256 is not None
    assert first.account is not None
    relayed.produce([(relayed.names.front, 0, b"new", [])])
    noted = Carried(folder="first", sha256=first.carried_sha256)
    whole = relayed.freeze()
    settled = {name: tuple(offsets) for name, offsets in relayed.committed.items()}
    roots = {relayed.names.front: (0,) * PARTITIONS}
    window = replace(
        whole, from_offsets={**whole.from_offsets, **settled}, roots_from_offsets=roots, carries=True, carried=noted
    )
    once = link("second", window)
    covers = tmp_path / "carried" / relayed.ids[relayed.names.front] / "first" / "covers.json"
    covers.write_text(covers.read_text() + " ")
    covers.with_name(f".{covers.name}.crc").unlink()
    every = link("second", window)
    assert once.account is not None
    assert every.account is not None
    assert every.account == replace(once.account, offsets_read=every.account.offsets_read)
    assert once.account.pending == first.account.pending + 1
    # the new rows, and an aborted transaction below the first record
    assert once.account.offsets_read < 100 < 2 * RECORDS < every.account.offsets_read
    assert every.message.startswith(
        once.message + ". Everything is read from Kafka because the table of the previous audit can't be used: its hash"
    )


@pytest.mark.slow
def test_the_command_writes_the_verdict_and_succeeds(
    relayed: Relayed, spark_jars: Path, quick_java: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "window.json.gz").write_bytes(relayed.freeze().encode())
    for file, text in relayed.connection.to_files().items():
        (tmp_path / file).write_text(text)
    result = tmp_path / "result.json"
    command: list[str | Path] = [sys.executable, "-m", "delayed_topics_audit", "run", "--master", "local[2]"]
    command += ["--memory", "512m"]
    files: list[str | Path] = [
        "--window",
        tmp_path / "window.json.gz",
        "--connection",
        tmp_path,
        "--result",
        result,
        "--jars",
        spark_jars,
    ]
    environment = {**os.environ, **quick_java}
    output = tmp_path / "accounts" / "orders-1"
    parquet: list[str | Path] = ["--parquet", "--index", "--output", output]
    done = subprocess.run(
        [*command, *files, *parquet], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    body = json.loads(result.read_text())
    assert f"{body['verdict']}: {body['message']}" in done.stdout
    there = sum(len(relayed.read(topic)) for topic in (relayed.names.front, relayed.names.delays))
    assert body["account"]["produced"] == there >= RECORDS
    assert "ERROR" not in done.stderr
    partition, offset = place(relayed.read(relayed.names.front)[0])
    why = ["why", relayed.names.front, f"{partition}@{offset}", "--table", str(output.parent)]
    told = CliRunner().invoke(main, why)
    assert (told.exit_code, f", {body['verdict']}: " in told.output) == (0, True), told.output
    page = (output / "report.html").read_text()
    assert "<strong>" + body["verdict"] in page
    assert "http" not in page.replace("http://www.w3.org", "")
    index = output.with_name(f"{relayed.names.front}.html").read_text()
    assert f'<td class="{body["verdict"]}">' in index
    assert 'href="orders-1/report.html"' in index


@pytest.mark.slow
def test_kafka_away_is_no_verdict(relayed: Relayed, spark_jars: Path, tmp_path: Path) -> None:
    (tmp_path / "window.json.gz").write_bytes(relayed.freeze().encode())
    (tmp_path / "bootstrap-servers").write_text("127.0.0.1:1")
    result = tmp_path / "result.json"
    files: list[str | Path] = [
        "--window",
        tmp_path / "window.json.gz",
        "--connection",
        tmp_path,
        "--result",
        result,
        "--jars",
        spark_jars,
    ]
    command: list[str | Path] = [sys.executable, "-m", "delayed_topics_audit", "run"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no verdict: " in done.stderr
    assert "127.0.0.1:1 did not answer in time" in json.loads(result.read_text())["message"]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_foreign_record_in_the_ready_topic_is_told(relayed: Relayed, judged: Callable[[AuditWindow], Result]) -> None:
    relayed.produce([(relayed.names.ready, 0, b"by hand", [])])
    assert f"{relayed.names.ready} has 1 record that no worker wrote" in judged(relayed.freeze()).message


@pytest.mark.slow
def test_records_that_retention_removed_make_it_unknown(
    relayed: Relayed, judged: Callable[[AuditWindow], Result]
) -> None:
    """Retention removes records before the audit freezes the window, or between freezing and reading. The message is the same."""
    window = relayed.freeze()
    kafka = AdminClient(relayed.connection.client_config())
    cut = TopicPartition(relayed.names.dead_letter, 0, 10)
    for future in kafka.delete_records([cut]).values():
        future.result()
    message = judged(window).message
    assert f"retention has removed records of {relayed.names.dead_letter}, partitions 0" in message.lower()
    assert "Partition 0 begins at offset 10, but the window begins at 0" in message
    honest = dict.fromkeys(relayed.names.topics, (0,) * PARTITIONS) | {relayed.names.front: (5, 0)}
    assert "retention has removed" in judged(replace(window, beginning_offsets=honest)).message.lower()


@pytest.mark.slow
def test_a_compacted_topic_is_told(relayed: Relayed, judged: Callable[[AuditWindow], Result]) -> None:
    relayed.admin.alter_topic_configs({relayed.names.dead_letter: {"cleanup.policy": "compact,delete"}})
    assert "so records disappear. Set it to delete" in judged(relayed.freeze()).message
    relayed.admin.alter_topic_configs({relayed.names.dead_letter: {"cleanup.policy": "delete"}})


def test_a_topic_that_was_made_again_is_not_read(relayed: Relayed, judged: Callable[[AuditWindow], Result]) -> None:
    window = relayed.freeze()
    other_id = replace(window, topic_ids={**window.topic_ids, relayed.names.ready: "AAAAAAAAAAAAAAAAAAAAAA"})
    result = judged(other_id)
    assert (result.verdict, result.account) == ("Unknown", None)
    assert "was deleted and created again" in result.message
    relayed.admin.delete_topics([relayed.names.ready])
    assert f"topic {relayed.names.ready} doesn't exist any more" in judged(window).message
