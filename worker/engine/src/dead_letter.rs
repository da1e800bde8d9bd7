//! Why a record goes to the dead-letter topic: a reason for programs and a sentence for people.

use std::fmt::{self, Display, Formatter, Write};

use crate::own::Own;

/// The largest number that a header may have, unless its own maximum is lower.
pub const MAX_NUMBER: u64 = i64::MAX.unsigned_abs();
/// The maximum number of foreign headers. librdkafka reads no record with more than 100,000 headers, and a copy also has those of
/// this project.
pub const MAX_FOREIGN_HEADERS: usize = 100_000 - Own::COUNT;
/// How many bytes of a value an error shows.
const SHOWN_BYTES: usize = 32;

/// Why a header of this project is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadableHeader<'a> {
    /// The record has the header more than once.
    Twice(Own),
    /// The value is not a decimal number in the allowed range.
    NotANumber {
        /// The header.
        name: Own,
        /// The largest number allowed.
        most: u64,
        /// The value of the header, or `None` for null.
        value: Option<&'a [u8]>,
    },
    /// The value is not a short ASCII text.
    NotText {
        /// The header.
        name: Own,
        /// The maximum number of characters.
        most: usize,
        /// The value of the header, or `None` for null.
        value: Option<&'a [u8]>,
    },
    /// This value of `dt-target` is neither a topic nor `topic:partition`.
    NotATopic(Option<&'a [u8]>),
    /// `dt-delay-level` is 0, but levels count from 1.
    LevelZero,
    /// The value of `dt-root` is not a root.
    NoRoot,
}

/// Why a record is a dead letter. `Display` writes the sentence for `dt-error`, in ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause<'a> {
    /// A header of this project is not accepted.
    Unreadable(UnreadableHeader<'a>),
    /// The headers cannot be read at all.
    HeadersUnreadable,
    /// The record requests a due time, but the delayed topic has no ladder.
    NoLadder,
    /// The record requests a due time too far ahead.
    MaxDelay {
        /// The requested time, in milliseconds since the epoch.
        deliver_at_ms: i64,
        /// How far ahead of the record's append time the requested time may be.
        max_delay_seconds: u32,
    },
    /// The record requests a ready topic that is not allowed.
    TargetNotAllowed(&'a str),
    /// The record requests a ready topic, or a partition of one, that was missing for too long.
    TargetUnavailable {
        /// The topic.
        topic: &'a str,
        /// How long after its due time a record waits for its topic.
        outage_budget_seconds: u32,
    },
    /// The record has been tried too often.
    RetryCap {
        /// The attempt of the record.
        attempt: u32,
        /// The number of the last attempt.
        retry_cap: u32,
    },
    /// Kafka refused the copy as too large. Contains the length of the record's value, in bytes.
    TooLarge(usize),
    /// Kafka refused the copy because of its content.
    Invalid,
    /// A request in the control topic cancelled the record by its id.
    Cancelled,
}

impl Cause<'_> {
    /// The value of `dt-reason`; docs/reasons.md explains each.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Cause::Unreadable(UnreadableHeader::Twice(_)) => "HeaderTwice",
            Cause::Unreadable(_) | Cause::HeadersUnreadable => "HeaderUnreadable",
            Cause::NoLadder => "NoLadder",
            Cause::MaxDelay { .. } => "MaxDelayExceeded",
            Cause::TargetNotAllowed(_) => "TargetNotAllowed",
            Cause::TargetUnavailable { .. } => "TargetUnavailable",
            Cause::RetryCap { .. } => "RetryCapExceeded",
            Cause::TooLarge(_) => "TooLarge",
            Cause::Invalid => "InvalidRecord",
            Cause::Cancelled => "Cancelled",
        }
    }
}

