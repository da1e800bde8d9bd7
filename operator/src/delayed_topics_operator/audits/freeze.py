"""Freezes the offsets of an audit in an order that reports no false loss: committed offsets first, then the ends.

The outcome of a record below a committed offset was acknowledged before the commit, so it lies below ends that are read later. The ends are
high watermarks, because an open transaction in the dead-letter topic must not hide a worker's record behind it. Only the end of the front
topic is the last stable offset, because no worker reads beyond it, and no audit waits for the open transaction of a producer. Offsets that
a transaction has committed don't count while it is open, and are not waited for, because the former offsets hold as well.

Audits can form a chain: one that continues where the last one ended begins at the offsets that were committed then. From the time before
that, it needs only the records that were pending, so it reads the topics from when the oldest of these attempts began.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.layout import format_ranges
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.reasons import Reason
from delayed_topics_core.registry import AuditedRecord, LayoutRecord, Owner, TopicsRecord
from delayed_topics_crds.audit import Window
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_operator.audits import unserved
from delayed_topics_operator.audits.control import control_id
from delayed_topics_operator.audits.reconcile.auditable import served_records, uncommitted, unlike, untimely
from delayed_topics_operator.audits.reconcile.chain import chained
from delayed_topics_operator.audits.reconcile.observation import Unauditable, Waiting
from delayed_topics_operator.audits.targets import CLOCKS_MS, Targets, targets
from delayed_topics_operator.delayed_topic.reconcile import handover
from delayed_topics_operator.gateways.kafka import KafkaLink

ENDS: Sequence[tuple[Sequence[int], Literal["latest", "stable"]]] = (
    ((2, 3), "latest"),
    ((1,), "latest"),
    ((0,), "stable"),
)
"""The order in which ends are read, by the index in TopicNames.topics. Further ready topics are read with the ready topic. In this order,
no copy below the end of its topic comes from a record above the end of that record's topic."""

Offsets = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Topics:
    """The audited topics, as the registry and Kafka describe them. `last`: where the chain of audits stands, whether or not this audit
    continues there. `sources`: the topics that workers read. `outcomes`: the topics in which records end."""

    names: TopicNames
    layout: LayoutRecord
    noted: TopicsRecord
    found: Mapping[str, TopicInfo | None]
    last: AuditedRecord | None
    targets: Targets

    @property
    def sources(self) -> tuple[str, str]:
        return self.names.front, self.names.delays

    @property
    def outcomes(self) -> tuple[str, ...]:
        return self.names.ready, self.names.dead_letter, *self.targets.found

    @property
    def counts(self) -> dict[str, int]:
        """The number of audited partitions of each topic. Of the sources, these are the partitions that are served."""
        found = {**self.found, **self.targets.found}
        counts = {name: info.partitions for name, info in found.items() if info is not None}
        return counts | {name: len(self.noted.start_offsets[name]) for name in self.sources}

    def places(self, *names: str) -> list[TopicPartitionKey]:
        return [(name, p) for name in names for p in range(self.counts[name])]


@dataclass(frozen=True, kw_only=True)
class PartitionOffsets:
    """The offsets of each partition, as `_read` found them."""

    committed: Mapping[TopicPartitionKey, OffsetAndMetadata | None]
    ends: Mapping[TopicPartitionKey, int]
    beginnings: Mapping[TopicPartitionKey, int]


@dataclass(frozen=True, kw_only=True)
class Extent:
    """Where a window begins and ends. The fields are those of AuditWindow."""

    from_offsets: Offsets
    roots_from_offsets: Offsets
    least_ready_partitions: int
    to_offsets: Offsets = field(default_factory=dict)
    new_from_offsets: Offsets = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    perhaps_unseen: tuple[str, ...] = ()


