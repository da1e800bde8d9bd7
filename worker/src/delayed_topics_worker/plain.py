"""The short ways: a record without own headers, but for a level, at the front, and a hop of such a record. Most records of most
topics are such, and this costs a third of deciding. The outcome is that of `decide` and `copy_of`; a test compares them."""

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from delayed_topics_core.headers import foreign
from delayed_topics_core.plain_ways import (
    PLAIN_HOP_HEADERS,
    due_header,
    plain_hop,
    plain_level,
    released_header,
    write_hopped_release,
    write_plain_hop,
    write_plain_release,
)
from delayed_topics_core.routing import HELD_IN_MEMORY_MS, Policy, next_kind

from delayed_topics_worker.metrics import Lateness
from delayed_topics_worker.outbox import Outbox
from delayed_topics_worker.owned import Owned


class _Way:
    """What becomes of all records of one front partition, append time and level."""

    __slots__ = ("due_at", "due_at_ms", "partition", "releases", "sent", "shelves", "topic")

    def __init__(self, owned: Owned, policy: Policy, now_ms: int, appended_at_ms: int, level: int) -> None:
        layout, names = policy.layout, owned.served.names
        delay_seconds = layout.delay_for_level(level)
        self.due_at_ms = appended_at_ms + delay_seconds * 1000
        self.due_at = due_header(self.due_at_ms)
        kind = next_kind(layout, delay_seconds, self.due_at_ms - now_ms)
        self.releases = kind is None
        self.shelves = self.releases and (self.due_at_ms > now_ms or owned.served.paused)
        if kind is None:
            self.topic, self.partition = names.ready, owned.partition % policy.ready_partitions
        else:
            self.topic, self.partition = names.delays, layout.partition_for(kind, owned.partition)
        self.sent = 0


def send_front(outbox: Outbox, lateness: Lateness, owned: Owned, policy: Policy, now_ms: int, most: int) -> int:
    """Releases, hops or shelves what has arrived at the front, until a record needs more thought; returns how many were
    sent."""
    arrived, outstanding, served = owned.arrived, owned.outstanding, owned.served
    produce = outbox.produce_of(owned)
    before, after = b"f:%d:" % owned.partition, b":" + owned.topic_id.encode()
    released = released_header(now_ms)
    ways: dict[tuple[int, int], _Way] = {}
    sent = size = 0
    while sent < most and arrived and not owned.refused:
        held = arrived[0]
        message, headers, level = held.message, held.headers, 1
        timestamp = message.timestamp()
        if headers is None or timestamp[0] != TIMESTAMP_LOG_APPEND_TIME or held.own_headers > 1:
            break
        if held.own_headers:
            level = plain_level(headers)
            if not level:
                break
            headers = foreign(headers)
        way = ways.get((timestamp[1], level))
        if way is None:
            way = ways[timestamp[1], level] = _Way(owned, policy, now_ms, timestamp[1], level)
        arrived.popleft()
        if way.shelves:
            held.due_at_ms, held.root_partition = way.due_at_ms, owned.partition
            owned.shelf.add(way.due_at_ms, held)
            continue
        origin = b"%b%d" % (before, held.offset)
        root = origin + after
        if way.releases:
            written = write_plain_release(headers, root=root, origin=origin, due_at=way.due_at, released=released)
        else:
            written = write_plain_hop(headers, root=root, origin=origin, due_at=way.due_at)
        outstanding.append(held)
        way.sent += 1
        sent += 1
        size += held.size
        outbox.produce(produce, held, way.topic, way.partition, message.key(), message.value(), written)
    for way in ways.values():
        if way.releases and way.sent:
            lateness.observe_ms(served.topic, now_ms - way.due_at_ms, way.sent)
            served.tally.released += way.sent
        elif way.sent:
            served.tally.hopped += way.sent
    if sent:
        outbox.sent(owned, sent, size)
    return sent


def shelve_hops(owned: Owned, policy: Policy) -> None:
    """Puts plain hops that have arrived at a delays partition on the shelf, until a record needs more thought."""
    arrived, shelf = owned.arrived, owned.shelf
    delay_ms = policy.layout.partition_delays[owned.partition] * 1000
    while arrived:
        held = arrived[0]
        headers = held.headers
        timestamp = held.message.timestamp()
        if held.own_headers != PLAIN_HOP_HEADERS or headers is None or timestamp[0] != TIMESTAMP_LOG_APPEND_TIME:
            return
        due_at_ms, root_partition = plain_hop(headers)
        if due_at_ms < 0 or due_at_ms >= timestamp[1] + delay_ms + HELD_IN_MEMORY_MS:
            return
        arrived.popleft()
        held.due_at_ms, held.root_partition = due_at_ms, root_partition
        shelf.add(due_at_ms, held)


def release_shelved(outbox: Outbox, lateness: Lateness, owned: Owned, policy: Policy, now_ms: int, most: int) -> int:
    """Releases what the other two have put on the shelf and is due, until another record's turn comes; returns how many were
    sent."""
    shelf, outstanding, served = owned.shelf, owned.outstanding, owned.served
    topic, ready_partitions = owned.served.names.ready, policy.ready_partitions
    produce = outbox.produce_of(owned)
    hopped = owned.door == "d"
    before, after = b"%b:%d:" % (owned.door.encode(), owned.partition), b":" + owned.topic_id.encode()
    released_at_ms, released = b"%d" % now_ms, released_header(now_ms)
    due_before_ms, due_at = -1, due_header(0)
    sent = size = alike = 0
    while sent < most and not owned.refused:
        held = shelf.pop_plain(now_ms)
        if held is None or held.headers is None:
            break
        if held.due_at_ms != due_before_ms:
            if alike:
                lateness.observe_ms(served.topic, now_ms - due_before_ms, alike)
                alike = 0
            due_before_ms = held.due_at_ms
            due_at = due_header(due_before_ms)
        origin = b"%b%d" % (before, held.offset)
        if hopped:
            written = write_hopped_release(held.headers, origin=origin, released_at_ms=released_at_ms)
        else:
            root = origin + after
            kept = foreign(held.headers) if held.own_headers else held.headers
            written = write_plain_release(kept, root=root, origin=origin, due_at=due_at, released=released)
        message = held.message
        outstanding.append(held)
        alike += 1
        sent += 1
        size += held.size
        partition = held.root_partition % ready_partitions
        outbox.produce(produce, held, topic, partition, message.key(), message.value(), written)
    if sent:
        lateness.observe_ms(served.topic, now_ms - due_before_ms, alike)
        served.tally.released += sent
        outbox.sent(owned, sent, size)
    return sent
