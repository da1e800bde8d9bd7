"""However and whenever a consumer ends, each failed record has one retry, each rejected record one dead letter, and no record is
skipped."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from delayed_topics_client_testing import Served, serve
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection

pytestmark = pytest.mark.broker

WAIT_SECONDS = 240  # on a busy machine, each outage takes a minute


class Child(Closing):
    """A consumer in a process of its own, which is killed at the end of the with block. `handled` grows while the process runs."""

    def __init__(self, served: Served, *options: str) -> None:
        module = "delayed_topics_client_testing.failing_consumer"
        command = [sys.executable, "-m", module, served.bootstrap, served.names.front, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.handled: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def close(self) -> None:
        self._process.kill()
        self.wait()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Waits until the process has ended and all of its output has been read. Returns the exit code."""
        code = self._process.wait(WAIT_SECONDS)
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.handled.extend(line.strip() for line in self._process.stdout)


def wait_for_work(served: Served, child: Child, *, handled: int, count: int) -> None:
    """Waits until the child has handled more than `handled` records, or all `count` records are committed."""
    wait_until(
        lambda: len(child.handled) > handled or done(served) == count,
        what=f"more than {handled} of {count} records are handled, or all are committed",
        timeout_seconds=WAIT_SECONDS,
    )


def release(served: Served, end: int, *, first: int = 0) -> None:
    for n in range(first, end):
        served.release(b"%d" % n, partition=n % 3, number=n // 3)


def done(served: Served) -> int:
    return sum(served.committed("shipping", ended=False).values())


def assert_each_once(served: Served, count: int) -> None:
    retried = Counter(c.value for c in served.read(served.names.front))
    dead = Counter(c.value for c in served.read(served.names.dead_letter))
    assert retried == Counter(b"%d" % n for n in range(0, count, 10))
    assert dead == Counter(b"%d" % n for n in range(5, count, 10))


@pytest.mark.parametrize(
    ("step", "committed"),
    [
        pytest.param("offsets", 0, marks=pytest.mark.slow),
        ("commit", 0),
        pytest.param("more", 1, marks=pytest.mark.slow),
    ],
)
def test_sigkill_between_copy_and_commit_leaves_both_or_none(served: Served, step: str, committed: int) -> None:
    served.release(b"0")
    with Child(served, "--member", "pod-0", "--die-before", step) as child:
        assert child.wait() == -signal.SIGKILL
    # read with read_committed, as a worker reads the front topic
    ended = committed > 0
    assert served.committed("shipping", ended=ended).get(0, 0) == committed
    assert len(served.read(served.names.front, ended=ended)) == committed
    served.release(b"5")
    with Child(served, "--member", "pod-0") as restarted:
        wait_until(
            lambda: served.committed("shipping", ended=False).get(0) == 2,
            what="both offsets are committed",
            timeout_seconds=WAIT_SECONDS,
        )
        restarted.send(signal.SIGTERM)
        assert restarted.wait() == 0
    assert [c.value for c in served.read(served.names.front)] == [b"0"]
    assert [c.value for c in served.read(served.names.dead_letter)] == [b"5"]


@pytest.mark.parametrize("step", [pytest.param("offsets", marks=pytest.mark.slow), "more"])
def test_ctrl_c_that_arrives_in_the_middle_of_a_transaction_doubles_no_copy(served: Served, step: str) -> None:
    """CPython runs the signal handler right after the call that writes the copies or that commits, before the client can record that the
    call returned."""
    count = 60
    release(served, count)
    with Child(served, "--member", "pod-0", "--die-before", step, "--by", "SIGINT") as child:
        assert child.wait() == 1
    assert child.handled, "the consumer handled records before the signal ended it"
    assert 0 < done(served) < count
    with Child(served, "--member", "pod-0") as restarted:
        wait_until(lambda: done(served) == count, what="all records are committed", timeout_seconds=WAIT_SECONDS)
        restarted.send(signal.SIGTERM)
        assert restarted.wait() == 0
    assert_each_once(served, count)


@pytest.mark.slow
def test_sigkill_at_any_moment(served: Served) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    count = 400
    release(served, count)
    kills = 0
    while done(served) < count:
        with Child(served, "--member", "pod-0") as child:
            wait_for_work(served, child, handled=chance.randrange(50, 150), count=count)
            time.sleep(chance.uniform(0, 0.1))
        kills += 1
        assert kills < 40, f"seed {seed}"
    assert kills >= 2
    assert_each_once(served, count)


@pytest.mark.slow
def test_sigterm_at_any_moment_repeats_nothing(served: Served) -> None:
    count = 90
    release(served, count)
    handled: list[str] = []
    while done(served) < count:
        with Child(served, "--member", "pod-0", "--session-ms", "60000") as child:
            wait_for_work(served, child, handled=20, count=count)
            if child.handled:  # otherwise all was done before the child began, and it may not handle signals yet
                child.send(signal.SIGTERM)
                assert child.wait() == 0
        handled += child.handled
    assert Counter(handled) == Counter(str(n) for n in range(count))
    assert_each_once(served, count)


@pytest.mark.slow
def test_a_broker_that_is_killed_and_comes_back_costs_no_copy_and_doubles_none() -> None:
    with Broker() as broker:
        served = serve(Connection(bootstrap_servers=broker.bootstrap), "orders")
        count = 200
        with Child(served) as child:
            for n in range(count):
                if n == 100:
                    broker.kill()
                    time.sleep(3)
                    broker.start()
                served.release(b"%d" % n, partition=n % 3, number=n // 3)
            wait_until(lambda: done(served) == count, what=f"{count} are committed", timeout_seconds=WAIT_SECONDS)
            child.send(signal.SIGTERM)
            assert child.wait() == 0
        assert_each_once(served, count)


@pytest.mark.slow
def test_a_consumer_that_slept_through_its_session_doubles_no_copy(served: Served) -> None:
    count = 300
    release(served, count // 3)
    with Child(served) as sleeper:
        wait_until(lambda: done(served) > 0, what="the first is committed", timeout_seconds=WAIT_SECONDS)
        sleeper.send(signal.SIGSTOP)
        with Child(served) as heir:
            release(served, count, first=count // 3)
            wait_until(lambda: done(served) == count, what=f"{count} are committed", timeout_seconds=WAIT_SECONDS)
            sleeper.send(signal.SIGCONT)
            served.release(b"%d" % count, partition=0, number=count)
            wait_until(lambda: done(served) == count + 1, what="the last is committed", timeout_seconds=WAIT_SECONDS)
            for child in (sleeper, heir):
                child.send(signal.SIGTERM)
                assert child.wait() == 0
    assert_each_once(served, count + 1)
