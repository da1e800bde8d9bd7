//! Reads and validates the headers of this project in a record.
//!
//! In a front partition, only headers that a client may set are accepted. In a delays partition, those that a worker wrote there are
//! accepted, too. Values are borrowed from the record.

use std::str;

use crate::dead_letter::{UnreadableHeader, MAX_NUMBER};
use crate::digits;
use crate::own::Own;
use crate::place::Place;

/// A header of a record: its name, which may be any bytes, and its value, or `None` for null.
pub type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// The headers of a record, in order. They are iterated over twice: for the decision and for the copy.
pub trait Headers<'a>: Iterator<Item = Header<'a>> + Clone {}

impl<'a, I: Iterator<Item = Header<'a>> + Clone> Headers<'a> for I {}

/// The highest value of `dt-attempt`.
pub const MAX_ATTEMPT: u64 = i32::MAX.unsigned_abs() as u64;
const MAX_ID_BYTES: usize = 256;
const MAX_GROUP_BYTES: usize = 249;
const MAX_TOPIC_BYTES: usize = 249;
/// How many bytes of a client's `dt-error` are kept.
pub const MAX_ERROR_BYTES: usize = 2048;

/// The values of the headers of this project in a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnHeaders<'a> {
    /// Whether the record has at least one such header, even one that is dropped.
    pub any: bool,
    /// The id, which stays the same through all attempts.
    pub id: Option<&'a [u8]>,
    /// How often the record was handed to consumers before.
    pub attempt: u32,
    /// The consumer group that failed.
    pub group: Option<&'a [u8]>,
    /// The requested due time, in milliseconds since the epoch.
    pub deliver_at_ms: Option<u64>,
    /// The requested entry of the delay list, counted from 1. A number above the last entry means the last entry.
    pub delay_level: Option<u64>,
    /// The requested ready topic.
    pub target: Option<Target<'a>>,
    /// The generation of the layout by which a client chose a delays partition.
    pub generation: Option<u64>,
    /// When the record was made, by the client's clock.
    pub created_at_ms: Option<u64>,
    /// When the failed attempt ended, by the client's clock.
    pub done_at_ms: Option<u64>,
    /// Why the last attempt failed.
    pub error: Option<&'a [u8]>,
    /// The headers that a worker wrote when it copied the record into a delays partition.
    pub hop: Option<HopHeaders<'a>>,
}

/// The value of `dt-target`: `topic`, or `topic:partition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The value as the client wrote it.
    pub value: &'a [u8],
    /// The name of the topic.
    pub topic: &'a str,
    /// The partition of that topic, or `None` if the record may go to any.
    pub partition: Option<u32>,
}

impl<'a> Target<'a> {
    /// Parses the value of `dt-target`. Returns `None` if it is not valid.
    fn read(value: &'a [u8]) -> Option<Self> {
        const MAX_DIGITS: usize = 10;
        let mut parts = value.splitn(2, |byte| *byte == b':');
        let name = parts.next()?;
        let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let topic = str::from_utf8(name)
            .ok()
            .filter(|_| (1..=MAX_TOPIC_BYTES).contains(&name.len()) && name.iter().all(legal))?;
        let partition = match parts.next() {
            None => None,
            Some(digits) if digits.len() > MAX_DIGITS => return None,
            Some(digits) => Some(u32::try_from(digits::read(digits, u64::from(i32::MAX.unsigned_abs()))?).ok()?),
        };
        Some(Target { value, topic, partition })
    }
}

/// The headers that a worker writes into a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopHeaders<'a> {
    /// Where the attempt was first seen.
    pub root: Place<'a>,
    /// The due time, which was fixed when the attempt was first seen.
    pub due_at_ms: i64,
    /// When the record came in, if a worker has recorded it.
    pub appended_at_ms: Option<i64>,
    /// How often the record has hopped.
    pub hops: u64,
}

impl OwnHeaders<'_> {
    /// Returns how often the record has hopped.
    #[must_use]
    pub fn hops(&self) -> u64 {
        self.hop.map_or(0, |hop| hop.hops)
    }

    /// Returns when the record came in, if that is known. `appended_at_ms` is the append time of the copy that was read.
    #[must_use]
    pub fn came_in_at_ms(&self, appended_at_ms: Option<i64>) -> Option<i64> {
        self.hop.and_then(|hop| hop.appended_at_ms).or(appended_at_ms)
    }
}