async def freeze(
    link: KafkaLink,
    names: TopicNames,
    owner: Owner,
    *,
    asked: Window,
    max_lateness_ms: int,
    now: datetime,
    one_in: int = 1,
) -> AuditWindow | Waiting | Unauditable:
    """Returns the window, or why it can't be frozen. `asked`: which part of the records that have come in. `one_in`: one of this many
    records is checked. Raises KafkaCallError."""
    topics = untimely(asked, now) or await _auditable(link, names, owner, asked)
    if not isinstance(topics, Topics):
        return topics
    read = await _read(link, topics)
    if not isinstance(read, PartitionOffsets):
        return read
    extent = await _extent(link, topics, read, asked)

    layout, noted, last, counts = topics.layout, topics.noted, topics.last, topics.counts

    def by_topic(offsets: Mapping[TopicPartitionKey, int]) -> dict[str, tuple[int, ...]]:
        return {name: tuple(offsets[name, p] for p in range(count)) for name, count in counts.items()}

    def served_up_to(name: str) -> tuple[int, ...]:
        """Returns the committed offsets. A partition without one is served from its start offset."""
        starts = enumerate(noted.start_offsets[name])
        offsets = [at.offset if (at := read.committed.get((name, p))) else start for p, start in starts]
        return _up_to(extent.to_offsets.get(name), offsets)

    return AuditWindow(
        topic=names.front,
        topic_ids={name: noted.ids[name] for name in names.topics}
        | {name: info.id for name, info in topics.targets.found.items()},
        targets=tuple(topics.targets.found),
        partition_delays=layout.layout.partition_delays[: counts[names.delays]],
        ready_partitions=counts[names.ready],
        least_ready_partitions=extent.least_ready_partitions,
        retry_cap=layout.highest_retry_cap,
        delay_lists=layout.lists,
        exactly_once_from_ms=layout.exactly_once_from_ms,
        max_lateness_ms=max_lateness_ms,
        broker_skew_ms=layout.broker_skew_ms,
        frozen_at_ms=int(now.timestamp() * 1000),
        from_offsets=extent.from_offsets,
        roots_from_offsets=extent.roots_from_offsets,
        to_offsets=extent.to_offsets,
        new_from_offsets=extent.new_from_offsets,
        committed_offsets={name: served_up_to(name) for name in topics.sources},
        end_offsets=by_topic(read.ends),
        beginning_offsets=by_topic(read.beginnings),
        unseen=extent.unseen,
        perhaps_unseen=(*extent.perhaps_unseen, *topics.targets.perhaps_unseen),
        unserved=await _unread(link, topics, asked, now),
        made_again=topics.targets.made_again,
        sample_one_in=one_in,
        carries=asked.since_last,
        carried=last.carried if last is not None and asked.since_last else None,
        control_id=await control_id(link, names),
    )


async def _unread(link: KafkaLink, topics: Topics, asked: Window, now: datetime) -> tuple[str, ...]:
    """Returns sentences about records of the window that no worker reads."""
    long_ago = now - timedelta(milliseconds=unserved.OPEN_MS)
    before = min(long_ago, asked.to) if asked.to is not None else long_ago
    front = topics.places(topics.names.front)
    return (
        *await unserved.in_partitions(link, topics.names, topics.found),
        *await unserved.behind_transactions(link, front, int(before.timestamp() * 1000)),
    )


async def _auditable(link: KafkaLink, names: TopicNames, owner: Owner, asked: Window) -> Topics | Waiting | Unauditable:
    """Returns the topics, or why no audit can begin now."""
    registry = await link.registry()
    served = served_records(registry, names, owner)
    if isinstance(served, Waiting):
        return served
    layout, noted = served
    found = await link.topics(names.topics)
    blind = unlike(noted, found, names)
    if blind is not None:
        return blind
    last = chained(registry, noted, names)
    others = await targets(link, layout, last, asked)
    return Topics(names=names, layout=layout, noted=noted, found=found, last=last, targets=others)