impl Display for Cause<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Cause::Unreadable(unreadable) => unreadable.fmt(f),
            Cause::HeadersUnreadable => write!(
                f,
                "a header key is not UTF-8, or there are more than {MAX_FOREIGN_HEADERS} headers, \
                 so the dead letter has no headers of the record"
            ),
            Cause::NoLadder => {
                write!(f, "{} needs spec.ladder, but this DelayedTopic has no ladder", Own::DeliverAt.name())
            }
            Cause::MaxDelay { deliver_at_ms, max_delay_seconds } => {
                let name = Own::DeliverAt.name();
                write!(
                    f,
                    "{name} must be at most {max_delay_seconds} s ahead (spec.maxDelaySeconds), \
                     but it is {deliver_at_ms} ms since the epoch"
                )
            }
            Cause::TargetNotAllowed(topic) => {
                write!(f, "{} must be one of spec.ready.allowedTopics, but it is {topic}", Own::Target.name())
            }
            Cause::TargetUnavailable { topic, outage_budget_seconds } => {
                let name = Own::Target.name();
                write!(
                    f,
                    "{name} names {topic}, but the topic or the partition was still missing {outage_budget_seconds} s after the due \
                     time (spec.outageBudgetSeconds)"
                )
            }
            Cause::RetryCap { attempt, retry_cap } => {
                write!(f, "attempt {attempt} is above the retry cap of {retry_cap}")
            }
            Cause::TooLarge(bytes) => write!(f, "the copy of {bytes} bytes was refused as too large"),
            Cause::Invalid => f.write_str(
                "the copy was refused as an invalid record; for example, a compacted topic takes none without a key",
            ),
            Cause::Cancelled => f.write_str("its id was cancelled in the control topic before it was released"),
        }
    }
}

impl Display for UnreadableHeader<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            UnreadableHeader::Twice(name) => {
                write!(f, "a record can have {} only once, but this record has it twice", name.name())
            }
            UnreadableHeader::NotANumber { name, most, value } => {
                let name = name.name();
                write!(f, "{name} must be a decimal number from 0 to {most}, but it is {}", Shown(value))
            }
            UnreadableHeader::NotText { name, most, value } => {
                write!(f, "{} must be 1 to {most} ASCII characters, but it is {}", name.name(), Shown(value))
            }
            UnreadableHeader::NotATopic(value) => {
                write!(f, "{} must be a topic or topic:partition, but it is {}", Own::Target.name(), Shown(value))
            }
            UnreadableHeader::LevelZero => {
                let name = Own::DelayLevel.name();
                write!(f, "{name} must be 1 or more. Level 1 is the first entry of the delay list")
            }
            UnreadableHeader::NoRoot => write!(
                f,
                "{} must be f or d, a partition, an offset and a topic id, with colons between them",
                Own::Root.name()
            ),
        }
    }
}

/// The beginning of a value, quoted and escaped as Python shows bytes.
struct Shown<'a>(Option<&'a [u8]>);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(value) = self.0 else {
            return f.write_str("null");
        };
        let value = &value[..value.len().min(SHOWN_BYTES)];
        let quote = if value.contains(&b'\'') && !value.contains(&b'"') { '"' } else { '\'' };
        f.write_char(quote)?;
        for &byte in value {
            match byte {
                b'\t' => f.write_str("\\t")?,
                b'\n' => f.write_str("\\n")?,
                b'\r' => f.write_str("\\r")?,
                b'\\' => f.write_str("\\\\")?,
                b' '..=b'~' if char::from(byte) == quote => write!(f, "\\{quote}")?,
                b' '..=b'~' => f.write_char(char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_char(quote)
    }
}

#[cfg(test)]
mod tests {
    use super::Shown;

    #[test]
    fn values_are_shown_as_python_shows_them() {
        for (value, shown) in [
            (&b"5 "[..], "'5 '"),
            (b"it's", "\"it's\""),
            (b"it's \"", "'it\\'s \"'"),
            (b"\t\n\r\\\0\xff~\x7f", "'\\t\\n\\r\\\\\\x00\\xff~\\x7f'"),
            (&[b'x'; 40], "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'"),
        ] {
            assert_eq!(Shown(Some(value)).to_string(), shown);
        }
        assert_eq!(Shown(None).to_string(), "null");
    }
}
