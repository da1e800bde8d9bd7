"""A client in a forked child of the process that made it. The threads of the client do not exist in the child, so it could never send
anything."""

import gc
import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

import pytest
from delayed_topics import ClientForked, DelayedTopic, Record, Records
from delayed_topics_client_testing import Served
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.names import TopicNames
from delayed_topics_core_testing.served import serving
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.registry import RegistryFollower

pytestmark = pytest.mark.process

NOWHERE = Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": "0"})
NAMES = TopicNames.of("orders")
RECORD = Record(
    key=None, value=b"x", due_at_ms=1, released_at_ms=1, appended_at_ms=1, topic=NAMES.ready, partition=0, offset=7
)
CHILD_SECONDS = 10

Client = tuple[DelayedTopic, Records]


@pytest.fixture(scope="module")
def client() -> Client:
    """The client is not closed, because closing would wait for Kafka."""
    layout = serving("orders", initial(LayoutSpec(delay_seconds=(0, 60), partitions=2)), control=True)
    follower = RegistryFollower(NOWHERE)
    follower.state.layouts["orders"] = layout
    orders = DelayedTopic(NOWHERE, NAMES, follower, layout)
    orders.send(b"of the parent")
    return orders, orders.records("shipping")


CALLS: dict[str, Callable[[DelayedTopic, Records], object]] = {
    "send": lambda orders, _: orders.send(b"x"),
    "flush": lambda orders, _: orders.flush(0.1),
    "layout": lambda orders, _: orders.layout,
    "cancel": lambda orders, _: orders.cancel("order-7"),
    "reschedule": lambda orders, _: orders.reschedule("order-7", 1),
    "withdraw": lambda orders, _: orders.withdraw("order-7"),
    "consume": lambda orders, _: orders.consume("billing", print),
    "iterate": lambda _, records: next(iter(records)),
    "retry": lambda _, records: records.retry(RECORD, RuntimeError("not now")),
    "reject": lambda _, records: records.reject(RECORD, "never"),
}


FORKS = """
import os, signal, sys, threading
from delayed_topics import DelayedTopic

bootstrap, topic, what = sys.argv[1:]

def connect(value):
    global orders, records
    orders = DelayedTopic.connect(bootstrap, topic)
    records = orders.records("billing")
    orders.send(value)
    orders.flush()

def connect_as_own():
    own.orders = DelayedTopic.connect(bootstrap, topic)
    own.orders.send(b"of a thread")
    own.orders.flush()
    connected.set()
    threading.Event().wait()

own, connected = threading.local(), threading.Event()
if what == "other thread":
    threading.Thread(target=connect_as_own, daemon=True).start()
    connected.wait(60)
else:
    connect(b"of the parent")
child = os.fork()
if not child:
    signal.alarm(30)  # ends a child that hangs
    if what == "connects":
        connect(b"of the child")  # in place of the client of the parent
    sys.exit()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


def forked(client: Client, call: Callable[[DelayedTopic, Records], object]) -> str:
    """Runs the call in a forked child. Returns "done", the text of the exception, or "hangs"."""

    def run(answer: Pipe) -> None:
        try:
            call(*client)
        except Exception as e:  # noqa: BLE001  every exception is reported to the parent
            answer.send(f"{type(e).__name__}: {e}")
        else:
            answer.send("done")

    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=run, args=(theirs,))
    gc.freeze()  # Kafka clients that other tests have left behind can't be destroyed in a forked process
    child.start()
    gc.unfreeze()
    theirs.close()  # so that `recv` fails if the child crashes
    try:
        return str(ours.recv()) if ours.poll(CHILD_SECONDS) else "hangs"
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("name", CALLS)
def test_a_forked_process_is_told_to_connect_itself(client: Client, name: str) -> None:
    answer = forked(client, CALLS[name])
    assert answer.startswith(f"{ClientForked.__name__}: the c"), answer
    assert answer.endswith("which was forked from it. Call DelayedTopic.connect in each process, after the fork")


def test_a_forked_process_can_leave_the_blocks_of_the_one_that_connected(client: Client) -> None:
    def leave(orders: DelayedTopic, records: Records) -> None:
        with orders, records:
            pass

    assert forked(client, leave) == "done"


@pytest.mark.broker
@pytest.mark.parametrize("what", ["ends", "connects", "other thread"])
def test_a_process_that_is_forked_from_one_with_a_client_neither_crashes_nor_hangs(served: Served, what: str) -> None:
    command = [sys.executable, "-c", FORKS, served.bootstrap, served.names.front, what]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "0\n", ended.stderr
    assert (b"of the child" in {record.value for record in served.read(served.names.front)}) == (what == "connects")
