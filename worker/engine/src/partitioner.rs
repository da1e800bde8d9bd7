//! Kafka's default partitioner, so that a key goes to the same partition as with a Java producer.

use std::num::NonZeroU32;

/// Kafka's variant of `MurmurHash2`. Source: `org.apache.kafka.common.utils.Utils.murmur2`.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // in Java, a length is an int; Kafka limits the size of a record to an int, too
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ data.len() as u32;
    let words = data.chunks_exact(4);
    let tail = words.remainder();
    for word in words {
        let k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let rest = tail.iter().rev().fold(0, |rest, byte| (rest << 8) | u32::from(*byte));
        hash = (hash ^ rest).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// Returns which of `partitions` partitions Java's default partitioner chooses for a key.
#[must_use]
pub fn partition_for_key(key: &[u8], partitions: NonZeroU32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions
}

#[cfg(test)]
mod tests {
    use super::murmur2;

    #[test]
    fn java_and_we_agree() {
        // org.apache.kafka.common.utils.UtilsTest.testMurmur2
        for (key, expected) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).to_be_bytes(), expected.to_be_bytes(), "{key}");
        }
    }
}
