"""The relay's hot path, in Rust."""

def murmur2(data: bytes) -> int:
    """Kafka's variant of MurmurHash2, 32 bits, unsigned."""
