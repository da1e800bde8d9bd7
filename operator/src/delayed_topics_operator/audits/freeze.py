"""Freezes the offsets of an audit, in the order that makes no false loss: committed ones first, then the ends.

An outcome of a record below a committed offset was acknowledged before the commit, so it lies below ends that are looked
up later. Ends are high watermarks: an open transaction in the dead-letter topic must not hide a worker's record behind it. That of
the front topic is the end of what is stable: a producer's open transaction is nobody's to wait for, and no worker reads beyond it.
Committed offsets of a transaction that is still open don't count, and are not waited for: the former ones hold as well.

Audits chain: one that is to go on where the last one ended begins at the offsets that were committed then. What was pending then
is all that it still has to see of the time before, so its topics are read from when the oldest of these attempts began.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.layout import format_ranges
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import Reason
from delayed_topics_core.registry import AuditedRecord, LayoutRecord, Owner, TopicsRecord
from delayed_topics_crds.audit import Window
from delayed_topics_kafka.model import CommittedOffset, TopicInfo, TopicPartitionKey

from delayed_topics_operator.audits.control import control_id
from delayed_topics_operator.audits.reconcile.auditable import served_records, uncommitted, unlike, untimely
from delayed_topics_operator.audits.reconcile.chain import chained
from delayed_topics_operator.audits.reconcile.observation import Unauditable, Waiting
from delayed_topics_operator.audits.targets import CLOCKS_MS, targets
from delayed_topics_operator.audits.unserved import unserved
from delayed_topics_operator.delayed_topic.reconcile import handover
from delayed_topics_operator.gateways.kafka import KafkaLink

FIRST_GENERATION = 1

ENDS: Sequence[tuple[Sequence[int], Literal["latest", "stable"]]] = (
    ((2, 3), "latest"),
    ((1,), "latest"),
    ((0,), "stable"),
)
"""In this order, by the topics' number in TopicNames.topics: so no copy below its end is of a record above its topic's."""
NO_ENDS = (
    "an older version made the last audit of the chain and noted no end offsets. It is unknown whether records that it accounted for "
    "were released again. The next audit of the chain will see that"
)

Offsets = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Extent:
    """Where a window begins and ends; as AuditWindow has it."""

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
    """`asked`: which part of what has come in. `one_in`: of so many records one is looked at. Raises KafkaCallError."""
    early = untimely(asked, now)
    if early is not None:
        return early
    registry = await link.registry()
    served = served_records(registry, names, owner)
    if isinstance(served, Waiting):
        return served
    layout, noted = served
    topics = await link.topics(names.topics)
    blind = unlike(noted, topics, names)
    if blind is not None:
        return blind
    last = chained(registry, noted, names)
    others = await targets(link, layout, last, asked)
    found = others.found
    sources = [(name, p) for name in (names.front, names.delays) for p in range(len(noted.start_offsets[name]))]
    committed = handover.committed(noted, layout.group, await link.committed(layout.group, sources))
    lost = uncommitted(noted, committed, layout.group)
    if lost is not None:
        return lost
    counts = {name: info.partitions for name, info in topics.items() if info is not None}
    counts.update({name: len(noted.start_offsets[name]) for name in (names.front, names.delays)})
    counts.update({name: info.partitions for name, info in found.items()})
    everything = [(name, p) for name, count in counts.items() for p in range(count)]
    ends = await _ends(link, names, found, everything)
    beginnings = await link.offsets(everything, "earliest")

    if await _grown(link, names, noted, counts, found):
        message = f"partitions were added to {names.front} or its further topics while the operator read the offsets. It tries again"
        return Waiting(reason=Reason.AUDIT_WAITING, message=message)
    ends.update({place: max(ends[place], at.offset) for place, at in committed.items() if at is not None})

    begins = await _since_allowed(link, layout, found, ends)
    perhaps = _perhaps_removed(begins, beginnings, {}, "the topic was allowed")
    extent = replace(_whole(layout, noted, counts, begins), perhaps_unseen=perhaps)
    if last is not None and asked.since_last:
        extent = await _since(link, last, noted, beginnings, ends, names, found)
    elif asked.from_ is not None or asked.to is not None:
        extent = await _between(link, asked, layout, extent, beginnings, ends, names, found)

    def by_topic(offsets: Mapping[TopicPartitionKey, int]) -> dict[str, tuple[int, ...]]:
        return {name: tuple(offsets[name, p] for p in range(count)) for name, count in counts.items()}

    return AuditWindow(
        topic=names.front,
        topic_ids={name: noted.ids[name] for name in names.topics} | {name: info.id for name, info in found.items()},
        targets=tuple(found),
        partition_delays=layout.layout.partition_delays[: counts[names.delays]],
        delay_seconds=unedited(layout),
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
        committed_offsets={
            name: _served_up_to(name, starts, committed, extent)
            for name, starts in noted.start_offsets.items()
            if name in (names.front, names.delays)
        },
        end_offsets=by_topic(ends),
        beginning_offsets=by_topic(beginnings),
        unseen=extent.unseen,
        perhaps_unseen=(*extent.perhaps_unseen, *others.perhaps_unseen),
        unserved=await unserved(link, names, topics),
        made_again=others.made_again,
        sample_one_in=one_in,
        carries=asked.since_last,
        carried=last.carried if last is not None and asked.since_last else None,
        control_id=await control_id(link, names),
    )


def _served_up_to(
    name: str, starts: Sequence[int], committed: Mapping[TopicPartitionKey, CommittedOffset | None], extent: Extent
) -> tuple[int, ...]:
    """The committed offsets of a topic, within the window. Where nothing is committed, serving begins at its start."""
    offsets = [at.offset if (at := committed.get((name, p))) else start for p, start in enumerate(starts)]
    return _up_to(extent.to_offsets.get(name), offsets)


async def _ends(
    link: KafkaLink, names: TopicNames, targets: Iterable[str], everything: Sequence[TopicPartitionKey]
) -> dict[TopicPartitionKey, int]:
    """In the order of ENDS. The ends of other ready topics are read with the ready topic's."""
    ends: dict[TopicPartitionKey, int] = {}
    for several, which in ENDS:
        of_these = {names.topics[at] for at in several} | ({*targets} if 2 in several else set())
        wanted = [place for place in everything if place[0] in of_these]
        ends.update(await link.offsets(wanted, which))
    return ends


