"""T3: headers that no one should write, each with what has to become of the record."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from confluent_kafka import Producer
from delayed_topics_core.headers import Header
from delayed_topics_worker_testing.foreign_client import produce_with_raw_header_key

from delayed_topics_faults.copies import EXPECT
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import Testbed, now_ms

RECORDS: Final = 1000
DELAYS: Final = (0, 1, 2)
CAP: Final = 3
NUMBERS: Final = ("dt-attempt", "dt-delay-level", "dt-deliver-at", "dt-generation", "dt-created-at", "dt-done-at")
TEXTS: Final = ("dt-id", "dt-group", "dt-target")
NO_NUMBERS: Final = (
    *(b"-1", b"+1", b"1e9", b" 5 ", b"5 ", b"", b"0x10", b"1.0", b"1_000", b"NaN", b"\x00", b"\xff\xfe", b"null"),
    *("\u0665".encode(), "\u0968".encode(), "\uff15".encode()),  # Arabic, Devanagari and fullwidth digits
    *(b"9223372036854775808", b"9" * 20, b"0" * 30, b"1" * 4000),
)
"""9223372036854775808 is 2^63."""
NO_TEXTS: Final = (b"", "ü".encode(), b"x" * 300, b"\xff")


class Fuzzed(NamedTuple):
    headers: Sequence[Header]
    expect: bytes


def _unreadable(headers: Sequence[Header]) -> Fuzzed:
    return Fuzzed(headers, b"dead:HeaderUnreadable")


def _ready(headers: Sequence[Header], delay_seconds: int = 0) -> Fuzzed:
    return Fuzzed(headers, b"ready:%d" % (delay_seconds * 1000))


def _no_number(rng: Random) -> Fuzzed:
    value = rng.choice((*NO_NUMBERS, None, rng.randbytes(rng.randint(20, 40))))
    return _unreadable([(rng.choice(NUMBERS), value)])


def _no_text(rng: Random) -> Fuzzed:
    return _unreadable([(rng.choice(TEXTS), rng.choice((*NO_TEXTS, None)))])


def _level(rng: Random) -> Fuzzed:
    level = rng.choice((0, 1, 2, 3, 4, 10**9, 2**63 - 1))
    text = b"%d" % level if rng.random() < 0.7 else b"%019d" % level
    if level == 0:
        return _unreadable([("dt-delay-level", text)])
    return _ready([("dt-delay-level", text)], DELAYS[min(level, len(DELAYS)) - 1])


def _attempt(rng: Random) -> Fuzzed:
    attempt = rng.choice((0, 1, 2, CAP, CAP + 1, 2**31 - 1, 2**31, 2**63 - 1))
    headers: list[Header] = [("dt-attempt", b"%d" % attempt)]
    if attempt >= 2**31:
        return _unreadable(headers)
    if attempt > CAP:
        return Fuzzed(headers, b"dead:RetryCapExceeded")
    return _ready(headers, DELAYS[min(attempt, len(DELAYS) - 1)])


def _twice(rng: Random) -> Fuzzed:
    name = rng.choice((*NUMBERS, *TEXTS, "dt-error"))
    return Fuzzed([(name, b"1"), ("x-between", b"1"), (name, rng.choice((b"1", b"2", b"junk")))], b"dead:HeaderTwice")


def _unsupported(rng: Random) -> Fuzzed:
    """Due times long ago, in ten years and at the end of time, and a target that is not allowed."""
    if rng.random() < 0.3:
        return Fuzzed([("dt-target", b"elsewhere")], b"dead:TargetNotAllowed")
    at_ms = rng.choice((0, 1, now_ms() + 10 * 365 * 86_400_000, 2**63 - 1))
    return Fuzzed([("dt-deliver-at", b"%d" % at_ms)], b"dead:NoLadder")


def _forged(rng: Random) -> Fuzzed:
    """Workers drop the headers that only workers write, except that `dt-released` raises the attempt."""
    junk = rng.choice((b"", b"f:0:0:x", b"-1", b"\xff", b"9" * 50, None))
    names = rng.sample(("dt-root", "dt-origin", "dt-due-at", "dt-hops", "dt-reason"), rng.randint(1, 5))
    headers: list[Header] = [(name, junk) for name in names]
    if rng.random() < 0.3:
        released = rng.choice((0, 1, CAP))
        attempt = released + 1
        headers.append(("dt-released", b"%d:%d" % (released, now_ms())))
        return Fuzzed(headers, b"dead:RetryCapExceeded") if attempt > CAP else _ready(headers, DELAYS[min(attempt, 2)])
    headers.append(("dt-released", rng.choice((b"junk", b"-1:5", b":", b"99999999999:1"))))
    return _ready(headers)


def _large_own(rng: Random) -> Fuzzed:
    return _ready([("dt-error", b"e" * rng.choice((4096, 10 << 20)))])


def _large_foreign(rng: Random) -> Fuzzed:
    return _ready([("x-large", bytes(10 << 20))])


def _many(rng: Random) -> Fuzzed:
    return _ready([(f"x-{n % 7}", rng.choice((b"", None, b"1"))) for n in range(10_000)])


def _nearly_own(rng: Random) -> Fuzzed:
    return _ready([(rng.choice(("DT-attempt", "dt-attemp", "dt-", "dt", "Dt-Id", "dt-attempt ")), rng.randbytes(9))])


def _plain(rng: Random) -> Fuzzed:
    return _ready([("x", rng.randbytes(3))] if rng.random() < 0.5 else [])


KINDS: Final[Sequence[tuple[int, Callable[[Random], Fuzzed]]]] = (
    *((30, _no_number), (10, _no_text), (10, _level), (10, _attempt), (10, _twice), (5, _unsupported), (10, _forged)),
    *((1, _large_own), (1, _large_foreign), (1, _many), (5, _nearly_own), (30, _plain)),
)


class Fuzz(Row):
    name = "T3"
    fault = f"{RECORDS} records a trial with headers out of every bound, forged, doubled, huge or not UTF-8"

    def open(self, testbed: Testbed) -> None:
        testbed.declare(DELAYS, retry_cap=CAP)
        self._worker = testbed.start()
        # compression gets a 10 MiB header past the front topic's limit
        self._producer = Producer(
            {
                **testbed.harness.connection.client_config(),
                "compression.type": "zstd",
                "message.max.bytes": 100_000_000,
                "linger.ms": 5,
            }
        )

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        weights = [weight for weight, _ in KINDS]
        for n in range(RECORDS):
            partition = rng.randrange(2)
            if rng.random() < 0.005:
                self._producer.flush(30)
                self._produce_raw(testbed, rng, partition)
                continue
            ((_, kind),) = rng.choices(KINDS, weights)
            fuzzed = kind(rng)
            headers = [*fuzzed.headers, (EXPECT, fuzzed.expect)]
            rng.shuffle(headers)
            self._producer.produce(
                testbed.orders.names.front,
                rng.randbytes(n % 50),
                headers=headers,  # type: ignore[arg-type]  # a list is invariant
                partition=partition,
            )
            self._producer.poll(0)
        self._producer.flush(60)
        return Trial(injected=f"{RECORDS} fuzzed records", terms={"healed_at_ms": now_ms()})

    def _produce_raw(self, testbed: Testbed, rng: Random, partition: int) -> None:
        key = rng.choice((b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80"))
        produce_with_raw_header_key(
            testbed.harness.connection,
            testbed.orders.names.front,
            partition=partition,
            key=b"k",
            value=b"raw" * 500,
            headers=[(key, b"v"), (EXPECT.encode(), b"dead:HeaderUnreadable")],
        )
