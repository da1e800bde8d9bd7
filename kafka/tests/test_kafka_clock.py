import time
from collections.abc import Callable

import pytest
from delayed_topics_core.names import CLOCK_TOPIC
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.clock import FRESH_SECONDS, BrokerClock, Sample
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import KafkaUnreachable
from delayed_topics_kafka.system_topics import ensure_system_topics
from hypothesis import given
from hypothesis import strategies as st

MS = 1_000_000


def probe_until(condition: Callable[[], bool], clock: BrokerClock) -> None:
    """As the worker's loop does it, only faster."""
    deadline = Deadline(120)
    while not condition():
        assert not deadline.over, clock.problem
        clock.probe()
        time.sleep(0.05)
        clock.poll()


class FakeClock(BrokerClock):
    """Fed with samples instead of acknowledgements."""

    def __init__(self) -> None:
        self.now_ns = 0
        super().__init__(
            Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": 0}), monotonic_ns=lambda: self.now_ns
        )

    def saw(self, *, sent_ns: int, seen_ns: int, appended_ms: int) -> None:
        self._samples.append(Sample(sent_ns, seen_ns, appended_ms))


@given(
    broker_ahead_ms=st.integers(-3_600_000, 3_600_000),
    probes=st.lists(st.tuples(st.integers(0, 250), st.integers(0, 400), st.integers(0, 400)), min_size=1, max_size=8),
    later_ms=st.integers(0, 1000),
    rate=st.floats(-150e-6, 150e-6),
)
def test_the_bound_is_never_ahead_of_the_broker(
    broker_ahead_ms: int, probes: list[tuple[int, int, int]], later_ms: int, rate: float
) -> None:
    """Whatever the latencies, the difference of the clocks and (within the margin) of their speeds."""

    def broker_ms(at_ns: int) -> float:
        return 1_000_000_000 + broker_ahead_ms + at_ns / MS * (1 + rate)

    clock = FakeClock()
    at_ns = 0
    for pause_ms, there_ms, back_ms in probes:
        at_ns += pause_ms * MS
        appended_ns = at_ns + there_ms * MS
        clock.saw(sent_ns=at_ns, seen_ns=appended_ns + back_ms * MS, appended_ms=int(broker_ms(appended_ns)))
        at_ns = appended_ns + back_ms * MS
    clock.now_ns = at_ns + later_ms * MS
    bound_ms = clock.now_lower_bound_ms()
    assert bound_ms is not None
    assert bound_ms <= broker_ms(clock.now_ns)
    _, _, last_back_ms = probes[-1]
    assert bound_ms >= broker_ms(clock.now_ns) - last_back_ms - 3


def test_one_slow_probe_does_not_make_the_bound_worse() -> None:
    clock = FakeClock()
    clock.saw(sent_ns=0, seen_ns=1 * MS, appended_ms=5000)
    clock.saw(sent_ns=250 * MS, seen_ns=650 * MS, appended_ms=5251)
    clock.now_ns = 650 * MS
    assert clock.now_lower_bound_ms() == 5648  # 5000 + 649 less the rate error; the slow probe alone would say 5251


def test_a_broker_clock_that_was_set_back_is_believed() -> None:
    clock = FakeClock()
    clock.saw(sent_ns=0, seen_ns=1 * MS, appended_ms=5000)
    clock.saw(sent_ns=250 * MS, seen_ns=252 * MS, appended_ms=4251)
    clock.now_ns = 252 * MS
    assert clock.now_lower_bound_ms() == 4251


def test_a_second_without_a_probe_and_nothing_is_known() -> None:
    clock = FakeClock()
    assert clock.now_lower_bound_ms() is None
    clock.saw(sent_ns=0, seen_ns=1 * MS, appended_ms=5000)
    clock.now_ns = int(FRESH_SECONDS * 1000) * MS + 1 * MS
    assert clock.now_lower_bound_ms() is not None
    clock.now_ns += 1
    assert clock.now_lower_bound_ms() is None


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.usefixtures("system_topics")
def test_a_real_broker_is_measured_within_milliseconds(connection: Connection) -> None:
    clock = BrokerClock(connection)
    behind_ms: list[float] = []
    deadline = Deadline(120)
    while len(behind_ms) < 20:
        assert not deadline.over, clock.problem
        clock.probe()
        time.sleep(0.05)
        clock.poll()
        bound_ms, now_ms = clock.now_lower_bound_ms(), time.time() * 1000
        if bound_ms is not None:
            assert bound_ms <= now_ms  # the broker is on this machine: its clock is ours
            behind_ms.append(now_ms - bound_ms)
    assert sorted(behind_ms)[10] < 100
    clock.close()


@pytest.mark.broker
@pytest.mark.usefixtures("system_topics")
def test_a_stranded_clock_goes_on_with_a_new_client(connection: Connection) -> None:
    clock = BrokerClock(connection)
    probe_until(lambda: clock.now_lower_bound_ms() is not None, clock)
    producer = clock._producer

    clock._stranded.set()
    clock.poll()
    clock._samples.clear()

    probe_until(lambda: clock.now_lower_bound_ms() is not None, clock)
    assert clock._producer is not producer
    clock.close()


@pytest.mark.broker
def test_a_clock_topic_with_producers_time_is_refused_and_an_outage_said(own_broker: Broker) -> None:
    connection = Connection(bootstrap_servers=own_broker.bootstrap, further={"log_level": 0})
    admin = KafkaAdmin(connection)
    ensure_system_topics(admin, replication_factor=1)
    admin.alter_topic_configs({CLOCK_TOPIC: {"message.timestamp.type": "CreateTime"}})
    clock = BrokerClock(connection)
    refused = "set its message.timestamp.type to LogAppendTime"
    probe_until(lambda: refused in str(clock.problem) and clock.now_lower_bound_ms() is None, clock)

    ensure_system_topics(admin, replication_factor=1)
    probe_until(lambda: clock.problem is None and clock.now_lower_bound_ms() is not None, clock)

    own_broker.pause()
    probe_until(lambda: isinstance(clock.problem, KafkaUnreachable) and clock.now_lower_bound_ms() is None, clock)
    own_broker.resume()
    clock.close()
