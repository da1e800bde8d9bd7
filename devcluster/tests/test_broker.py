"""The broker for tests keeps its data and ports over restarts, and is removed afterwards."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.kafka import java_tool
from delayed_topics_devcluster.processes import Process
from delayed_topics_devcluster.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def produce(broker: Broker, topic: str, records: str) -> None:
    java_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        *("--request-timeout-ms", "60000"),
        text_in=records,
    )


def consume(broker: Broker, topic: str, count: int) -> list[str]:
    return java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "120000"),
    ).splitlines()


def test_records_survive_a_restart_and_a_kill(own_broker: Broker) -> None:
    bootstrap = own_broker.bootstrap
    produce(own_broker, "kept", "a\nb\n")
    own_broker.restart()
    produce(own_broker, "kept", "c\n")
    own_broker.kill()
    own_broker.restart()
    assert own_broker.bootstrap == bootstrap
    assert consume(own_broker, "kept", 3) == ["a", "b", "c"]


def test_a_paused_broker_serves_again_after_resume(own_broker: Broker) -> None:
    own_broker.pause()
    state = Path(f"/proc/{own_broker.pid}/stat")
    wait_until(lambda: ") T " in state.read_text(), what="the broker is stopped")
    own_broker.resume()
    produce(own_broker, "paused", "a\n")
    assert consume(own_broker, "paused", 1) == ["a"]


def test_a_broker_that_is_not_running_says_so() -> None:
    with pytest.raises(DevclusterError, match=r"not running\. Call start\(\)"):
        Broker().kill()


def test_a_broker_whose_owner_was_killed_is_ended_by_the_next_one() -> None:
    script = (
        "import os\nfrom delayed_topics_devcluster.broker import Broker\n"
        "broker = Broker()\nbroker.start()\nprint(broker.directory)\n"
        "print((broker.directory / 'broker.json').read_text(), flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    directory, process = killed.stdout.splitlines()
    orphan = Process(**json.loads(process))  # a broker of another test may have ended it already
    with Broker() as following:
        assert not orphan.alive()
        wait_until(lambda: not Path(directory).exists(), what=f"{directory} is removed")
        directory_of_following = following.directory
    assert not directory_of_following.exists()
    assert directory_of_following.parent == Path(tempfile.gettempdir())
