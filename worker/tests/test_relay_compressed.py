"""Java, and therefore Kafka, reads batches of which librdkafka sees only the first records, or at which it aborts the process."""

import pytest
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.raw_batch import (
    GZIP,
    SNAPPY,
    ZSTD,
    gzip_members,
    produce_batch,
    records,
    snappy_streams,
    zstd_frames,
)

pytestmark = pytest.mark.broker

VALUES = [b"%d" % n for n in range(6)]
ALL = records(VALUES)
HALVES = ALL[: len(ALL) // 2], ALL[len(ALL) // 2 :]


@pytest.mark.parametrize(
    ("codec", "compressed"),
    [
        pytest.param(GZIP, gzip_members(*HALVES), id="gzip-of-two-members"),
        pytest.param(GZIP, gzip_members(b"", ALL), id="gzip-that-begins-with-an-empty-member"),
        pytest.param(SNAPPY, snappy_streams(*HALVES), id="snappy-of-two-streams"),
        pytest.param(ZSTD, zstd_frames(*HALVES), id="zstd-of-two-frames"),
    ],
)
def test_all_records_come_out_that_a_producer_has_compressed_in_several_parts(
    harness: WorkerHarness, codec: int, compressed: bytes
) -> None:
    orders = harness.declare((0,), front_partitions=1)
    harness.start(orders)
    assert produce_batch(orders, count=len(VALUES), codec=codec, compressed=compressed) == 0
    orders.produce(b"after")
    orders.flush()

    assert [r.value for r in orders.ready(7, timeout_seconds=20)] == [*VALUES, b"after"]
