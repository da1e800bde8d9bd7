"""Rows as Spark reads them from Kafka, with headers as a worker writes them, and what an audit of a small window finds in them."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from delayed_topics_audit import checks, facts
from delayed_topics_audit.account import BlindSpot, Result, judge
from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit.findings import Findings, WorkerEvents, count
from delayed_topics_audit.flaws import FLAWS, has_flaw
from delayed_topics_audit.place import name_of
from delayed_topics_audit.places import places_of
from delayed_topics_audit.promise import Declared, Promise
from delayed_topics_audit.requests import Requests, of_rows
from delayed_topics_audit.session import table
from delayed_topics_core.audit_table import FATES, PARTITION_BITS, TOPIC_LETTERS
from delayed_topics_core.headers import Header, Root, origin
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core_testing import copies
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from delayed_topics_audit_testing.topics import whole_window

AT_MS = 1_700_000_000_000
KAFKA = (
    "partition: int, offset: long, at_ms: long, timestampType: int, key: binary, value: binary, "
    "headers: array<struct<key: string, value: binary>>"
)
Place = tuple[str, int, int]
Row = tuple[int, int, int, Sequence[Header]]
"""Partition, offset, milliseconds after AT_MS, headers."""

ControlRow = tuple[bytes | None, bytes | None, int]
"""Key, value, milliseconds after AT_MS."""
NOBODY = Requests()

DELAYS_MS = (0, 10_000, 60_000)
BOUNDS = Bounds(
    front_from=(0, 0), front_committed=(100, 100), delays_from=(0, 0, 0), delays_committed=(100, 100, 100),
    ready_partitions=(2, 2), retry_cap=5,
)  # fmt: skip
PROMISE = Promise(
    partition_delays_ms=DELAYS_MS, skew_ms=0, max_lateness_ms=1000,
    lists=[Declared(list_ms=DELAYS_MS, retry_cap=5, from_ms=0, until_ms=None, max_delay_ms=86_400_000)],
)  # fmt: skip


def kafka(
    spark: SparkSession,
    rows: Sequence[Row],
    *,
    stamped_by_broker: bool = True,
    values: Mapping[int, bytes | None] = MappingProxyType({}),
) -> DataFrame:
    made = [
        {
            "partition": partition,
            "offset": offset,
            "at_ms": AT_MS + ms,
            "timestampType": 1 if stamped_by_broker else 0,
            "key": None,
            "value": _base64(values.get(offset, b"value")),
            "headers": [{"key": name, "value": _base64(value)} for name, value in headers] or None,
        }
        for partition, offset, ms, headers in rows
    ]
    return table(spark, made, KAFKA).withColumn("timestamp", sf.timestamp_millis("at_ms"))


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def facts_of(
    topics: Sequence[DataFrame],
    bounds: Bounds,
    targets: Sequence[str] = (),
    asked: Requests = NOBODY,
    *,
    skew_ms: int = 0,
) -> list[DataFrame]:
    """Returns the facts of the front, delays, ready, dead-letter and other ready topics. `topics` has their rows, as Spark reads them from
    Kafka. `asked` has the requests of the control topic. `skew_ms`: by how much the brokers' clocks may differ."""
    names = ("", "", "", "", *targets)
    parsed = [
        facts.parser(topic_number, name)(rows, bounds)
        for topic_number, (name, rows) in enumerate(zip(names, topics, strict=True))
    ]
    held = asked.annotate(parsed, skew_ms=skew_ms)
    return [facts.of_parsed(topic_number)(rows, bounds) for topic_number, rows in enumerate(held)]


def asked_for(spark: SparkSession, control: Sequence[ControlRow]) -> Requests:
    """Returns the requests in these rows of the control topic."""
    made = [
        {"key": _base64(key), "value": _base64(value), "at_ms": AT_MS + ms, "timestampType": 1}
        for key, value, ms in control
    ]
    rows = table(spark, made, "key: binary, value: binary, at_ms: long, timestampType: int")
    return Requests(by_id=of_rows(rows.withColumn("timestamp", sf.timestamp_millis("at_ms"))))


@dataclass(frozen=True, kw_only=True)
class Window:
    """The topics of a window, and the promise by which they are judged. `others` are other ready topics. `control` is None if there is no
    control topic. `control_unknown` says why the control topic can't be read."""

    spark: SparkSession
    front: Sequence[Row] = ()
    delays: Sequence[Row] = ()
    ready: Sequence[Row] = ()
    dead: Sequence[Row] = ()
    others: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    control: Sequence[ControlRow] | None = None
    control_unknown: str | None = None
    bounds: Bounds = BOUNDS
    promise: Promise = PROMISE
    front_stamped: bool = True
    ready_stamped: bool = True
    others_stamped: bool = True
    front_values: Mapping[int, bytes | None] = field(default_factory=dict)
    ready_values: Mapping[int, bytes | None] = field(default_factory=dict)
    dead_values: Mapping[int, bytes | None] = field(default_factory=dict)
    """The values that differ from the default value, by offset."""

    def committed(self, front: int, delays: int = 100) -> "Window":
        bounds = replace(self.bounds, front_committed=(front, front), delays_committed=(delays, delays, delays))
        return replace(self, bounds=bounds)

    @cached_property
    def places(self) -> DataFrame:
        front = kafka(self.spark, self.front, stamped_by_broker=self.front_stamped, values=self.front_values)
        ready = kafka(self.spark, self.ready, stamped_by_broker=self.ready_stamped, values=self.ready_values)
        delays, dead = kafka(self.spark, self.delays), kafka(self.spark, self.dead, values=self.dead_values)
        others = [kafka(self.spark, rows, stamped_by_broker=self.others_stamped) for rows in self.others.values()]
        asked = NOBODY if self.control is None else asked_for(self.spark, self.control)
        asked = replace(asked, unknown=self.control_unknown)
        topics = [front, delays, ready, dead, *others]
        made = facts_of(topics, self.bounds, tuple(self.others), asked, skew_ms=self.promise.skew_ms)
        return places_of(made, self.bounds, self.promise, shuffle_partitions=1).persist()


