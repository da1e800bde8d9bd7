"""A function that perf has sampled counts for the activity that it belongs to."""

import pytest
from delayed_topics_bench.profile import AREAS, area_of

LIBRDKAFKA = "/venv/lib/confluent_kafka.libs/librdkafka-0cb94173.so.1"
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"


@pytest.mark.parametrize(
    ("symbol", "shared_object", "area"),
    [
        ("delayed_topics_engine::window::Window::take", "/venv/delayed_topics_engine.abi3.so", "the engine's own"),
        ("_int_free", LIBC, "malloc, free"),
        ("cfree@GLIBC_2.2.5", LIBC, "malloc, free"),
        ("__memmove_avx512_unaligned_erms", LIBC, "copying bytes"),
        ("__GI___pthread_mutex_unlock_usercnt", LIBC, "locks, clocks"),
        ("__vdso_clock_gettime", "[vdso]", "locks, clocks"),
        ("LZ4_compress_fast_extState_fastReset", LIBRDKAFKA, "compressing"),
        ("rd_kafka_msgset_writer_write_msg_v2", LIBRDKAFKA, "writing batches"),
        ("rd_kafka_header_add", LIBRDKAFKA, "headers"),
        ("rd_slice_read_uvarint", LIBRDKAFKA, "reading batches"),
        ("rd_kafka_produceva", LIBRDKAFKA, "librdkafka, rest"),
        ("finish_task_switch.isra.0", "[kernel.kallsyms]", "kernel"),
    ],
)
def test_a_function_belongs_to_its_area(symbol: str, shared_object: str, area: str) -> None:
    assert area_of(symbol, shared_object) == area
    assert area in AREAS