async def _read(link: KafkaLink, topics: Topics) -> PartitionOffsets | Waiting | Unauditable:
    """Reads the committed offsets, then the ends, then the beginnings, and at last checks whether partitions or the spec changed in the
    meantime. The docstring of the module says why the order matters."""
    names, group, others = topics.names, topics.layout.group, topics.targets.found
    asked = await link.committed(group, topics.places(*topics.sources))
    committed = handover.committed(topics.noted, group, asked)
    lost = uncommitted(topics.noted, committed, group)
    if lost is not None:
        return lost
    ends: dict[TopicPartitionKey, int] = {}
    for several, which in ENDS:
        wanted = [*(names.topics[at] for at in several), *(others if 2 in several else ())]
        ends.update(await link.offsets(topics.places(*wanted), which))
    beginnings = await link.offsets(topics.places(*topics.counts), "earliest")
    # copies may have come from a new partition or gone to one, and records may have followed a new layout
    registry, again = await link.registry(), await link.topics([*names.topics, *others])
    noted, layout = registry.topics.get(names.front), registry.layouts.get(names.front)
    counts = {name: info.partitions for name, info in again.items() if info is not None and name in topics.outcomes}
    same = noted is not None and noted.start_offsets == topics.noted.start_offsets and layout == topics.layout
    if not same or not counts.items() <= topics.counts.items():
        message = f"topic {names.front}, its further topics or its spec changed while the operator read the offsets. It tries again"
        return Waiting(reason=Reason.AUDIT_WAITING, message=message)
    ends.update({place: max(ends[place], at.offset) for place, at in committed.items() if at is not None})
    return PartitionOffsets(committed=committed, ends=ends, beginnings=beginnings)


async def _extent(link: KafkaLink, topics: Topics, read: PartitionOffsets, asked: Window) -> Extent:
    """Returns what the audit reads. It reads another ready topic from when records were first allowed to name it."""
    if topics.last is not None and asked.since_last:
        return await _since(link, topics, topics.last, read)
    layout, others = topics.layout, topics.targets.found
    first = sorted(layout.ready_topics, key=lambda allowed: allowed.from_ms, reverse=True)
    at_ms = {allowed.topic: max(0, allowed.from_ms - CLOCKS_MS) for allowed in first if allowed.topic in others}
    begins = await _first_at(link, at_ms, read.ends)
    starts = {**topics.noted.start_offsets, **begins}
    whole = Extent(
        from_offsets={name: starts.get(name, (0,) * count) for name, count in topics.counts.items()},
        roots_from_offsets={},
        least_ready_partitions=layout.least_ready_partitions,
        perhaps_unseen=await _perhaps_removed(link, begins, {}, "the topic was allowed"),
    )
    return await _between(link, topics, read, asked, whole)


async def _since(link: KafkaLink, topics: Topics, last: AuditedRecord, read: PartitionOffsets) -> Extent:
    """Returns what came in since the last audit of the chain. Below the ends of that audit, only the copies of records matter that were not
    committed then. If retention has removed some of these copies, that can hide a loss, or the first of two copies, and nothing else.

    Partitions that were added since begin where workers began to serve them. Nothing is read above the ends of this window.
    """
    sources, starts, counts = topics.sources, topics.noted.start_offsets, topics.counts
    since = await _first_at(link, dict.fromkeys((*sources, *topics.outcomes), last.since_ms - CLOCKS_MS), read.ends)
    # all records of a topic that was created again since are new
    again = {name for name, info in topics.targets.found.items() if last.ids.get(name) != info.id}
    new = {name: (*end, *(0,) * (counts[name] - len(end))) for name, end in last.ends.items() if name in counts}
    new |= {name: (0,) * counts[name] for name in again & new.keys()}
    outcomes = {name: since[name] for name in topics.outcomes}
    removed = await _perhaps_removed(link, outcomes, {}, "the oldest record that was pending at the last audit")
    for name in new.keys() & since.keys():
        since[name] = _up_to(new[name], since[name])
    begun = {name: (*last.offsets[name], *starts[name][len(last.offsets[name]) :]) for name in sources}
    return Extent(
        from_offsets={**since, **begun},
        roots_from_offsets={name: _up_to(begun[name], since[name]) for name in sources},
        least_ready_partitions=last.ready_partitions,
        new_from_offsets=new,
        perhaps_unseen=removed,
    )