def release(
    place: Place,
    due_ms: int = 0,
    *,
    root: Place | None = None,
    attempt: int = 0,
    foreign: Sequence[Header] = (),
    wrote_ms: int = 0,
    hops: int = 0,
) -> list[Header]:
    return copies.release(
        foreign,
        attempt=attempt,
        root=Root(*(root or place), "id"),
        origin=origin(*place),
        due_at_ms=AT_MS + due_ms,
        released_at_ms=AT_MS + (wrote_ms or due_ms),
        hops=hops,
    )


def hop(
    place: Place, due_ms: int = 0, *, root: Place | None = None, attempt: int = 0, client: Sequence[Header] = ()
) -> list[Header]:
    """Returns the headers of a hop. `client` has the headers with which the record was produced."""
    of, group = Root(*(root or place), "id"), dict(client).get("dt-group")
    return copies.hop(client, root=of, origin=origin(*place), due_at_ms=AT_MS + due_ms, attempt=attempt, group=group)


def dead_letter(
    place: Place,
    *,
    attempt: int = 0,
    reason: DeadLetterReason = DeadLetterReason.RETRY_CAP_EXCEEDED,
    root: Place | None = None,
    client: Sequence[Header] = (),
) -> list[Header]:
    """Returns the headers of a dead letter. `client` has the headers with which the record was produced."""
    of_root = Root(*(root or place), "id")
    return copies.dead_letter(client, attempt=attempt, root=of_root, origin=origin(*place), reason=reason, error=b"e")


def level(number: int) -> list[Header]:
    return [("dt-delay-level", b"%d" % number)]


def retry(attempt: int, chain: str | None = None, group: str = "g") -> list[Header]:
    of_chain: list[Header] = [] if chain is None else [("dt-id", chain.encode()), ("dt-group", group.encode())]
    return [("dt-attempt", b"%d" % attempt), *of_chain]


def fates(window: Window) -> dict[str, str]:
    rows = window.places.where("fate is not null").select(name_of(sf.col("place")).alias("name"), "fate").collect()
    return {row.name: FATES[row.fate] for row in rows}


def accounts(window: Window) -> dict[str, dict[str, int]]:
    rows = [row.asDict() for row in checks.accounts(window.places).collect()]
    return {
        f"{TOPIC_LETTERS[row['line'] >> PARTITION_BITS]}:{row.pop('line') % (1 << PARTITION_BITS)}": row for row in rows
    }


def flaws(window: Window) -> dict[str, list[str]]:
    """Returns the names of the places with each flaw. Flaws without any are left out."""
    columns = [sf.collect_list(sf.when(has_flaw(flaw), name_of(sf.col("place")))).alias(flaw) for flaw in FLAWS]
    found = window.places.orderBy("place").agg(*columns).collect()[0].asDict()
    return {flaw: names for flaw, names in found.items() if names}


def totals(window: Window) -> dict[str, Any]:
    found: dict[str, Any] = checks.totals(window.places).collect()[0].asDict()
    return found


def judged(window: Window, events: WorkerEvents | None = None, *, blind_spots: Sequence[BlindSpot] = ()) -> Result:
    """Returns the result of an audit of the window. `events` are those of the workers; None: there are none."""
    return judge(found(window, events).counted, blind_spots)


def found(window: Window, events: WorkerEvents | None = None) -> Findings:
    """Returns what an audit of the window counts. For `events`, see `judged`."""
    names = TopicNames.of("orders")
    frozen = whole_window(
        names,
        topic_ids={},
        delay_seconds=(0,),
        retry_cap=5,
        max_lateness_ms=1000,
        committed_offsets={},
        end_offsets=dict.fromkeys(names.topics, (0,)),
    )
    return count(
        window.spark,
        window.places,
        replace(
            frozen,
            targets=tuple(window.others),
            to_offsets={names.front: tuple(window.bounds.front_to)} if window.bounds.front_to else {},
            sample_one_in=window.bounds.one_in,
        ),
        events or WorkerEvents(),
        lambda _: None,
        offsets_read=0,
        requests_unknown=window.control_unknown,
    )


def named(window: Window, flaw: str) -> list[str]:
    return [row.record for row in checks.offenders(window.places, flaw).collect()]


def front_of(count: int, headers: Sequence[Header] = ()) -> list[Row]:
    return [(0, offset, offset, headers) for offset in range(count)]


def ready_of(*offsets: int) -> list[Row]:
    return [(0, at, offset, release(("f", 0, offset), offset)) for at, offset in enumerate(offsets)]
