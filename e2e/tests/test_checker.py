"""The checker finds each kind of fault."""

from collections.abc import Callable, Sequence

import pytest
from delayed_topics_e2e.checker import Account, delay_by_list, judge, unexplained_repeats
from delayed_topics_e2e.plain import Record

DELAYS = delay_by_list([0, 5])
Records = list[Record]


def record(topic: str, offset: int, at_ms: int, *headers: tuple[str, bytes], value: bytes = b"v") -> Record:
    return Record(
        topic=topic, partition=0, offset=offset, timestamp_ms=at_ms, key=b"k", value=value, headers=(*headers,)
    )


def root(offset: int) -> tuple[str, bytes]:
    return ("dt-root", b"f:0:%d:id" % offset)


def clean_run() -> tuple[Records, Records, Records]:
    front = [record("t", n, 1000 + n, ("dt-delay-level", b"%d" % (n % 2 + 1))) for n in range(10)]
    due = sorted(front, key=lambda r: (r.timestamp_ms + 1000 * DELAYS(r), r.offset))
    ready = [record("t.ready", n, r.timestamp_ms + 1000 * DELAYS(r), root(r.offset)) for n, r in enumerate(due[:-1])]
    dead = [record("t.dead", 0, 9000, root(due[-1].offset), ("dt-origin", b"d:0:9"))]
    return front, ready, dead


def judged(front: Sequence[Record], ready: Sequence[Record], dead: Sequence[Record]) -> Account:
    return judge(front=front, ready=ready, dead=dead, delay_of=DELAYS)


def test_a_clean_run_is_clean() -> None:
    account = judged(*clean_run())
    assert account.clean
    assert (account.produced, account.released, account.dead) == (10, 9, 1)


@pytest.mark.parametrize(
    ("fault", "counts"),
    [
        (lambda f, r, d: r.pop(3), {"lost": 1}),
        (lambda f, r, d: d.pop(), {"lost": 1}),
        (lambda f, r, d: r.append(record("t.ready", 99, 99_000, *r[0].headers)), {"doubled": 1}),
        (lambda f, r, d: r.append(record("t.ready", 99, 99_000, root(f[9].offset))), {"doubled": 1}),
        (lambda f, r, d: r.__setitem__(0, record("t.ready", 0, f[0].timestamp_ms - 1, *r[0].headers)), {"early": 1}),
        (
            lambda f, r, d: r.__setitem__(0, record("t.ready", 0, 99_000, *r[0].headers, value=b"other")),
            {"changed": 1},
        ),
        (lambda f, r, d: r.__setitem__(0, record("t.ready", 50, 99_000, *r[0].headers)), {"disordered": 1}),
    ],
    ids=["removed", "dead letter removed", "doubled", "dead and released", "early", "changed", "swapped"],
)
def test_each_fault_is_found_alone(fault: Callable[[Records, Records, Records], None], counts: dict[str, int]) -> None:
    front, ready, dead = clean_run()
    fault(front, ready, dead)
    account = judged(front, ready, dead)
    found = {name: getattr(account, name) for name in ("lost", "early", "doubled", "changed", "disordered")}
    assert found == {**dict.fromkeys(found, 0), **counts}


def copies(origin: str, at_ms: int) -> Records:
    """Two copies of each of four records, made from partition 0 of the topic with the letter `origin`: one at `at_ms`, one 9 s later."""
    return [
        record("t.ready", n, at_ms + late_ms, root(n % 4), ("dt-origin", b"%s:0:%d" % (origin.encode(), n % 4)))
        for n, late_ms in zip(range(8), (0, 0, 0, 0, 9000, 9000, 9000, 9000), strict=True)
    ]


@pytest.mark.parametrize(
    ("at_ms", "most", "beyond"),
    [(20_000, 4, {}), (20_000, 3, {"f:0": 1}), (10_000, 4, {"f:0": 4}), (30_000, 4, {"f:0": 4})],
    ids=["right before a kill", "more than one may repeat", "long before a kill", "long after it"],
)
def test_what_no_kill_may_have_repeated_is_found(at_ms: int, most: int, beyond: dict[str, int]) -> None:
    front = [record("t", n, 1000) for n in range(4)]
    assert unexplained_repeats(front=front, ready=copies("f", at_ms), kills_ms=[21_000], most=most) == beyond


@pytest.mark.parametrize(("kill_ms", "beyond"), [(1_500, {}), (21_000, {"f:0": 1})])
def test_what_hopped_twice_counts_from_when_it_came_in(kill_ms: int, beyond: dict[str, int]) -> None:
    front = [record("t", 0, 1000)]
    ready = [record("t.ready", n, 20_000, root(0), ("dt-origin", b"d:0:%d" % n)) for n in range(2)]
    assert unexplained_repeats(front=front, ready=ready, kills_ms=[kill_ms]) == beyond
