"""A process is identified by more than its id, and can be stopped in any state."""

import json
import re
import signal
from pathlib import Path

import pytest
from delayed_topics_devcluster.errors import CommandFailedError, NotInTimeError
from delayed_topics_devcluster.processes import Process, died, program_runs, start_detached
from delayed_topics_devcluster.waiting import wait_until


def start(tmp_path: Path, script: str) -> Process:
    return start_detached(["sh", "-c", script], log=tmp_path / "log")


def changed(file: Path, **fields: object) -> Process:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    found = Process.read(file)
    assert found is not None
    return found


@pytest.mark.process
def test_a_process_is_found_again_by_its_file(tmp_path: Path) -> None:
    process = start(tmp_path, "exec sleep 60")
    process.write(tmp_path / "process.json")
    assert Process.read(tmp_path / "process.json") == process
    process.kill()
    assert not process.alive()


@pytest.mark.parametrize("field", [{"started_at_ticks": 1}, {"boot_id": "another boot"}])
@pytest.mark.process
def test_an_id_that_was_given_to_somebody_else_is_never_ended(tmp_path: Path, field: dict[str, object]) -> None:
    process = start(tmp_path, "exec sleep 60")
    file = tmp_path / "process.json"
    process.write(file)
    stale = changed(file, **field)
    assert not stale.alive()
    stale.kill()
    stale.stop()
    assert process.alive()
    process.kill()


def test_a_file_that_a_crash_cut_off_means_no_process(tmp_path: Path) -> None:
    file = tmp_path / "process.json"
    assert Process.read(file) is None
    file.write_text('{"pid": 1')
    assert Process.read(file) is None


@pytest.mark.process
def test_stop_lets_a_process_finish(tmp_path: Path) -> None:
    process = start(tmp_path, "trap 'echo finished; exit' TERM; echo ready; while :; do sleep 0.1; done")
    wait_until(lambda: "ready" in (tmp_path / "log").read_text(), what="the process is ready")
    process.stop(timeout_seconds=120)
    assert (tmp_path / "log").read_text() == "ready\nfinished\n"


@pytest.mark.process
def test_stop_ends_a_process_that_does_not_listen(tmp_path: Path) -> None:
    process = start(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    wait_until(lambda: "ready" in (tmp_path / "log").read_text(), what="the process is ready")
    process.stop(timeout_seconds=0.2)
    assert not process.alive()


@pytest.mark.process
def test_stop_ends_a_process_that_is_suspended(tmp_path: Path) -> None:
    process = start(tmp_path, "exec sleep 60")
    process.signal(signal.SIGSTOP)
    process.stop(timeout_seconds=5)
    assert not process.alive()


@pytest.mark.process
def test_a_program_that_ended_shows_the_end_of_its_log(tmp_path: Path) -> None:
    process = start(tmp_path, "sleep 2; echo no such flag; exit 1")
    wait_until(lambda: not process.alive(), what="the process ends")
    error = died("etcd", tmp_path / "log")
    assert isinstance(error, CommandFailedError)
    assert error.message.startswith("etcd ended; the end of ")
    assert error.message.endswith("no such flag")


def test_running_programs_are_found_by_name() -> None:
    assert program_runs(Path("/proc/self/comm").read_text().strip())
    assert not program_runs("no-such-program")


def test_waiting_says_what_it_waited_for() -> None:
    with pytest.raises(NotInTimeError, match=r"^timed out after 0.1 seconds. Waited for: the moon is full$"):
        wait_until(lambda: False, what="the moon is full", timeout_seconds=0.1)


def test_waiting_gives_what_was_enough_or_says_what_was_seen_instead() -> None:
    phases = iter(["new", "half"])
    assert wait_until(lambda: next(phases), what="half a moon", enough="half".__eq__) == "half"
    seen = re.escape('Waited for: a sign. Seen last: {\n "path": "PosixPath(\'/dev\')"\n}. Seen: clouds')
    with pytest.raises(NotInTimeError, match=seen):
        wait_until(
            lambda: {"path": Path("/dev")},
            what="a sign",
            enough=lambda found: not found,
            evidence=lambda: "clouds",
            timeout_seconds=0.1,
        )