async def _since_allowed(
    link: KafkaLink, layout: LayoutRecord, targets: Mapping[str, TopicInfo], ends: Mapping[TopicPartitionKey, int]
) -> dict[str, tuple[int, ...]]:
    """What was in another ready topic before records could ask for it is nobody's here."""
    first = sorted(layout.ready_topics, key=lambda allowed: allowed.from_ms, reverse=True)
    at_ms = {allowed.topic: max(0, allowed.from_ms - CLOCKS_MS) for allowed in first if allowed.topic in targets}
    return await _first_at(link, at_ms, ends)


async def _grown(
    link: KafkaLink, names: TopicNames, noted: TopicsRecord, counts: Mapping[str, int], targets: Iterable[str]
) -> bool:
    """Whether there is a partition that copies may have come from, or gone to, and that was not there before."""
    now = (await link.registry()).topics.get(names.front)
    infos = await link.topics([*names.topics, *targets])
    outcomes = ((name, infos.get(name)) for name in (names.ready, names.dead_letter, *targets))
    return (
        now is None
        or now.start_offsets != noted.start_offsets
        or any(info is not None and info.partitions != counts[name] for name, info in outcomes)
    )


def _whole(layout: LayoutRecord, noted: TopicsRecord, counts: Mapping[str, int], begins: Offsets) -> Extent:
    """Since serving began. `begins`: of other ready topics."""
    starts = {**noted.start_offsets, **begins}
    return Extent(
        from_offsets={name: starts.get(name, (0,) * count) for name, count in counts.items()},
        roots_from_offsets={},
        least_ready_partitions=layout.least_ready_partitions,
    )


async def _since(
    link: KafkaLink,
    last: AuditedRecord,
    noted: TopicsRecord,
    beginnings: Mapping[TopicPartitionKey, int],
    ends: Mapping[TopicPartitionKey, int],
    names: TopicNames,
    targets: Mapping[str, TopicInfo],
) -> Extent:
    """Of what is older than the last ends only the copies matter of records that were not committed then: what retention may have
    removed of these hides a loss and nothing else.

    Partitions that are new since begin where serving of them began. Nothing is read above the window's own ends."""
    released = (names.ready, names.dead_letter, *targets)
    sources = (names.front, names.delays)
    since = await _first_at(link, dict.fromkeys((*sources, *released), last.since_ms - CLOCKS_MS), ends)
    counts = {name: sum(place[0] == name for place in ends) for name in (names.delays, *released)}
    # a topic that was made again since has only what is new
    again = {name for name, info in targets.items() if last.ids.get(name) != info.id}
    new = {name: (*end, *(0,) * (counts[name] - len(end))) for name, end in last.ends.items() if name in counts}
    new |= {name: (0,) * counts[name] for name in again & new.keys()}
    outcomes = {name: since[name] for name in released}
    removed = _perhaps_removed(outcomes, beginnings, {}, "the oldest record that was pending at the last audit")
    for name in new.keys() & since.keys():
        since[name] = _up_to(new[name], since[name])
    begun = {name: (*last.offsets[name], *noted.start_offsets[name][len(last.offsets[name]) :]) for name in sources}
    return Extent(
        from_offsets={**since, **begun},
        roots_from_offsets={name: _up_to(begun[name], since[name]) for name in sources},
        least_ready_partitions=last.ready_partitions,
        new_from_offsets=new,
        unseen=() if new else (NO_ENDS,),
        perhaps_unseen=removed,
    )


