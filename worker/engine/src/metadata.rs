//! The metadata of a commit: which offsets above the committed one are finished, and for which topic the commit was made.
//!
//! The format is `dt1:` + base64(zlib(bitmap)) + `:` + topic id. Bit i, least significant first, stands for offset committed + 1 + i,
//! and is 1 if that offset is finished. The bitmap is left out if no offset above the committed one is finished. Kafka stores commits
//! by topic name, so the topic id is needed to recognize a commit that was made for an earlier topic of the same name.

use std::fmt::{self, Display, Formatter};

use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::Engine as _;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The maximum length. Kafka refuses more than 4,096 (`offset.metadata.max.bytes`), and then commits nothing.
pub const MAX_METADATA_CHARS: usize = 4000;
/// The maximum size of a bitmap. A larger one cannot be compressed to `MAX_METADATA_CHARS`.
const MAX_BITMAP_BYTES: usize = 4 << 20;
const PREFIX: &str = "dt1:";
/// Accepts any trailing bits in the last character, as Python does, so that both decode the same metadata.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Encodes metadata. It keeps the quarter of a megabyte that the compressor needs.
#[derive(Debug)]
pub struct MetadataEncoder {
    bitmap: Vec<u8>,
    compressed: Vec<u8>,
    compress: Compress,
}

impl Default for MetadataEncoder {
    fn default() -> Self {
        MetadataEncoder {
            bitmap: Vec::new(),
            compressed: Vec::new(),
            compress: Compress::new(Compression::default(), true),
        }
    }
}

impl MetadataEncoder {
    /// Encodes the metadata of a commit at `committed`.
    ///
    /// Each item of `finished` stands for 64 offsets: the first of them, and one bit for each that is finished, least significant
    /// first. Offsets that are not above `committed` are left out. If the bitmap does not fit, the highest offsets are left out, too:
    /// their records are repeated, never lost. `topic_id` is empty if it is not known.
    #[must_use]
    pub fn encode(&mut self, committed: i64, finished: impl Iterator<Item = (i64, u64)>, topic_id: &str) -> String {
        self.bitmap.clear();
        for (first, bits) in finished {
            self.set(first.saturating_sub(committed).saturating_sub(1), bits);
        }
        let end = self.bitmap.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.bitmap.truncate(end);
        if self.bitmap.is_empty() && topic_id.is_empty() {
            return String::new();
        }
        let mut text = String::from(PREFIX);
        if !self.bitmap.is_empty() {
            let most =
                MAX_METADATA_CHARS.saturating_sub(PREFIX.len() + topic_id.len() + usize::from(!topic_id.is_empty()));
            self.compress_bitmap();
            while self.compressed.len().div_ceil(3) * 4 > most && !self.bitmap.is_empty() {
                self.bitmap.truncate(self.bitmap.len() * 3 / 4);
                self.compress_bitmap();
            }
            BASE64.encode_string(&self.compressed, &mut text);
        }
        if !topic_id.is_empty() {
            text.push(':');
            text.push_str(topic_id);
        }
        text
    }

    /// Sets the bits of 64 offsets. `at` is the index of the first one in the bitmap; bits below index 0 are dropped.
    fn set(&mut self, at: i64, bits: u64) {
        let (bits, at) = match usize::try_from(at) {
            Ok(at) => (bits, at),
            Err(_) => (u32::try_from(at.unsigned_abs()).map_or(0, |below| bits.checked_shr(below).unwrap_or(0)), 0),
        };
        let (byte, shift) = (at / 8, at % 8);
        if bits == 0 || byte >= MAX_BITMAP_BYTES {
            return;
        }
        if self.bitmap.len() < byte + 9 {
            self.bitmap.resize(byte + 9, 0);
        }
        let shifted = u128::from(bits) << shift;
        for (place, added) in self.bitmap[byte..byte + 9].iter_mut().zip(shifted.to_le_bytes()) {
            *place |= added;
        }
    }

    fn compress_bitmap(&mut self) {
        self.compressed.clear();
        // at least zlib's `compressBound`
        self.compressed.reserve(self.bitmap.len() + self.bitmap.len() / 1000 + 64);
        self.compress.reset();
        let packed = self.compress.compress_vec(&self.bitmap, &mut self.compressed, FlushCompress::Finish);
        debug_assert_eq!(packed.ok(), Some(Status::StreamEnd), "what it reserves is enough");
    }
}

/// Commit metadata that is neither empty nor in this format. `Display` writes the sentence that a user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnreadableMetadata {
    /// The metadata does not start with the prefix. Contains its first 16 characters.
    NotOurs(String),
    /// The metadata starts with the prefix, but its bitmap cannot be decoded.
    Damaged,
}

impl Display for UnreadableMetadata {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            UnreadableMetadata::NotOurs(start) => {
                write!(f, "commit metadata must start with '{PREFIX}', but it starts with '{start}'")
            }
            UnreadableMetadata::Damaged => f.write_str("commit metadata is damaged"),
        }
    }
}

impl std::error::Error for UnreadableMetadata {}

