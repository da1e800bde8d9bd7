"""The rebalances of a group, derived from the generations that Kafka itself has recorded."""

from types import SimpleNamespace
from typing import Any

from delayed_topics_worker_testing.generations import Generation, moves, must_have_learned

A, B = ("orders", 0), ("orders", 1)


def generation(number: int, at_seconds: int, **owners: str) -> Generation:
    return Generation(
        number=number,
        at_ms=at_seconds * 1000,
        owners={{"a": A, "b": B}[place]: owner for place, owner in owners.items()},
    )


def process(member: str, started_at: int, ended_at: int | None = None) -> Any:
    ended_at_ms = None if ended_at is None else ended_at * 1000
    return SimpleNamespace(member=member, started_at_ms=started_at * 1000, ended_at_ms=ended_at_ms)


def test_a_generation_counts_the_partitions_that_got_another_owner() -> None:
    recorded = [generation(1, 0, a="w0", b="w0"), generation(2, 9, a="w0", b="w1"), generation(3, 20, a="w0", b="w1")]
    assert list(moves(recorded)) == [(1, 2), (2, 1)]


def test_a_member_never_had_a_partition_that_it_did_not_hear_of() -> None:
    recorded = [generation(1, 0, a="w0", b="w0"), generation(2, 9, a="w0", b="w1"), generation(3, 20, a="w0", b="w0")]
    assert list(moves(recorded, lambda number, member: (number, member) != (2, "w1"))) == [(1, 2)]


def test_who_is_alive_hears_of_a_generation_that_lasts() -> None:
    recorded = [generation(number, at, a="w0", b="w1") for number, at in ((1, 10), (2, 20), (3, 20), (4, 30))]
    alive, late = process("w0", 0), process("w1", 16)
    assert must_have_learned(recorded, [alive, late], "classic") == {(1, "w0"), (3, "w0"), (4, "w0"), (4, "w1")}


def test_whose_process_ends_soon_after_a_generation_may_not_have_heard_of_it() -> None:
    recorded = [generation(1, 10, a="w0", b="w1"), generation(2, 30, a="w0", b="w1")]
    assert must_have_learned(recorded, [process("w0", 0, 30)], "classic") == {(1, "w0")}


def test_a_generation_says_nothing_of_members_that_it_gives_nothing() -> None:
    assert must_have_learned([generation(1, 10, a="w0")], [process("w1", 0)], "classic") == set()


def test_an_epoch_gives_partitions_to_several_members_one_after_the_other() -> None:
    recorded = [generation(1, 0, a="w0", b="w0"), generation(2, 9, a="w1"), generation(2, 12, b="w2")]
    assert list(moves(recorded)) == [(1, 2), (2, 2)]


def test_who_goes_on_after_its_heartbeat_was_answered_has_heard_the_answer() -> None:
    recorded = [generation(1, 10, a="w0"), generation(1, 10, b="w1"), generation(2, 11, b="w0")]
    alive, killed = process("w0", 9), process("w1", 0, 10)
    assert must_have_learned(recorded, [alive, killed], "consumer") == {(1, "w0"), (2, "w0")}
