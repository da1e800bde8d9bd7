//! The place of a record: a topic, a partition and an offset.

use std::str;

use crate::digits;

/// The maximum length of a root. A record without an id gets its root as its id, and ids have this maximum length.
pub const MAX_ROOT_BYTES: usize = 256;

/// One of the two topics of a delayed topic that workers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceTopic {
    /// The front topic, where clients produce.
    Front,
    /// The delays topic, where workers write hops. Clients that follow the registry may write to it, too.
    Delays,
}

impl SourceTopic {
    /// Returns the letter for this topic in roots and origins.
    #[must_use]
    pub const fn letter(self) -> u8 {
        match self {
            SourceTopic::Front => b'f',
            SourceTopic::Delays => b'd',
        }
    }
}

/// The place of a record. A *root* is the place where the attempt was first seen, an *origin* is the place of the record from which
/// a copy was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The topic.
    pub source: SourceTopic,
    /// The partition of that topic.
    pub partition: u32,
    /// The offset in that partition.
    pub offset: i64,
    /// The id of that topic, as Kafka prints it.
    pub topic_id: &'a str,
}

impl<'a> Place<'a> {
    /// Appends the root, `f:<partition>:<offset>:<topic id>`.
    pub fn write_root(&self, text: &mut Vec<u8>) {
        self.write_origin(text);
        text.push(b':');
        text.extend_from_slice(self.topic_id.as_bytes());
    }

    /// Appends the origin, `f:<partition>:<offset>`.
    pub fn write_origin(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(&[self.source.letter(), b':']);
        digits::write(text, self.partition);
        text.push(b':');
        digits::write(text, self.offset);
    }

    /// Parses a root as `write_root` writes it. Returns `None` if `value` is not a root.
    #[must_use]
    pub fn read_root(value: &'a [u8]) -> Option<Self> {
        if value.len() > MAX_ROOT_BYTES || !value.is_ascii() {
            return None;
        }
        let (source, rest) = match value {
            [b'f', b':', rest @ ..] => (SourceTopic::Front, rest),
            [b'd', b':', rest @ ..] => (SourceTopic::Delays, rest),
            _ => return None,
        };
        let mut parts = rest.splitn(3, |byte| *byte == b':');
        let partition = digits::read(parts.next()?, u64::from(i32::MAX.unsigned_abs()))?;
        let offset = digits::read(parts.next()?, i64::MAX.unsigned_abs())?;
        let topic_id = str::from_utf8(parts.next()?).ok().filter(|id| !id.contains(':'))?;
        Some(Place { source, partition: u32::try_from(partition).ok()?, offset: i64::try_from(offset).ok()?, topic_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_reads_back() {
        let place =
            Place { source: SourceTopic::Delays, partition: 7, offset: i64::MAX, topic_id: "uT1eKVuTQ2--Rhh9b73dqg" };
        let mut text = Vec::new();
        place.write_root(&mut text);
        assert_eq!(text, b"d:7:9223372036854775807:uT1eKVuTQ2--Rhh9b73dqg");
        assert_eq!(Place::read_root(&text), Some(place));
    }

    #[test]
    fn what_is_no_root_is_refused() {
        let long = format!("f:1:2:{}", "x".repeat(251));
        for wrong in [
            "",
            "f",
            "f:1:2",
            "x:1:2:id",
            "f:-1:2:id",
            "f:1:2:id:more",
            "f::2:id",
            "f:2147483648:2:id",
            "fd:1:2:id",
            "f:1:9223372036854775808:id",
            "f:1:2:\u{e9}",
            &long,
        ] {
            assert_eq!(Place::read_root(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(Place::read_root(b"f:01:002:").map(|place| (place.partition, place.offset)), Some((1, 2)));
        assert!(Place::read_root(&long.as_bytes()[..256]).is_some());
    }
}
