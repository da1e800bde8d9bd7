"""Produces a record as a client in another language may do, with arbitrary bytes as header keys. The Python client takes only text for
them, so this module calls the C library that it contains."""

import ctypes
from collections.abc import Sequence
from typing import Any

from delayed_topics_kafka.connection import Connection
from delayed_topics_worker.clients import librdkafka

_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADER, _END = 1, 3, 4, 5, 7, 9, 0
_COPY = 2
_PRODUCER = 0


def produce_with_raw_header_key(
    connection: Connection,
    topic: str,
    *,
    partition: int,
    key: bytes,
    value: bytes,
    headers: Sequence[tuple[bytes, bytes]],
) -> None:
    """Returns when the broker has the record. A broker leaves it as it is if the topic has no compression, or if the `value` is large and
    repeats itself, because it is then compressed with LZ4 as the front topic is. Otherwise the broker writes its headers anew."""
    library = _library()
    error = ctypes.create_string_buffer(512)
    conf = library.rd_kafka_conf_new()
    for name, text in {**connection.client_config(), "compression.type": "lz4"}.items():
        library.rd_kafka_conf_set(ctypes.c_void_p(conf), name.encode(), str(text).encode(), error, ctypes.c_size_t(512))
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, ctypes.c_void_p(conf), error, ctypes.c_size_t(512)))
    assert producer.value, error.value
    arguments: list[Any] = [
        *(_TOPIC, ctypes.c_char_p(topic.encode())),
        *(_PARTITION, ctypes.c_int32(partition)),
        *(_VALUE, ctypes.c_char_p(value), ctypes.c_size_t(len(value))),
        *(_KEY, ctypes.c_char_p(key), ctypes.c_size_t(len(key))),
        *(_FLAGS, ctypes.c_int(_COPY)),
    ]
    for header, content in headers:
        arguments += [_HEADER, ctypes.c_char_p(header), ctypes.c_char_p(content), ctypes.c_ssize_t(len(content))]
    arguments.append(_END)
    assert library.rd_kafka_producev(producer, *arguments) == 0
    assert library.rd_kafka_flush(producer, 120_000) == 0
    library.rd_kafka_destroy(producer)


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(librdkafka())
    for function in ("rd_kafka_conf_new", "rd_kafka_new"):
        getattr(library, function).restype = ctypes.c_void_p
    return library
