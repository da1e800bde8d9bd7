"""Export of the registry into a file, and its import into the same Kafka or into the Kafka to which the topics were mirrored."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AclOperation, AclPermissionType, AdminClient, ResourceType
from delayed_topics.cli import main
from delayed_topics_core.handover import Handover
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.names import CLOCK_TOPIC, EVENTS_TOPIC, REGISTRY_TOPIC
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.registry import AuditedRecord, Claim, Owner, RegistryRecord, TopicsRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core_testing.served import serving
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_kafka.registry import RegistryFollower, RegistryWriter
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_kafka_testing.rights import AUTHORIZER, lift, rule

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "restore.md"
NAMES = ("orders", "orders.delays", "orders.ready", "orders.dead")
SHOP, ATTIC = Owner("cluster-1", "shop", "orders"), Owner("cluster-1", "attic", "orders")


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker(settings=PATIENT) as one, Broker(settings=PATIENT) as other:
        yield one, other


@pytest.fixture
def kafkas(brokers: tuple[Broker, Broker]) -> Iterator[tuple[Broker, Broker]]:
    """Two brokers without topics of the previous test."""
    yield brokers
    for broker in brokers:
        everything = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
        admin(broker).delete_topics([name for name in everything if not name.startswith("__")])


@pytest.fixture
def kafka(kafkas: tuple[Broker, Broker]) -> Broker:
    return kafkas[0]


def run(broker: Broker, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--bootstrap", broker.bootstrap, "registry", *arguments])


def admin(broker: Broker) -> KafkaAdmin:
    return KafkaAdmin(Connection(bootstrap_servers=broker.bootstrap), timeout_seconds=60)


def ids(broker: Broker) -> dict[str, str]:
    found = admin(broker).describe_topics(NAMES)
    return {name: info.id for name, info in found.items() if isinstance(info, TopicInfo)}


def read(broker: Broker) -> RegistryState:
    with RegistryFollower(Connection(bootstrap_servers=broker.bootstrap)) as follower:
        follower.catch_up(60)
        return follower.state


def topics_made(broker: Broker) -> None:
    admin(broker).create_topics([NewTopicSpec(name=name, partitions=2, replication_factor=1) for name in NAMES])


def served(broker: Broker) -> list[RegistryRecord]:
    """Writes records as an operator does. Of the two claims, the first one counts."""
    topics_made(broker)
    ensure_system_topics(admin(broker), replication_factor=1)
    starts: dict[str, tuple[int, ...]] = {"orders": (7, 8), "orders.delays": (0, 0)}
    records: list[RegistryRecord] = [
        Claim(topic="orders", owner=SHOP, mark=5),
        Claim(topic="orders", owner=ATTIC),
        serving("orders", initial(LayoutSpec(delay_seconds=(0, 10), partitions=2)), owner=SHOP),
        TopicsRecord(
            topic="orders", ids=ids(broker), start_offsets=starts, begun={"orders": 2, "orders.delays": 1},
            handover=Handover(group="g", positions={"orders": (OffsetAndMetadata(8), OffsetAndMetadata(9))}),
        ),
        AuditedRecord(
            topic="orders", ids=ids(broker), offsets={"orders": (9, 9)}, since_ms=5, ready_partitions=2, ends={}
        ),
    ]  # fmt: skip
    connection = Connection(bootstrap_servers=broker.bootstrap)
    with RegistryFollower(connection) as follower:
        RegistryWriter(follower, connection, timeout_seconds=60).write(records)
    return records


def without_offsets(state: RegistryState) -> tuple[Any, ...]:
    claims = [entry.claim for entry in sorted(state.claims.values(), key=lambda entry: entry.offset)]
    return claims, state.layouts, state.topics, state.audited


def test_a_registry_that_was_lost_comes_back_as_it_was_and_the_import_may_be_repeated(
    kafka: Broker, tmp_path: Path
) -> None:
    served(kafka)
    before = read(kafka)
    file = tmp_path / "registry.json"
    file.write_text(run(kafka, "export").stdout)
    admin(kafka).delete_topics([REGISTRY_TOPIC])
    done = run(kafka, "import", str(file))
    assert (done.exit_code, done.stderr) == (0, "5 records imported\n"), done.output
    claims, layouts, *others = without_offsets(before)
    retired = {topic: replace(layout, state="retired") for topic, layout in layouts.items()}
    assert without_offsets(read(kafka)) == (claims, retired, *others), "only an operator sets a layout to serving"
    again = run(kafka, "import", str(file))
    assert (again.exit_code, again.stderr) == (0, "0 records imported\n"), again.output


def test_a_registry_that_is_in_use_is_never_written_over(kafka: Broker, tmp_path: Path) -> None:
    served(kafka)
    file = tmp_path / "registry.json"
    lines = run(kafka, "export").stdout.splitlines(keepends=True)
    file.write_text("".join(line for line in lines if '"claim/orders/cluster-1/shop/orders"' not in line))
    before = read(kafka)
    refused = run(kafka, "import", str(file))
    assert refused.exit_code == 1
    assert "It has 2 other records, and the first is claim/orders/cluster-1/shop/orders" in refused.stderr
    assert without_offsets(read(kafka)) == without_offsets(before)


def test_where_the_topics_were_mirrored_to_they_are_the_ones_and_nothing_begins_by_guess(
    kafkas: tuple[Broker, Broker], tmp_path: Path
) -> None:
    kafka, mirror = kafkas
    served(kafka)
    file = tmp_path / "registry.json"
    file.write_text(run(kafka, "export").stdout)
    topics_made(mirror)
    done = run(mirror, "import", str(file))
    assert (
        "orders: its topics have other ids here than in the export. Check that group delayedtopics.orders has its offsets"
        in done.stderr
    )
    state = read(mirror)
    record = state.topics["orders"]
    assert record.ids == ids(mirror) != ids(kafka)
    assert record.start_offsets == {"orders": (0, 0), "orders.delays": (0, 0)}
    assert record.begun == {"orders": 2, "orders.delays": 2}, "a partition without a committed offset is an alarm"
    assert record.mirrored_from == {name: ids(kafka)[name] for name in ("orders", "orders.delays")}
    assert record.handover == Handover(group="g", positions={}), "the positions were offsets of the former topics"
    assert state.audited == {}, "the audited offsets were those of the former topics"
    holder = state.holder("orders")
    assert holder is not None
    assert holder.owner == SHOP
    assert state.layouts["orders"].owner == SHOP


def test_a_topic_that_is_missing_stays_noted_so_that_the_operator_says_so(kafka: Broker, tmp_path: Path) -> None:
    served(kafka)
    file = tmp_path / "registry.json"
    file.write_text(run(kafka, "export").stdout)
    ids_before = ids(kafka)
    admin(kafka).delete_topics([REGISTRY_TOPIC, "orders.delays"])
    assert run(kafka, "import", str(file)).exit_code == 0
    assert read(kafka).topics["orders"].ids == ids_before


def test_a_file_that_is_no_export_is_refused_with_its_line_and_makes_nothing(kafka: Broker, tmp_path: Path) -> None:
    file = tmp_path / "registry.json"
    claim = Claim(topic="orders", owner=SHOP)
    lines = [json.dumps({"kafka_cluster_id": "c"}), json.dumps({"key": claim.key, "value": json.loads(encode(claim))})]
    for wrong in ("{", "[]", '{"key": "claim/orders/a/b/c"}', '{"key": "claim/x", "value": {}}'):
        for where, text in {"line 3": [*lines, wrong], "the first line": [wrong, *lines]}.items():
            file.write_text("\n".join(text))
            refused = run(kafka, "import", str(file))
            assert refused.exit_code == 1, wrong
            assert where in refused.stderr, wrong
    assert admin(kafka).describe_topics([REGISTRY_TOPIC]) == {REGISTRY_TOPIC: None}


def operations(words: str) -> list[AclOperation]:
    """Parses operations as the pages spell them, such as DescribeConfigs."""
    return [
        AclOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", word).upper()] for word in re.findall("[A-Z][A-Za-z]+", words)
    ]


def test_the_rights_of_the_page_are_all_that_an_export_and_an_import_need(tmp_path: Path) -> None:
    page = " ".join(PAGE.read_text().split())
    said = re.search(
        "exports the registry needs (.*?) on it.* also needs (.*?) on the registry, and (.*?) on the topics", page
    )
    assert said is not None
    to_export, further, of_topics = map(operations, said.groups())
    file = tmp_path / "registry.json"
    with Broker(settings={**AUTHORIZER, **PATIENT}) as broker:
        served(broker)
        connection = Connection(bootstrap_servers=broker.bootstrap)

        def only(name: str, allowed: list[AclOperation]) -> None:
            rule(connection, ResourceType.TOPIC, name, allowed, AclPermissionType.ALLOW)

        # the rights that the broker itself needs, and those that this test needs for changing rules
        of_cluster = [AclOperation.CLUSTER_ACTION, AclOperation.ALTER, AclOperation.DESCRIBE]
        rule(connection, ResourceType.BROKER, "kafka-cluster", of_cluster, AclPermissionType.ALLOW)
        only(REGISTRY_TOPIC, to_export)
        exported = run(broker, "export")
        assert exported.exit_code == 0, exported.output
        file.write_text(exported.stdout)
        lift(connection, ResourceType.TOPIC, REGISTRY_TOPIC)
        admin(broker).delete_topics([REGISTRY_TOPIC])
        only(REGISTRY_TOPIC, [*to_export, *further])
        for name in NAMES:
            only(name, of_topics)
        for name in (EVENTS_TOPIC, CLOCK_TOPIC):
            rule(connection, ResourceType.TOPIC, name, [AclOperation.ALL])
        for done in ("5 records imported\n", "0 records imported\n"):
            imported = run(broker, "import", str(file))
            assert (imported.exit_code, imported.stderr) == (0, done), imported.output
