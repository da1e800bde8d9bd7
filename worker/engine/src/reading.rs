//! The own headers of a record: read and judged.
//!
//! Two kinds of reader exist: a front partition takes only what a client may say; a delays partition also takes what a
//! worker wrote there. Values are borrowed from the record.

use std::str;

use crate::dead_letter::{UnreadableHeader, MAX_NUMBER, MAX_OWN_BYTES};
use crate::digits;
use crate::own::Own;
use crate::place::Place;

/// A header as it stands in a record: name, which may be any bytes, and value or null.
pub type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// The headers of a record, in order. They are walked through twice: to decide, and to copy.
pub trait Headers<'a>: Iterator<Item = Header<'a>> + Clone {}

impl<'a, I: Iterator<Item = Header<'a>> + Clone> Headers<'a> for I {}

/// Attempts are counted up to here.
pub const MAX_ATTEMPT: u64 = i32::MAX.unsigned_abs() as u64;
const MAX_ID_BYTES: usize = 256;
const MAX_GROUP_BYTES: usize = 249;
const MAX_TOPIC_BYTES: usize = 249;
/// What is kept of a client's `dt-error`.
pub const MAX_ERROR_BYTES: usize = 2048;

/// What the own headers of a record say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnHeaders<'a> {
    /// There is at least one, be it one that is dropped.
    pub any: bool,
    /// Stable over all attempts.
    pub id: Option<&'a [u8]>,
    /// How often the record was already handed to consumers.
    pub attempt: u32,
    /// The consumer group that failed.
    pub group: Option<&'a [u8]>,
    /// The due time that was asked for.
    pub deliver_at_ms: Option<u64>,
    /// The entry of the delay list that was asked for, from 1; above the last entry it is the last.
    pub delay_level: Option<u64>,
    /// The ready topic that was asked for.
    pub target: Option<Target<'a>>,
    /// Of the layout by which a client wrote into a delays partition.
    pub generation: Option<u64>,
    /// By the client's clock.
    pub created_at_ms: Option<u64>,
    /// By the client's clock.
    pub done_at_ms: Option<u64>,
    /// Why the last attempt failed.
    pub error: Option<&'a [u8]>,
    /// What a worker wrote when it copied the record into a delays partition.
    pub hop: Option<HopHeaders<'a>>,
}

/// What `dt-target` says: `topic`, or `topic:partition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// As it was said.
    pub said: &'a [u8],
    /// The topic.
    pub topic: &'a str,
    /// Of that topic; `None`: any.
    pub partition: Option<u32>,
}

impl<'a> Target<'a> {
    /// `None`: it is none.
    fn read(said: &'a [u8]) -> Option<Self> {
        const MAX_DIGITS: usize = 10;
        let mut parts = said.splitn(2, |byte| *byte == b':');
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
        Some(Target { said, topic, partition })
    }
}

/// What a worker notes of a record that it hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopHeaders<'a> {
    /// Where the record was first seen.
    pub root: Place<'a>,
    /// Fixed there.
    pub due_at_ms: i64,
    /// When the record came in, if a worker has noted it.
    pub appended_at_ms: Option<i64>,
    /// How often it has hopped.
    pub hops: u64,
}

impl OwnHeaders<'_> {
    /// How often the record has hopped.
    #[must_use]
    pub fn hops(&self) -> u64 {
        self.hop.map_or(0, |hop| hop.hops)
    }

    /// When the record came in, as far as is known. `appended_at_ms`: when it was appended where it was read.
    #[must_use]
    pub fn came_in_at_ms(&self, appended_at_ms: Option<i64>) -> Option<i64> {
        self.hop.and_then(|hop| hop.appended_at_ms).or(appended_at_ms)
    }
}

/// What a client says. Headers that only workers write are dropped, not punished: an ordinary retry copies them all.
///
/// Of these only `dt-released` is looked at, and it can only raise: a copy whose attempt is not higher than that of the
/// release that it was made from counts as one higher.
///
/// # Errors
/// One of those that a client may say can't be honoured.
pub fn read_front<'a>(headers: impl Headers<'a>) -> Result<OwnHeaders<'a>, UnreadableHeader<'a>> {
    Found::of(headers).as_front()
}

/// As `read_front`, and believes a worker's hop. A hop never carries `dt-released`, every copy of a ready record does.
///
/// # Errors
/// One of those that a client may say, or that make a hop, can't be honoured.
pub fn read_delays<'a>(headers: impl Headers<'a>) -> Result<OwnHeaders<'a>, UnreadableHeader<'a>> {
    let found = Found::of(headers);
    let hopped = found.has(Own::Root) && found.has(Own::Origin) && found.has(Own::DueAt) && !found.has(Own::Released);
    if hopped {
        found.as_hop()
    } else {
        found.as_front()
    }
}

