"""Exports the registry to a file and imports it, after it was lost or into a Kafka cluster that the topics were mirrored to."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.names import REGISTRY_TOPIC, TopicNames
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.registry import AuditedRecord, LayoutRecord, RegistryRecord, TopicsRecord, decode, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import values_of
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_kafka.registry import RegistryFollower, RegistryWriter
from delayed_topics_kafka.system_topics import ensure_system_topics

from delayed_topics.errors import RegistryInUse

CLUSTER = "kafka_cluster_id"
_HEAD = re.compile(rf'{{"{CLUSTER}": "([^"]*)"}}')
SYSTEM_REPLICATION = 3
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """`written` is the number of records, without those that were there already. `rebased` has the front topics of delayed topics with a
    topic whose id is different here, and their consumer groups."""

    written: int
    rebased: Mapping[str, str]


def export_registry(connection: Connection) -> str:
    """Returns a line of JSON with the id of the Kafka cluster, and a line for each record: {"key": …, "value": {…}}. The claims keep the
    order of the registry, because an earlier claim takes precedence. Raises DelayedTopicsError."""
    cluster = KafkaAdmin(connection, timeout_seconds=TIMEOUT_SECONDS).describe_cluster()
    with RegistryFollower(connection) as follower:
        follower.catch_up(TIMEOUT_SECONDS)
        lines = (json.dumps({CLUSTER: cluster.cluster_id}), *map(_line, _records(follower.state)))
        return "".join(f"{line}\n" for line in lines)


def import_registry(connection: Connection, text: str) -> Imported:
    """Creates the registry if there is none, and writes what `export_registry` returned. May be repeated. Raises DelayedTopicsError.

    Imported layouts are not served before an operator has written them again, because the export may be older than the layouts of workers
    that still run.
    """
    exported_from, records = _read(text)
    admin = KafkaAdmin(connection, timeout_seconds=TIMEOUT_SECONDS)
    cluster = admin.describe_cluster()
    mirrored = exported_from != cluster.cluster_id
    wanted = {record.key: record for record in _adapted(admin, records, mirrored=mirrored)}
    # the operator creates the other system topics
    ensure_system_topics(
        admin, replication_factor=min(SYSTEM_REPLICATION, len(cluster.brokers)), topics=[REGISTRY_TOPIC]
    )
    with RegistryFollower(connection) as follower:
        follower.catch_up(TIMEOUT_SECONDS)
        present = {record.key: record for record in _records(follower.state)}
        others = sorted(key for key, record in present.items() if wanted.get(key) != record)
        if others:
            raise RegistryInUse(
                f"nothing was imported, because the registry of Kafka at {connection.bootstrap_servers} is in use. It has {len(others)} "
                f"other records, and the first is {others[0]}. Import only into a registry that is missing or empty"
            )
        missing = [record for key, record in wanted.items() if key not in present]
        RegistryWriter(follower, connection, timeout_seconds=TIMEOUT_SECONDS).write(missing)
    known = [record for record in records if isinstance(record, TopicsRecord)]
    groups = {record.topic: record.group for record in records if isinstance(record, LayoutRecord)}
    rebased = sorted(record.topic for record in known if wanted[record.key] != record)
    return Imported(
        written=len(missing), rebased={topic: groups.get(topic, TopicNames.of(topic).group) for topic in rebased}
    )


def _read(text: str) -> tuple[str, list[RegistryRecord]]:
    """Returns the id of the Kafka cluster, and the records. Raises UnreadableRecord."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    head = _HEAD.fullmatch(lines[0][1].strip()) if lines else None
    if head is None:
        raise UnreadableRecord(f"the first line of a registry export must be an object with {CLUSTER}")
    return head[1], [_parsed(number, line) for number, line in lines[1:]]


def _records(state: RegistryState) -> list[RegistryRecord]:
    claims = [entry.claim for entry in sorted(state.claims.values(), key=lambda entry: entry.offset)]
    return [*claims, *state.layouts.values(), *state.topics.values(), *state.audited.values()]


def _line(record: RegistryRecord) -> str:
    return json.dumps({"key": record.key, "value": json.loads(encode(record))}, sort_keys=True)


def _parsed(number: int, line: str) -> RegistryRecord:
    """Parses a line of an export. Raises UnreadableRecord."""
    try:
        body = json.loads(line)
        record = decode(body["key"], json.dumps(body["value"]).encode())
    except (KeyError, TypeError, ValueError) as e:
        raise UnreadableRecord(f"line {number} is not a line of a registry export: {e}") from e
    if record.key != body["key"]:
        raise UnreadableRecord(
            f"line {number} has the key {body['key']!r}, but the value belongs to the key {record.key!r}"
        )
    return record


def _adapted(admin: KafkaAdmin, records: Iterable[RegistryRecord], *, mirrored: bool) -> list[RegistryRecord]:
    """Returns the records as they hold for this Kafka cluster. If a topic has another id here, its records have other offsets here, too.
    `mirrored` means that the export comes from another cluster."""
    records = list(records)
    names = sorted({name for record in records if isinstance(record, TopicsRecord) for name in record.ids})
    topics = values_of(admin.describe_topics(names))
    sources = sorted({name for r in records if isinstance(r, TopicsRecord) for name in r.start_offsets})
    partitions = [
        (name, p) for name in sources if (info := topics.get(name)) is not None for p in range(info.partitions)
    ]
    earliest = values_of(admin.list_offsets(partitions, "earliest"))
    here: list[RegistryRecord] = []
    for record in records:
        match record:
            case TopicsRecord():
                here.append(_rebased(record, topics, earliest, mirrored=mirrored))
            case LayoutRecord() if record.served is not None:
                here.append(replace(record.served, state="retired"))
            case AuditedRecord() if any(_has_other_id(record.ids, name, topics) for name in record.ids):
                continue  # the records that earlier audits accounted for are not here, so the next audit begins a new chain
            case _:
                here.append(record)
    return here


def _rebased(
    record: TopicsRecord,
    topics: Mapping[str, TopicInfo | None],
    earliest: Mapping[TopicPartitionKey, int],
    *,
    mirrored: bool,
) -> TopicsRecord:
    """Returns the record with the ids and start offsets of this cluster. A topic that is missing here stays in it, so that the operator
    reports it.

    If a topic has another id here, only the offsets that are committed here say where workers continue. All its partitions count as
    begun, so that a partition without a committed offset raises an alarm and workers do not guess. Its offsets of a handover are
    removed, because they belong to the former topic.
    """
    others = {
        name: info for name in record.ids if (info := topics.get(name)) and _has_other_id(record.ids, name, topics)
    }
    starts = {
        name: tuple(earliest[name, p] for p in range(info.partitions))
        for name, info in others.items()
        if name in record.start_offsets
    }
    kept = {name: id_ for name, id_ in record.mirrored_from.items() if name not in others}
    return replace(
        record,
        ids={**record.ids, **{name: info.id for name, info in others.items()}},
        start_offsets={**record.start_offsets, **starts},
        begun={**record.begun, **{name: len(offsets) for name, offsets in starts.items()}},
        made_again=tuple(sorted({*record.made_again, *others})),
        handover=record.handover.without(set(others)) if record.handover else None,
        mirrored_from={name: record.ids[name] for name in starts} if mirrored else kept,
    )


def _has_other_id(ids: Mapping[str, str], name: str, topics: Mapping[str, TopicInfo | None]) -> bool:
    info = topics.get(name)
    return info is not None and info.id != ids[name]
