"""Single and random records for the engine to decide about. Most are as clients and workers write them, and some as no one should write
them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import delayed_topics_engine as engine
from delayed_topics_core.headers import OWN_HEADERS, Header, Root
from delayed_topics_core.layout import Layout, LayoutSpec, evolve, initial, ladder
from delayed_topics_core_testing import copies

TOPIC_ID = "uT1eKVuTQ2--Rhh9b73dqg"
NOW_MS = 1_790_000_000_000
MAX_OFFSET = 2**63 - 2  # the position behind it is the largest 64-bit number
OWN = sorted(OWN_HEADERS)
NUMBERS: list[bytes | None] = [
    *(b"%d" % n for n in (*range(12), 999, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**20, NOW_MS)),
    *(b"%d" % (NOW_MS + ms) for ms in (-5_000, 800, 5_000, 70_000, 3_599_000, 3_605_000)),
    *(b"", b"007", b"-1", b"+1", b" 1", b"1 ", b"1e3", b"1.0", b"0x1", b"1\0", b"\xff", "٣".encode(), None),
    *(b"0" * 18 + b"1", b"0" * 19 + b"1"),
]
TEXTS: list[bytes | None] = [
    *(b"order-7", b"f:3:17:" + TOPIC_ID.encode(), b"", b"it's", b'"', b"it's \"", bytes(range(48)), b"\x7f\xff", None),
    *(b"x" * n for n in (249, 250, 256, 257, 2048, 2049, 4090, 5000)),
    "größe".encode(),
]
ROOTS: list[bytes | None] = [
    *(
        b"f:3:17:" + TOPIC_ID.encode(),
        b"d:2:0:x",
        b"f:01:007:x",
        b"f:1:1:",
        b"g:1:1:x",
        b"f:1:1",
        b"f:1:1:x:y",
        b"f::1:x",
    ),
    *(
        b"f:2147483647:1:x",
        b"f:2147483648:1:x",
        b"f:1:9223372036854775807:x",
        b"f:1:9223372036854775808:x",
        b"f:-1:1:x",
    ),
    *("f:1:1:é".encode(), b"f:1:1:" + b"x" * 250, b"f:1:1:" + b"x" * 251, b"f:" + b"9" * 5000 + b":1:x", b"", None),
]
RELEASED: list[bytes | None] = [
    *(b"0:5", b"1:6", b"3:", b"3:4:5", b"2147483647:1", b"2147483648:1", b":1", b"x:1", b"5", b"-1:5", b"", None),
    *(b"0000000003:1", b"00000000003:1"),
]
POOLS = {
    "dt-root": ROOTS,
    "dt-released": RELEASED,
    "dt-id": TEXTS,
    "dt-group": TEXTS,
    "dt-target": [
        *(
            b"invoices",
            b"invoices:0",
            b"invoices:3",
            b"missing",
            b"missing:0",
            b"elsewhere",
            b"invoices:",
            b":1",
            b"a b",
        ),
        *(b"invoices:2147483647", b"invoices:2147483648", b"invoices:00000000001", b"x" * 249, b"x" * 250, b"", None),
    ],
    "dt-error": TEXTS,
}
FOREIGN: list[Header] = [
    *(("trace", b"1"), ("trace", b"2"), ("null", None), ("", b""), ("größe", b"\xff"), ("Dt-Id", b"x"), ("dt-", b"x")),
    *(("dt-ids", b"x"), ("dt-i", b"x"), ("dt-hop", b"1"), ("xdt-id", b"1"), ("big", b"y" * 200), ("dt-id\0", b"1")),
]
MAX_DELAY_SECONDS = 3600
OUTAGE_BUDGET_SECONDS = 7200
TARGETS = (("invoices", 3), ("missing", 0))
"""Other ready topics, with their numbers of partitions."""
LADDERS = ((), (), ladder(max_seconds=64, base=2), ladder(max_seconds=3600, base=10))
DELAYS = (0, 1, 2, 5, 10, 60, 600, 3600, 86_400, 2_592_000)


@dataclass(frozen=True)
class Setting:
    """What the registry says about a delayed topic."""

    layout: Layout
    retry_cap: int
    ready_partitions: int
    targets: Sequence[tuple[str, int | None]] = ()

    @property
    def known_targets(self) -> dict[str, int]:
        return {topic: partitions for topic, partitions in self.targets if partitions is not None}

    @property
    def policy(self) -> engine.Policy:
        """The same, for the engine."""
        return engine.Policy(
            delay_seconds=self.layout.delay_seconds,
            ladder_seconds=self.layout.ladder_seconds,
            partition_delays=self.layout.partition_delays,
            retry_cap=self.retry_cap,
            ready_partitions=self.ready_partitions,
            max_delay_seconds=MAX_DELAY_SECONDS,
            targets=self.targets,
            outage_budget_seconds=OUTAGE_BUDGET_SECONDS,
        )


@dataclass(frozen=True, kw_only=True)
class Case:
    """A record, what is known when it is read, and a later time at which it is judged again. `topic_letter`: f for the front topic, d for
    the delays topic. `appended_at_ms`: None if the topic has the timestamps of producers. `headers`: None if a name can't be decoded.
    """

    setting: Setting = field(repr=False)
    topic_letter: Literal["f", "d"]
    partition: int
    offset: int
    appended_at_ms: int | None
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] | None = ()
    now_ms: int
    later_ms: int

    @property
    def delay_seconds(self) -> int | None:
        """The delay of the partition; None in the front topic."""
        return self.setting.layout.partition_delays[self.partition] if self.topic_letter == "d" else None

    @property
    def asked(self) -> tuple[str, int | None] | None:
        """The topic and, if given, the partition that the record requests. Only for headers that can be parsed."""
        target = next((value for name, value in self.headers or () if name == "dt-target"), None)
        if target is None:
            return None
        topic, _, partition = target.decode().partition(":")
        return topic, int(partition) if partition else None

    @property
    def is_target_missing(self) -> bool:
        """Whether the record requests an allowed topic that is missing, or that lacks the partition."""
        partitions = self.setting.known_targets.get(self.asked[0]) if self.asked else None
        return self.asked is not None and partitions is not None and (self.asked[1] or 0) >= partitions

    @property
    def origin(self) -> bytes:
        return f"{self.topic_letter}:{self.partition}:{self.offset}".encode()

    @property
    def root(self) -> bytes:
        """The root of the record, if no worker has written it."""
        return self.origin + b":" + TOPIC_ID.encode()

    def record(self) -> engine.Record:
        return engine.Record(
            delay_seconds=self.delay_seconds,
            partition=self.partition,
            offset=self.offset,
            topic_id=TOPIC_ID,
            appended_at_ms=self.appended_at_ms,
            key=self.key,
            headers=None if self.headers is None else encoded(self.headers),
        )


def encoded(headers: Sequence[Header]) -> list[tuple[bytes, bytes | None]]:
    """Returns headers as the engine takes and returns them."""
    return [(name.encode(), value) for name, value in headers]


def random_setting(random: Random) -> Setting:
    """Returns the layout that a random sequence of manifests leads to, with retired kinds, and with added lanes and main partitions."""
    layout: Layout | None = None
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        spec = LayoutSpec(
            delay_seconds=tuple(random.choices(DELAYS, k=random.randint(1, 6))),
            partitions=random.randint(1, 16),
            lanes_per_delay=random.choice((1, 1, 2, 3)),
            ladder_seconds=random.choice(LADDERS),
        )
        layout = initial(spec) if layout is None else evolve(layout, spec)
    assert layout is not None
    retry_cap = random.choice((0, 1, 3, 5, 2**31 - 1))
    return Setting(layout, retry_cap, random.choice((1, 2, 3, 8, 12, 100)), targets=random.choice(((), TARGETS)))


class Cases:
    """Draws random cases. The same random numbers give the same cases."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._settings = [random_setting(random) for _ in range(100)]

    def draw(self) -> Case:
        random = self._random
        setting = random.choice(self._settings)
        layout = setting.layout
        topic_letter: Literal["f", "d"] = "f" if random.random() < 0.6 else "d"
        partition = random.choice((0, 1, 2, 3, 7, 2**31 - 1))
        if topic_letter == "d":
            partition = random.randrange(layout.partition_count)
        now_ms = NOW_MS + random.randrange(1000)
        age_ms = random.choice((0, random.randrange(-3000, 3000), random.randrange(1, 4_000_000)))
        headers = self._headers(topic_letter, layout)
        later_ms = now_ms + random.choice((0, 1, 999, 1000, 1001, random.randrange(100_000), random.randrange(10**10)))
        return Case(
            setting=setting,
            topic_letter=topic_letter,
            partition=partition,
            offset=random.choice((0, random.randrange(10**6), random.randrange(2**40), MAX_OFFSET)),
            appended_at_ms=None if random.random() < 0.02 else now_ms - age_ms,
            key=random.choice((None, b"", b"k", b"order-%d" % random.randrange(1000), b"\xff" * 7)),
            value=random.choice((None, b"", b"v" * 100)),
            headers=None if random.random() < 0.005 else headers,
            now_ms=now_ms,
            later_ms=later_ms,
        )

    def _headers(self, topic_letter: str, layout: Layout) -> list[Header]:
        random = self._random
        headers = random.choices(FOREIGN, k=random.choice((0, 0, 1, 2, 4)))
        kind = random.random()
        if kind < 0.25:
            return headers
        if kind < 0.45:
            return self._disturbed([*headers, *self._retry()])
        if kind < (0.55 if topic_letter == "f" else 0.85):
            return self._disturbed(self._hop(headers, layout))
        own = [self._any_own() for _ in range(random.randrange(1, 4))]
        return self._disturbed([*headers, *own]) if random.random() < 0.3 else [*headers, *own]

    def _retry(self) -> list[Header]:
        """Returns the headers of a retry that a client sends: only its own, or those of the ready record too."""
        random = self._random
        attempt = random.randrange(5)
        own: list[Header] = [
            ("dt-id", b"order-%d" % random.randrange(1000)),
            ("dt-attempt", b"%d" % attempt),
            ("dt-group", b"billing"),
            ("dt-created-at", b"%d" % (NOW_MS - 5000)),
            ("dt-done-at", b"%d" % NOW_MS),
            ("dt-error", random.choice((b"boom", b"x" * 3000, b"\xff"))),
        ]
        if random.random() < 0.5:
            return own
        released = max(0, attempt - random.randrange(2))
        copied = copies.release(
            [], attempt=released, root=self._root(), origin=b"d:1:2", due_at_ms=NOW_MS, released_at_ms=NOW_MS
        )
        return [*own, *(header for header in copied if header[0] not in ("dt-id", "dt-attempt"))]

    def _hop(self, headers: list[Header], layout: Layout) -> list[Header]:
        random = self._random
        id_header: list[Header] = [("dt-id", b"order-7")] if random.random() < 0.5 else []
        delay_ms = random.choice(layout.delay_seconds) * 1000
        due_at_ms = NOW_MS + random.choice((0, delay_ms, -delay_ms, random.randrange(-5000, 5000), 10**9))
        hop = copies.hop(
            [*headers, *id_header],
            root=self._root(),
            origin=b"f:3:17",
            due_at_ms=due_at_ms,
            attempt=random.randrange(4),
            hops=random.randrange(1, 4),
        )
        return hop if random.random() < 0.7 else [*hop, ("dt-error", b"boom")]

    def _root(self) -> Root:
        random = self._random
        topic_letter = random.choice(("f", "f", "d"))
        return Root(topic_letter, random.randrange(12), random.randrange(2 ** random.choice((10, 40, 63))), TOPIC_ID)

    def _any_own(self) -> Header:
        name = self._random.choice(OWN)
        pool = POOLS.get(name, NUMBERS)
        return name, self._random.choice(pool if self._random.random() < 0.9 else TEXTS)

    def _disturbed(self, headers: list[Header]) -> list[Header]:
        """Returns the headers unchanged three times in four. Otherwise one is removed, doubled, added or changed, or all are shuffled."""
        random = self._random
        if not headers or random.random() < 0.75:
            return headers
        at = random.randrange(len(headers))
        match random.randrange(6):
            case 0:
                del headers[at]
            case 1:
                headers.insert(random.randrange(len(headers)), headers[at])
            case 2:
                headers[at] = headers[at][0], self._any_own()[1]
            case 3:
                headers.insert(at, self._any_own())
            case 4:
                random.shuffle(headers)
            case _:
                name = headers[at][0]
                headers[at] = name, random.choice(POOLS.get(name, NUMBERS))
        return headers