/// What can be read of the own headers of a record that is refused for others. Not its `dt-error`: that of a dead letter says why it
/// is one.
pub fn legible<'a>(headers: impl Headers<'a>) -> OwnHeaders<'a> {
    Found::of(headers).legible()
}

/// The own headers by name, not judged yet.
struct Found<'a> {
    /// By name; of one that is there twice the first.
    values: [&'a [u8]; Own::COUNT],
    /// Bits by name.
    present: u32,
    null: u32,
    twice: u32,
    /// The first that a client may say once and said twice.
    twice_of_client: Option<Own>,
    /// The first that a worker writes once into a hop and that is there twice.
    twice_of_hop: Option<Own>,
    /// Names and values of those that a client may say.
    clients_bytes: usize,
    /// One more than the highest attempt that `dt-released` tells of.
    least_attempt: u32,
}

impl<'a> Found<'a> {
    fn of(headers: impl Headers<'a>) -> Self {
        let mut found = Found {
            values: [&[]; Own::COUNT],
            present: 0,
            null: 0,
            twice: 0,
            twice_of_client: None,
            twice_of_hop: None,
            clients_bytes: 0,
            least_attempt: 0,
        };
        for (name, value) in headers {
            if let Some(name) = Own::of(name) {
                found.add(name, value);
            }
        }
        found
    }

    fn add(&mut self, name: Own, value: Option<&'a [u8]>) {
        if name == Own::Released {
            self.least_attempt = self.least_attempt.max(released_attempt(value).map_or(0, |attempt| attempt + 1));
        }
        if self.has(name) {
            self.twice |= bit(name);
            if name.is_clients() {
                self.twice_of_client = self.twice_of_client.or(Some(name));
            } else if matches!(name, Own::Root | Own::DueAt | Own::Hops) {
                self.twice_of_hop = self.twice_of_hop.or(Some(name));
            }
            return;
        }
        self.present |= bit(name);
        if name.is_clients() {
            self.clients_bytes += name.name().len() + value.map_or(0, <[u8]>::len);
        }
        match value {
            Some(value) => self.values[name as usize] = value,
            None => self.null |= bit(name),
        }
    }

    fn has(&self, name: Own) -> bool {
        self.present & bit(name) != 0
    }

    /// The value of one that is there; `None`: it is null.
    fn value(&self, name: Own) -> Option<&'a [u8]> {
        (self.null & bit(name) == 0).then_some(self.values[name as usize])
    }

    fn as_front(&self) -> Result<OwnHeaders<'a>, UnreadableHeader<'a>> {
        if self.present == 0 {
            return Ok(OwnHeaders::default());
        }
        let mut said = self.as_client()?;
        said.attempt = said.attempt.max(self.least_attempt);
        Ok(said)
    }

    fn as_hop(&self) -> Result<OwnHeaders<'a>, UnreadableHeader<'a>> {
        if let Some(name) = self.twice_of_hop {
            return Err(UnreadableHeader::Twice(name));
        }
        let root = self.value(Own::Root).and_then(Place::read_root).ok_or(UnreadableHeader::NoRoot)?;
        let said = self.as_client()?;
        let due_at_ms = self.judged_number(Own::DueAt, MAX_NUMBER)?;
        let hops = self.number(Own::Hops, MAX_NUMBER)?.unwrap_or(0);
        let due_at_ms = i64::try_from(due_at_ms).unwrap_or(i64::MAX);
        // a record is not to be lost for it
        let appended_at_ms = self.number(Own::AppendedAt, MAX_NUMBER).ok().flatten();
        let appended_at_ms = appended_at_ms.and_then(|ms| i64::try_from(ms).ok());
        Ok(OwnHeaders { hop: Some(HopHeaders { root, due_at_ms, appended_at_ms, hops }), ..said })
    }

    fn as_client(&self) -> Result<OwnHeaders<'a>, UnreadableHeader<'a>> {
        if let Some(name) = self.twice_of_client {
            return Err(UnreadableHeader::Twice(name));
        }
        if self.clients_bytes > MAX_OWN_BYTES {
            return Err(UnreadableHeader::TooLarge(self.clients_bytes));
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
        self.present &= !self.twice;
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
            self.judged_number(name, most).map(Some)
        } else {
            Ok(None)
        }
    }

    fn judged_number(&self, name: Own, most: u64) -> Result<u64, UnreadableHeader<'a>> {
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

/// The attempt that a `dt-released` was written for; `None`: it isn't one.
fn released_attempt(value: Option<&[u8]>) -> Option<u32> {
    const MAX_DIGITS: usize = 10;
    let value = value?;
    let end = value.iter().position(|byte| *byte == b':')?;
    let attempt = (end <= MAX_DIGITS).then(|| digits::read(&value[..end], MAX_ATTEMPT))?;
    attempt.map(narrow)
}
