"""A sampled stack belongs to one section, and shares are of the relay's own thread only."""

from pathlib import Path

import pytest
from delayed_topics_bench.cpu import section_of, shares
from delayed_topics_worker import relay

RUN = "Relay.run (delayed_topics_worker/relay.py:120)"


@pytest.mark.parametrize(
    ("frames", "section"),
    [
        (["Intake.take_in (delayed_topics_worker/intake.py:46)"], "take-in"),
        (["Relay._release (relay.py:1)", "Releaser.work (release.py:2)", "decide (copies.py:39)"], "decision"),
        (["Relay._release (relay.py:1)", "read_front (delayed_topics_core/headers.py:9)"], "decision"),
        (["Relay._release (relay.py:1)", "release_plain (plain.py:3)"], "release"),
        (["Relay._release (relay.py:1)", "write_hop (delayed_topics_core/headers.py:9)"], "release"),
        (["Relay._settle_some (relay.py:1)", "Barrier.turn (barrier.py:3)", "decide (copies.py:39)"], "barrier"),
        (["Relay._hold (relay.py:1)", "Brake.turn (brake.py:3)"], "other"),
    ],
)
def test_a_stack_belongs_to_its_section(frames: list[str], section: str) -> None:
    assert section_of(["main (cli.py:1)", RUN, *frames]) == section


def test_other_threads_belong_to_none() -> None:
    assert section_of(["Thread.run (threading.py:982)", "TopicWatch._run (topic_watch.py:55)"]) is None


def test_what_a_compiled_module_does_counts_for_the_line_that_calls_it() -> None:
    lines = Path(relay.__file__).read_text().splitlines()
    (called_at,) = [n for n, line in enumerate(lines, 1) if "_intake.take_in(" in line]
    raw = [
        f"Relay.run (delayed_topics_worker/relay.py:{called_at}) 7",
        "Relay.run (delayed_topics_worker/relay.py:1) 3",
    ]
    assert shares(raw) == {"take-in": 0.7, "other": 0.3}


def test_shares_are_of_the_relays_own_thread() -> None:
    raw = [
        f"{RUN};Intake.take_in (intake.py:1) 30",
        f"{RUN};Relay._release (relay.py:1) 60",
        f"{RUN} 10",
        "Thread.run (threading.py:982) 900",
    ]
    assert shares(raw) == {"take-in": 0.3, "release": 0.6, "other": 0.1}