/// Reads the headers that a client may set. Headers that only workers write are dropped and not rejected, because an ordinary retry
/// copies all headers.
///
/// The exception is `dt-released`, which can only raise the attempt. If the attempt of a copy is not higher than that of the release
/// that it was made from, it counts as one higher than that.
///
/// # Errors
/// A header that a client may set is not accepted.
pub fn read_front<'a>(headers: impl Headers<'a>) -> Result<OwnHeaders<'a>, UnreadableHeader<'a>> {
    RawHeaders::of(headers).as_front()
}

/// Reads headers as `read_front` does, and also accepts the hop of a worker. A hop never has `dt-released`, but every copy of a ready
/// record has it.
///
/// # Errors
/// A header that a client may set, or one that makes a hop, is not accepted.
pub fn read_delays<'a>(headers: impl Headers<'a>) -> Result<OwnHeaders<'a>, UnreadableHeader<'a>> {
    let raw = RawHeaders::of(headers);
    let hopped = raw.has(Own::Root) && raw.has(Own::Origin) && raw.has(Own::DueAt) && !raw.has(Own::Released);
    if hopped {
        raw.as_hop()
    } else {
        raw.as_front()
    }
}

/// Reads the valid headers of a record that is rejected because of others. Leaves out `dt-error`, because that of a dead letter says
/// why the record is one.
pub fn legible<'a>(headers: impl Headers<'a>) -> OwnHeaders<'a> {
    RawHeaders::of(headers).legible()
}

/// The headers of this project by name, before they are validated. Sets of names are bit masks.
struct RawHeaders<'a> {
    /// Values by name. If a record has a header more than once, the first value counts.
    values: [&'a [u8]; Own::COUNT],
    present: u32,
    null: u32,
    duplicated: u32,
    /// The first duplicate of a header that a client may set.
    duplicate_of_client: Option<Own>,
    /// The first duplicate of a header that makes a hop.
    duplicate_of_hop: Option<Own>,
    /// One more than the highest attempt in a `dt-released` header.
    least_attempt: u32,
}

impl<'a> RawHeaders<'a> {
    fn of(headers: impl Headers<'a>) -> Self {
        let mut raw = RawHeaders {
            values: [&[]; Own::COUNT],
            present: 0,
            null: 0,
            duplicated: 0,
            duplicate_of_client: None,
            duplicate_of_hop: None,
            least_attempt: 0,
        };
        for (name, value) in headers {
            if let Some(name) = Own::of(name) {
                raw.add(name, value);
            }
        }
        raw
    }

    fn add(&mut self, name: Own, value: Option<&'a [u8]>) {
        if name == Own::Released {
            self.least_attempt = self.least_attempt.max(released_attempt(value).map_or(0, |attempt| attempt + 1));
        }
        if self.has(name) {
            self.duplicated |= bit(name);
            if name.is_clients() {
                self.duplicate_of_client = self.duplicate_of_client.or(Some(name));
            } else if matches!(name, Own::Root | Own::DueAt | Own::Hops) {
                self.duplicate_of_hop = self.duplicate_of_hop.or(Some(name));
            }
            return;
        }
        self.present |= bit(name);
        match value {
            Some(value) => self.values[name as usize] = value,
            None => self.null |= bit(name),
        }
    }

    fn has(&self, name: Own) -> bool {
        self.present & bit(name) != 0
    }

