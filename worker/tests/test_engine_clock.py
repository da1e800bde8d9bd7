"""The lower bound of the broker's time, from clock probes, is never ahead of the broker's clock, whatever the network and the clocks do."""

from delayed_topics_engine import broker_time_ms
from hypothesis import given
from hypothesis import strategies as st

MS = 1_000_000


@given(
    broker_ahead_ms=st.integers(-3_600_000, 3_600_000),
    probes=st.lists(st.tuples(st.integers(0, 250), st.integers(0, 400), st.integers(0, 400)), min_size=1, max_size=8),
    later_ms=st.integers(0, 1000),
    rate=st.floats(-150e-6, 150e-6),
)
def test_the_bound_is_never_ahead_of_the_broker(
    broker_ahead_ms: int, probes: list[tuple[int, int, int]], later_ms: int, rate: float
) -> None:
    """The bound holds for any latencies and any difference between the clocks, and within the margin for any difference in their speeds."""

    def broker_ms(at_ns: int) -> float:
        return 1_000_000_000 + broker_ahead_ms + at_ns / MS * (1 + rate)

    answered: list[tuple[int, int, int]] = []
    at_ns = 0
    for pause_ms, there_ms, back_ms in probes:
        at_ns += pause_ms * MS
        appended_ns = at_ns + there_ms * MS
        answered.append((at_ns, appended_ns + back_ms * MS, int(broker_ms(appended_ns))))
        at_ns = appended_ns + back_ms * MS
    now_ns = at_ns + later_ms * MS
    bound_ms = broker_time_ms(answered, now_ns)
    assert bound_ms is not None
    assert bound_ms <= broker_ms(now_ns)
    _, _, last_back_ms = probes[-1]
    assert bound_ms >= broker_ms(now_ns) - last_back_ms - 3