async def _between(link: KafkaLink, topics: Topics, read: PartitionOffsets, asked: Window, whole: Extent) -> Extent:
    """Returns the part of `whole` that came in between two times. The outcomes of these records may have come out until now, and their
    attempts began at most the longest wait earlier."""

    async def at(when: datetime, names: Sequence[str], *, earlier_ms: int = 0) -> dict[str, tuple[int, ...]]:
        """Returns the first offsets at or after this time, but none below `whole`."""
        found = await _first_at(link, dict.fromkeys(names, int(when.timestamp() * 1000) - earlier_ms), read.ends)
        return {topic: tuple(map(max, offsets, whole.from_offsets[topic])) for topic, offsets in found.items()}

    layout, sources, extent = topics.layout, topics.sources, whole
    if asked.from_ is not None:
        ahead = (declared.max_delay_seconds or 0 for declared in layout.lists)
        longest_ms = max((*layout.layout.waits_seconds(layout.max_delay_seconds), *ahead)) * 1000
        before = await at(asked.from_, (*sources, *topics.outcomes), earlier_ms=longest_ms + CLOCKS_MS)
        begun, released = await at(asked.from_, topics.names.topics), await at(asked.from_, list(topics.targets.found))
        since = f"{asked.from_:%Y-%m-%d %H:%M:%S} UTC"
        extent = replace(
            whole,
            from_offsets={**before, **{name: begun[name] for name in sources}},
            roots_from_offsets={name: before[name] for name in sources},
            unseen=await _perhaps_removed(link, begun, whole.from_offsets, since),
            perhaps_unseen=await _perhaps_removed(link, released, {}, since),
        )
    return extent if asked.to is None else replace(extent, to_offsets=await at(asked.to, sources))


async def _perhaps_removed(link: KafkaLink, first: Offsets, starts: Offsets, since: str) -> tuple[str, ...]:
    """Returns sentences about records that retention may have removed. `first`: what Kafka has just answered to a time, which is the first
    offset that still exists. Only an older record that exists even later proves that none after that time was removed. `starts`: where
    serving began. Earlier records do not matter."""
    places = [(topic, p) for topic, offsets in first.items() for p in range(len(offsets))]
    beginnings = await link.offsets(places, "earliest") if places else {}
    messages = []
    for topic, offsets in first.items():
        begins = [beginnings[topic, p] for p in range(len(offsets))]
        start = starts.get(topic, (0,) * len(offsets))
        cut = [p for p, offset in enumerate(offsets) if offset <= begins[p] and begins[p] > start[p]]
        if cut:
            worst = max(cut, key=lambda p: begins[p])
            messages.append(
                f"retention has removed records of {topic}, partitions {format_ranges(cut)}. Partition {worst} begins at offset "
                f"{begins[worst]}. It is unknown whether a removed record came after {since}"
            )
    return tuple(messages)


async def _first_at(
    link: KafkaLink, at_ms: Mapping[str, int], ends: Mapping[TopicPartitionKey, int]
) -> dict[str, tuple[int, ...]]:
    """Returns the offsets of the first records at or after the time of each topic, by topic. If a partition has none, its end."""
    places = [place for place in ends if place[0] in at_ms]
    found = await link.offsets_at({place: at_ms[place[0]] for place in places})
    first = {place: ends[place] if at is None else min(at, ends[place]) for place, at in found.items()}
    return {topic: tuple(first[place] for place in places if place[0] == topic) for topic in at_ms}


def _up_to(limits: Sequence[int] | None, offsets: Sequence[int]) -> tuple[int, ...]:
    return tuple(offsets if limits is None else map(min, offsets, limits))