    /// Returns the value of a header that is present, or `None` for null.
    fn value(&self, name: Own) -> Option<&'a [u8]> {
        (self.null & bit(name) == 0).then_some(self.values[name as usize])
    }

    fn as_front(&self) -> Result<OwnHeaders<'a>, UnreadableHeader<'a>> {
        if self.present == 0 {
            return Ok(OwnHeaders::default());
        }
        let mut headers = self.as_client()?;
        headers.attempt = headers.attempt.max(self.least_attempt);
        Ok(headers)
    }

    fn as_hop(&self) -> Result<OwnHeaders<'a>, UnreadableHeader<'a>> {
        if let Some(name) = self.duplicate_of_hop {
            return Err(UnreadableHeader::Twice(name));
        }
        let root = self.value(Own::Root).and_then(Place::read_root).ok_or(UnreadableHeader::NoRoot)?;
        let headers = self.as_client()?;
        let due_at_ms = self.parse_number(Own::DueAt, MAX_NUMBER)?;
        let hops = self.number(Own::Hops, MAX_NUMBER)?.unwrap_or(0);
        let due_at_ms = i64::try_from(due_at_ms).unwrap_or(i64::MAX);
        // an invalid append time is ignored: it is no reason for a dead letter
        let appended_at_ms = self.number(Own::AppendedAt, MAX_NUMBER).ok().flatten();
        let appended_at_ms = appended_at_ms.and_then(|ms| i64::try_from(ms).ok());
        Ok(OwnHeaders { hop: Some(HopHeaders { root, due_at_ms, appended_at_ms, hops }), ..headers })
    }

    fn as_client(&self) -> Result<OwnHeaders<'a>, UnreadableHeader<'a>> {
        if let Some(name) = self.duplicate_of_client {
            return Err(UnreadableHeader::Twice(name));
        }
        let delay_level = self.number(Own::DelayLevel, MAX_NUMBER)?;
        if delay_level == Some(0) {
            return Err(UnreadableHeader::LevelZero);
        }
        Ok(OwnHeaders {
            any: true,
            id: self.text(Own::Id, MAX_ID_BYTES)?,
            attempt: self.number(Own::Attempt, MAX_ATTEMPT)?.map_or(0, narrow),
            group: self.text(Own::Group, MAX_GROUP_BYTES)?,
            deliver_at_ms: self.number(Own::DeliverAt, MAX_NUMBER)?,
            delay_level,
            target: self.target()?,
            generation: self.number(Own::Generation, MAX_NUMBER)?,
            created_at_ms: self.number(Own::CreatedAt, MAX_NUMBER)?,
            done_at_ms: self.number(Own::DoneAt, MAX_NUMBER)?,
            error: self.error(),
            hop: None,
        })
    }

    fn legible(mut self) -> OwnHeaders<'a> {
        self.present &= !self.duplicated;
        let number = |name, most| self.number(name, most).ok().flatten();
        OwnHeaders {
            id: self.text(Own::Id, MAX_ID_BYTES).ok().flatten(),
            attempt: number(Own::Attempt, MAX_ATTEMPT).map_or(0, narrow).max(self.least_attempt),
            group: self.text(Own::Group, MAX_GROUP_BYTES).ok().flatten(),
            deliver_at_ms: number(Own::DeliverAt, MAX_NUMBER),
            delay_level: number(Own::DelayLevel, MAX_NUMBER).filter(|level| *level > 0),
            target: self.target().ok().flatten(),
            created_at_ms: number(Own::CreatedAt, MAX_NUMBER),
            done_at_ms: number(Own::DoneAt, MAX_NUMBER),
            ..OwnHeaders::default()
        }
    }

    fn number(&self, name: Own, most: u64) -> Result<Option<u64>, UnreadableHeader<'a>> {
        if self.has(name) {
            self.parse_number(name, most).map(Some)
        } else {
            Ok(None)
        }
    }

    fn parse_number(&self, name: Own, most: u64) -> Result<u64, UnreadableHeader<'a>> {
        const MAX_DIGITS: usize = 19;
        let value = self.value(name);
        value
            .filter(|value| value.len() <= MAX_DIGITS)
            .and_then(|value| digits::read(value, most))
            .ok_or(UnreadableHeader::NotANumber { name, most, value })
    }

    fn text(&self, name: Own, most: usize) -> Result<Option<&'a [u8]>, UnreadableHeader<'a>> {
        if !self.has(name) {
            return Ok(None);
        }
        match self.value(name) {
            Some(value) if (1..=most).contains(&value.len()) && value.is_ascii() => Ok(Some(value)),
            value => Err(UnreadableHeader::NotText { name, most, value }),
        }
    }

    fn target(&self) -> Result<Option<Target<'a>>, UnreadableHeader<'a>> {
        if !self.has(Own::Target) {
            return Ok(None);
        }
        let value = self.value(Own::Target);
        value.and_then(Target::read).ok_or(UnreadableHeader::NotATopic(value)).map(Some)
    }

    fn error(&self) -> Option<&'a [u8]> {
        let whole = self.has(Own::Error).then(|| self.value(Own::Error))??;
        Some(&whole[..whole.len().min(MAX_ERROR_BYTES)])
    }
}

const fn bit(name: Own) -> u32 {
    1 << name as u32
}

fn narrow(attempt: u64) -> u32 {
    u32::try_from(attempt).unwrap_or(u32::MAX)
}

/// Parses the attempt in a value of `dt-released`. Returns `None` if the value is not valid.
fn released_attempt(value: Option<&[u8]>) -> Option<u32> {
    const MAX_DIGITS: usize = 10;
    let value = value?;
    let end = value.iter().position(|byte| *byte == b':')?;
    let attempt = (end <= MAX_DIGITS).then(|| digits::read(&value[..end], MAX_ATTEMPT))?;
    attempt.map(narrow)
}
