"""Simulates how evenly the assignors of librdkafka distribute partitions among workers.

`python -m delayed_topics_bench.assignment` prints a line of JSON for each assignor. A worker can't bring an assignor of its own:
librdkafka has three, and the protocol `Consumer` uses those of the broker. docs/rebalances.md has the figures.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Final

__all__ = ["ASSIGNORS", "Owners", "balance", "range_", "round_robin", "sticky"]

Place = tuple[str, int]
Owners = dict[Place, int]
"""The number of the worker that has each partition."""
Assignor = Callable[[Mapping[str, int], int, Owners], Owners]
"""Assigns topics, given with their partition counts, to a number of workers. The third argument has the owners before."""

FRONT, DELAYS = "orders", "orders.delays"
WORKERS: Final = 100
FRONT_PARTITIONS: Final = 300
LANES: Final = (300, 100, 100, 100, 100)
"""The number of lanes of each delay, in the order of the partitions of the delays topic."""
SEED: Final = 14


def range_(topics: Mapping[str, int], workers: int, _: Owners) -> Owners:
    """Gives each worker consecutive partitions of each topic; the first workers get one more if the division leaves a remainder."""
    owners: Owners = {}
    for topic, count in topics.items():
        each, more = divmod(count, workers)
        number = 0
        for worker in range(workers):
            for _number in range(each + (worker < more)):
                owners[topic, number] = worker
                number += 1
    return owners


def round_robin(topics: Mapping[str, int], workers: int, _: Owners) -> Owners:
    """Deals out all partitions one by one, topic by topic."""
    places = [(topic, number) for topic, count in sorted(topics.items()) for number in range(count)]
    return dict(zip(places, cycle(range(workers)), strict=False))


def sticky(topics: Mapping[str, int], workers: int, before: Owners) -> Owners:
    """Lets workers keep their partitions as long as none has two more than another."""
    owners = {place: worker for place, worker in before.items() if worker < workers}
    held = Counter(dict.fromkeys(range(workers), 0))
    held.update(owners.values())
    for topic, count in sorted(topics.items()):
        for number in range(count):
            if (topic, number) not in owners:
                least = min(range(workers), key=lambda worker: held[worker])
                owners[topic, number] = least
                held[least] += 1
    for place, worker in sorted(owners.items()):
        least = min(range(workers), key=lambda number: held[number])
        if held[worker] > held[least] + 1:
            owners[place] = least
            held[worker] -= 1
            held[least] += 1
    return owners


ASSIGNORS: Final[Mapping[str, Assignor]] = {"Range": range_, "RoundRobin": round_robin, "Sticky": sticky}


def balance(owners: Owners, loads: Mapping[Place, float], workers: int) -> float:
    """Returns the load of the busiest worker as a multiple of the average."""
    carried = [0.0] * workers
    for place, worker in owners.items():
        carried[worker] += loads.get(place, 0)
    return max(carried) * workers / sum(carried)


def loads_of(lanes: Sequence[int], shares: Sequence[float], front_partitions: int) -> dict[Place, float]:
    """Returns the load of each partition. Each record is read in the front topic and in a lane of its delay; `shares` is by delay."""
    loads: dict[Place, float] = {(FRONT, number): 1 / front_partitions for number in range(front_partitions)}
    number = 0
    for count, share in zip(lanes, shares, strict=True):
        for _ in range(count):
            loads[DELAYS, number] = share / count
            number += 1
    return loads


def main() -> None:
    topics = {FRONT: FRONT_PARTITIONS, DELAYS: sum(LANES)}
    kinds = len(LANES)
    rng = random.Random(SEED)
    hot_keys = loads_of(LANES, [1 / kinds] * kinds, FRONT_PARTITIONS)
    for place in rng.sample(sorted(hot_keys), len(hot_keys) // 20):
        hot_keys[place] *= 10
    cases = {
        "all delays alike": loads_of(LANES, [1 / kinds] * kinds, FRONT_PARTITIONS),
        "nearly all with one delay": loads_of(LANES, [0.02, 0.92, 0.02, 0.02, 0.02], FRONT_PARTITIONS),
        "hot partitions, 1 of 20 with 10 times as much": hot_keys,
    }
    for name, assign in ASSIGNORS.items():
        owners = assign(topics, WORKERS, {})
        figures: dict[str, object] = {"assignor": name, "workers": WORKERS, "partitions": len(owners)}
        figures["busiest_worker"] = {case: round(balance(owners, loads, WORKERS), 2) for case, loads in cases.items()}
        for more in (1, 10):
            after = assign(topics, WORKERS + more, owners)
            moved = sum(after[place] != owner for place, owner in owners.items())
            figures[f"moved_by_{more}_more"] = f"{moved / len(owners):.0%}"
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
