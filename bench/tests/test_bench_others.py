"""The benchmark distinguishes other programs from its own processes, and a slow host from a fast one."""

import subprocess
import sys

import pytest
from delayed_topics_bench.others import Usage, others_share, programs_ticks
from delayed_topics_bench.pace import slowed_share

BURN = "import time\nwhile time.process_time() < 1: pass"


@pytest.mark.process
def test_our_own_children_are_not_others_whether_they_run_or_have_ended() -> None:
    before = Usage.now()
    command = [sys.executable, "-c", BURN + "\nprint(flush=True)\ninput()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        subprocess.run([sys.executable, "-c", BURN], check=True)
        assert running.stdout is not None
        assert running.stdout.readline() == b"\n", "the running child has used a second of processor time, too"
        after = Usage.now()
        running.communicate(b"\n")
    ticks_per_second = 100
    assert after.own - before.own >= 1.5 * ticks_per_second
    assert 0 <= others_share(before, after) <= 1


def test_the_share_is_of_all_processors() -> None:
    before = Usage(passed=0, used=0, own=0)
    assert others_share(before, Usage(passed=400, used=300, own=200)) == 0.25
    assert others_share(before, Usage(passed=400, used=200, own=202)) == 0.0


def test_what_the_kernel_does_in_interrupts_for_our_own_connections_is_not_taken_for_another_program() -> None:
    idle, waits, interrupts, soft_interrupts, stolen = 40, 2, 1, 8, 9
    stat = f"cpu  20 10 30 {idle} {waits} {interrupts} {soft_interrupts} {stolen} 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"
    assert programs_ticks(stat) == (120, 60)


def test_a_host_that_gives_half_is_found_by_how_long_the_same_work_takes() -> None:
    usual, half = [0.0020, 0.0021] * 50, [0.0040] * 10
    assert slowed_share(usual, of=[*usual, *half]) == 0
    assert slowed_share([*usual[:30], *half], of=[*usual, *half]) == 0.25
