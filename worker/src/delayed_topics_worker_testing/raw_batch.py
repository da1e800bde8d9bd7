"""Produces a batch whose compressed records are as the test wants them, as no client library writes them."""

import gzip
import socket
import struct
from collections.abc import Sequence
from typing import Final

from delayed_topics_worker_testing.harness import DeclaredTopic

GZIP: Final = 1
SNAPPY: Final = 2
ZSTD: Final = 4
_PRODUCE: Final = 0
_VERSION: Final = 7
_ALL_REPLICAS: Final = -1
_TIMEOUT_MS: Final = 30_000
_CASTAGNOLI: Final = 0x82F63B78


def gzip_members(*contents: bytes) -> bytes:
    """Returns one gzip file of several members, which `gunzip` and Java read to the end."""
    return b"".join(gzip.compress(content) for content in contents)


def zstd_frames(*contents: bytes) -> bytes:
    """Returns frames that are not compressed, of at most 255 bytes each."""
    header = b"\x28\xb5\x2f\xfd\x20"  # a single segment, and its length in one byte
    return b"".join(
        header + bytes([len(content)]) + (len(content) << 3 | 1).to_bytes(3, "little") + content for content in contents
    )


def snappy_streams(*contents: bytes) -> bytes:
    """Returns streams as snappy-java writes them, each of one chunk that is not compressed, of at most 60 bytes."""
    chunks = [bytes([len(content), (len(content) - 1) << 2]) + content for content in contents]
    return b"".join(b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(chunk)) + chunk for chunk in chunks)


def records(values: Sequence[bytes]) -> bytes:
    """Returns records without keys, as they are in a batch before it is compressed."""
    encoded = b""
    for offset_delta, value in enumerate(values):
        body = b"\0" + _varint(0) + _varint(offset_delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
        encoded += _varint(len(body)) + body
    return encoded


def produce_batch(orders: DeclaredTopic, *, count: int, codec: int, compressed: bytes) -> int:
    """Produces a batch of `count` records to the first partition of the front topic. Returns the error code of the broker."""
    topic = orders.names.front.encode()
    fields = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + compressed
    batch = struct.pack(">iBI", 0, 2, _crc32c(fields)) + fields
    batch = struct.pack(">qi", 0, len(batch)) + batch
    request = struct.pack(">hhih", _PRODUCE, _VERSION, 1, -1) + struct.pack(">hhi", -1, _ALL_REPLICAS, _TIMEOUT_MS)
    request += struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">iii", 1, 0, len(batch)) + batch
    host, port = orders.harness.connection.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", answers.read(4))
        answer = answers.read(length)
    # after the correlation id: one topic, its name, one partition, its number
    error_at = 4 + 4 + 2 + len(topic) + 4 + 4
    (code,) = struct.unpack_from(">h", answer, error_at)
    return int(code)


def _varint(value: int) -> bytes:
    left, encoded = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*encoded, left])


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
