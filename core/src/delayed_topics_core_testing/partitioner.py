"""Kafka's default partitioner, so that a test sends a key to the partition that a Java producer would choose."""


def murmur2(data: bytes) -> int:
    """Kafka's variant of MurmurHash2, 32 bits, unsigned. Source: org.apache.kafka.common.utils.Utils.murmur2."""
    length = len(data)
    m = 0x5BD1E995
    h = (0x9747B28C ^ length) & 0xFFFFFFFF
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ (k >> 24)) * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ k
    tail = data[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * m & 0xFFFFFFFF
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Returns the partition, below `partitions`, that Java's default partitioner chooses for `key`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
