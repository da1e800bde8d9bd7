"""The registry as a file, and back: after it was lost, or for a Kafka cluster that the topics were mirrored to."""

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
    """`written`: records; those that were there already don't count. `rebased`: front topics of which some topic has another id here, with
    their consumer groups."""

    written: int
    rebased: Mapping[str, str]


def export_registry(connection: Connection) -> str:
    """A line of JSON with the id of the Kafka cluster, and one for each record: {"key": …, "value": {…}}. Claims in the order that decides.
    Raises DelayedTopicsError."""
    cluster = KafkaAdmin(connection, timeout_seconds=TIMEOUT_SECONDS).describe_cluster()
    with RegistryFollower(connection) as follower:
        follower.catch_up(TIMEOUT_SECONDS)
        lines = (json.dumps({CLUSTER: cluster.cluster_id}), *map(_line, _records(follower.state)))
        return "".join(f"{line}\n" for line in lines)


def import_registry(connection: Connection, text: str) -> Imported:
    """Makes the registry if there is none, and writes what `export_registry` gave. May be repeated. Raises DelayedTopicsError.

    No layout is served before an operator says so: the export may be older than what workers do that still run.
    """
    exported_from, records = _read(text)
    admin = KafkaAdmin(connection, timeout_seconds=TIMEOUT_SECONDS)
    cluster = admin.describe_cluster()
    mirrored = exported_from != cluster.cluster_id
    wanted = {record.key: record for record in _here(admin, records, mirrored=mirrored)}
    # the operator makes the others
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
    """The id of the Kafka cluster, and the records. Raises UnreadableRecord."""
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
    """Raises UnreadableRecord."""
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


def _here(admin: KafkaAdmin, records: Iterable[RegistryRecord], *, mirrored: bool) -> list[RegistryRecord]:
    """The records as they are true of this Kafka cluster. Where a topic has another id, so do its records have other offsets. `mirrored`:
    they come from another cluster."""
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
            case AuditedRecord() if any(_other(record.ids, name, topics) for name in record.ids):
                continue  # the next audit begins anew: what was accounted for is not here
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
    """A topic that is missing stays noted, so that the operator says so.

    Where serving goes on in another topic only its committed offsets can say: every partition counts as begun, so that one
    without is an alarm and not a guess. What was handed over are offsets of the former topics.
    """
    others = {name: info for name in record.ids if (info := topics.get(name)) and _other(record.ids, name, topics)}
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


def _other(ids: Mapping[str, str], name: str, topics: Mapping[str, TopicInfo | None]) -> bool:
    info = topics.get(name)
    return info is not None and info.id != ids[name]