/// Returns the finished offsets above `committed`, in ascending order.
///
/// # Errors
/// The metadata is neither empty nor in this format.
pub fn decode(committed: i64, metadata: &str) -> Result<impl Iterator<Item = i64>, UnreadableMetadata> {
    let bitmap = decode_bitmap(metadata)?;
    let bytes = (1_i64..).step_by(8).zip(bitmap);
    let places =
        bytes.flat_map(|(first, bits)| (0..8).filter(move |bit| (bits >> bit) & 1 == 1).map(move |bit| first + bit));
    Ok(places.map(move |place| committed.saturating_add(place)))
}

/// Returns the id of the topic that a commit was made for. Returns `None` if the metadata has none, as in the first commit, which the
/// operator makes, or in one that a person made.
#[must_use]
pub fn topic_id(metadata: &str) -> Option<&str> {
    let (_, topic_id) = metadata.strip_prefix(PREFIX)?.split_once(':')?;
    (!topic_id.is_empty()).then_some(topic_id)
}

fn decode_bitmap(metadata: &str) -> Result<Vec<u8>, UnreadableMetadata> {
    if metadata.is_empty() {
        return Ok(Vec::new());
    }
    let Some(rest) = metadata.strip_prefix(PREFIX) else {
        return Err(UnreadableMetadata::NotOurs(metadata.chars().take(16).collect()));
    };
    let encoded = rest.split(':').next().unwrap_or_default();
    if encoded.is_empty() {
        return Ok(Vec::new());
    }
    let packed = BASE64.decode(encoded).map_err(|_| UnreadableMetadata::Damaged)?;
    decompress(&packed).ok_or(UnreadableMetadata::Damaged)
}

/// Decompresses a bitmap. Returns `None` if it is damaged or incomplete.
fn decompress(packed: &[u8]) -> Option<Vec<u8>> {
    let mut bitmap = Vec::with_capacity(4096);
    let mut decompress = Decompress::new(true);
    loop {
        let read = usize::try_from(decompress.total_in()).ok()?;
        let before = decompress.total_out();
        match decompress.decompress_vec(&packed[read..], &mut bitmap, FlushDecompress::Finish) {
            Ok(Status::StreamEnd) => return Some(bitmap),
            Ok(_) if bitmap.len() == bitmap.capacity() => bitmap.reserve(bitmap.len()),
            Ok(_) if decompress.total_out() > before => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(committed: i64, finished: &[(i64, u64)]) -> Vec<i64> {
        let text = MetadataEncoder::default().encode(committed, finished.iter().copied(), "id");
        assert!(text.len() <= MAX_METADATA_CHARS);
        assert_eq!(topic_id(&text), Some("id"));
        decode(committed, &text).unwrap().collect()
    }

    #[test]
    fn what_is_above_the_commit_reads_back() {
        assert_eq!(read_back(10, &[(0, u64::MAX), (64, (1 << 63) | 1)])[..3], [11, 12, 13]);
        assert_eq!(read_back(10, &[(64, (1 << 63) | 1)]), [64, 127]);
        assert_eq!(read_back(-1, &[(0, 1), (i64::MIN, u64::MAX)]), [0]);
        assert_eq!(read_back(63, &[(0, u64::MAX)]), [0; 0]);
        assert_eq!(read_back(i64::MAX, &[(0, u64::MAX)]), [0; 0]);
        assert_eq!(read_back(1, &[(i64::MAX - 63, u64::MAX), (0, 4)]), [2]);
    }

    #[test]
    fn nothing_to_say_is_said_with_nothing() {
        let mut encoder = MetadataEncoder::default();
        assert_eq!(encoder.encode(5, [].into_iter(), ""), "");
        assert_eq!(encoder.encode(5, [(0, 1)].into_iter(), "id"), "dt1::id");
        assert_eq!((topic_id("dt1:"), topic_id("a note:id"), topic_id("dt1:x:a:b")), (None, None, Some("a:b")));
    }

    #[test]
    fn what_cannot_fit_is_left_out_from_above() {
        let mut bits = 1_u64;
        let noise = (0..2000).map(|block| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (block * 64, bits ^ (bits >> 29))
        });
        let finished: Vec<(i64, u64)> = noise.collect();
        let read = read_back(-1, &finished);
        let all: Vec<i64> = decode_all(&finished);
        assert!(read.len() > 4000);
        assert_eq!(read, all[..read.len()]);
    }

    fn decode_all(finished: &[(i64, u64)]) -> Vec<i64> {
        let bits = |(first, bits): &(i64, u64)| {
            let (first, bits) = (*first, *bits);
            (0..64).filter(move |bit| (bits >> bit) & 1 == 1).map(move |bit| first + bit)
        };
        finished.iter().flat_map(bits).collect()
    }

    #[test]
    fn metadata_of_somebody_else_is_an_error_not_a_guess() {
        for wrong in ["something else", "dt1:!", "dt1:\u{e9}", "dt1:aGVsbG8=", "dt1:eJxjZAAA", "dt1:eJxjZAAA:id"] {
            assert!(decode(0, wrong).is_err(), "{wrong}");
        }
        assert_eq!(decode(0, "").unwrap().count() + decode(0, "dt1::id").unwrap().count(), 0);
    }
}