async def _between(
    link: KafkaLink,
    asked: Window,
    layout: LayoutRecord,
    whole: Extent,
    beginnings: Mapping[TopicPartitionKey, int],
    ends: Mapping[TopicPartitionKey, int],
    names: TopicNames,
    targets: Iterable[str],
) -> Extent:
    """What came in between two times. Its outcomes may have come out up to now; where its attempts began lies at most the
    longest wait before it."""

    async def at(when: datetime, topics: Sequence[str], *, earlier_ms: int = 0) -> dict[str, tuple[int, ...]]:
        """Within the window of everything."""
        found = await _first_at(link, dict.fromkeys(topics, int(when.timestamp() * 1000) - earlier_ms), ends)
        return {topic: tuple(map(max, offsets, whole.from_offsets[topic])) for topic, offsets in found.items()}

    sources, extent = (names.front, names.delays), whole
    if asked.from_ is not None:
        ahead = (declared.max_delay_seconds or 0 for declared in layout.lists)
        longest_ms = max((*layout.layout.waits_seconds(layout.max_delay_seconds), *ahead)) * 1000
        outcomes = (names.ready, names.dead_letter, *targets)
        before = await at(asked.from_, (*sources, *outcomes), earlier_ms=longest_ms + CLOCKS_MS)
        begun, released = await at(asked.from_, names.topics), await at(asked.from_, list(targets))
        since = f"{asked.from_:%Y-%m-%d %H:%M:%S} UTC"
        extent = replace(
            whole,
            from_offsets={**before, **{name: begun[name] for name in sources}},
            roots_from_offsets={name: before[name] for name in sources},
            unseen=_perhaps_removed(begun, beginnings, whole.from_offsets, since),
            perhaps_unseen=_perhaps_removed(released, beginnings, {}, since),
        )
    return extent if asked.to is None else replace(extent, to_offsets=await at(asked.to, sources))


def _perhaps_removed(
    first: Offsets, beginnings: Mapping[TopicPartitionKey, int], starts: Offsets, since: str
) -> tuple[str, ...]:
    """Kafka answers a time with the first offset that is left. Only an older record that is left shows that none was removed in between.
    `starts`: where serving began. Earlier records do not matter."""
    said = []
    for topic, offsets in first.items():
        begins = [beginnings[topic, p] for p in range(len(offsets))]
        start = starts.get(topic, (0,) * len(offsets))
        cut = [p for p, offset in enumerate(offsets) if offset <= begins[p] and begins[p] > start[p]]
        if cut:
            worst = max(cut, key=lambda p: begins[p])
            said.append(
                f"retention has removed records of {topic}, partitions {format_ranges(cut)}. Partition {worst} begins at offset "
                f"{begins[worst]}. It is unknown whether a removed record came after {since}"
            )
    return tuple(said)


async def _first_at(
    link: KafkaLink, at_ms: Mapping[str, int], ends: Mapping[TopicPartitionKey, int]
) -> dict[str, tuple[int, ...]]:
    """The first offsets of each topic's time, by topic; the end where nothing is that new."""
    places = [place for place in ends if place[0] in at_ms]
    found = await link.offsets_at({place: at_ms[place[0]] for place in places})
    first = {place: ends[place] if at is None else min(at, ends[place]) for place, at in found.items()}
    return {topic: tuple(first[place] for place in places if place[0] == topic) for topic in at_ms}


def _up_to(limits: Sequence[int] | None, offsets: Sequence[int]) -> tuple[int, ...]:
    return tuple(offsets if limits is None else map(min, offsets, limits))


def unedited(layout: LayoutRecord) -> tuple[int, ...]:
    """The delay list, if it is the first one, whatever else has changed."""
    if layout.lists and layout.lists[0].from_ms == 0:
        first = layout.lists[0].delay_seconds
        return first if all(entry.delay_seconds == first for entry in layout.lists) else ()
    return layout.layout.delay_seconds if layout.layout.generation == FIRST_GENERATION else ()
