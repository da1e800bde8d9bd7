//! Writes the headers of a copy: the foreign ones unchanged, then those of this project.

use std::io::Write;

use crate::dead_letter::MAX_NUMBER;
use crate::own::Own;
use crate::place::Place;
use crate::reading::{Headers, OwnHeaders};
use crate::release::Release;
use crate::routing::{DeadLetter, Hop};

/// Receives the headers of a copy, in order.
pub trait HeaderSink {
    /// Appends a header. Its value may be null.
    fn header(&mut self, name: &[u8], value: Option<&[u8]>);
}

impl HeaderSink for Vec<(Vec<u8>, Option<Vec<u8>>)> {
    fn header(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.push((name.to_vec(), value.map(<[u8]>::to_vec)));
    }
}

/// How much of a record its copy has. Only a dead letter has less than the whole record, after Kafka refused a larger copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Key, value and headers.
    Whole,
    /// Key and headers.
    WithoutValue,
    /// Only the headers of this project.
    OwnHeaders,
}

impl Extent {
    /// Returns the next smaller extent, or `None` if nothing is left to leave out.
    #[must_use]
    pub fn smaller(self) -> Option<Extent> {
        match self {
            Extent::Whole => Some(Extent::WithoutValue),
            Extent::WithoutValue => Some(Extent::OwnHeaders),
            Extent::OwnHeaders => None,
        }
    }
}

/// Writes the headers of copies. It keeps the memory in which it composes values, so that each thread needs only one.
#[derive(Debug, Default)]
pub struct CopyHeaders {
    /// The root, then the other values that have to be composed.
    text: Vec<u8>,
}

impl CopyHeaders {
    /// Writes the headers of a copy in the delays topic. `headers` are those of the record at `made_from`.
    pub fn hop<'a>(
        &mut self,
        headers: impl Headers<'a>,
        made_from: Place<'_>,
        hop: &Hop<'a>,
        to: &mut impl HeaderSink,
    ) {
        put_foreign(headers, to);
        self.put_identity(&hop.own, hop.root, to);
        self.put_provenance(hop.root, made_from, to);
        put_number(Own::DueAt, hop.due_at_ms, to);
        put_requested_time(&hop.own, to);
        put_number(Own::Hops, MAX_NUMBER.min(hop.own.hops() + 1), to); // a larger number could not be read
    }

    /// Writes the headers of a copy in a ready topic. `headers` are those of the record at `made_from`.
    pub fn release<'a>(
        &mut self,
        headers: impl Headers<'a>,
        made_from: Place<'_>,
        release: &Release<'a>,
        to: &mut impl HeaderSink,
    ) {
        let own = release.own();
        put_foreign(headers, to);
        self.put_identity(own, release.root(), to);
        self.put_provenance(release.root(), made_from, to);
        put_number(Own::DueAt, release.due_at_ms(), to);
        let start = self.text.len();
        crate::digits::write(&mut self.text, own.attempt);
        self.text.push(b':');
        crate::digits::write(&mut self.text, release.released_at().0);
        put(Own::Released, &self.text[start..], to);
        put_number(Own::Hops, own.hops(), to);
    }

    /// Writes the headers of a copy in the dead-letter topic. `headers` are those of the record at `made_from`, or empty if the
    /// `Extent` leaves them out or they cannot be read. The copy keeps what the client requested, so that it can be sent again.
    pub fn dead_letter<'a>(
        &mut self,
        headers: impl Headers<'a>,
        made_from: Place<'_>,
        dead: &DeadLetter<'a>,
        to: &mut impl HeaderSink,
    ) {
        put_foreign(headers, to);
        self.put_identity(&OwnHeaders { error: None, ..dead.own.clone() }, dead.root, to);
        self.put_provenance(dead.root, made_from, to);
        put_requested_time(&dead.own, to);
        if let Some(due_at_ms) = dead.due_at_ms {
            put_number(Own::DueAt, due_at_ms, to);
        }
        put(Own::Reason, dead.cause.reason().as_bytes(), to);
        let start = self.text.len();
        // writing to memory does not fail
        let _ = write!(self.text, "{}", dead.cause);
        put(Own::Error, dead.own.error.unwrap_or(&self.text[start..]), to);
        put_number(Own::Hops, dead.own.hops(), to);
    }

    /// Writes the id, the attempt and the other headers that a client set. Leaves the root in `text`.
    fn put_identity(&mut self, own: &OwnHeaders<'_>, root: Place<'_>, to: &mut impl HeaderSink) {
        self.text.clear();
        root.write_root(&mut self.text);
        put(Own::Id, own.id.unwrap_or(&self.text), to);
        put_number(Own::Attempt, own.attempt, to);
        if let Some(group) = own.group {
            put(Own::Group, group, to);
        }
        if let Some(target) = own.target {
            put(Own::Target, target.value, to);
        }
        if let Some(created_at_ms) = own.created_at_ms {
            put_number(Own::CreatedAt, created_at_ms, to);
        }
        if let Some(done_at_ms) = own.done_at_ms {
            put_number(Own::DoneAt, done_at_ms, to);
        }
        if let Some(error) = own.error {
            put(Own::Error, error, to);
        }
    }

    /// Writes the root and the origin. `text` contains the root.
    fn put_provenance(&mut self, root: Place<'_>, made_from: Place<'_>, to: &mut impl HeaderSink) {
        put(Own::Root, &self.text, to);
        if root == made_from {
            // the root of a record that is seen for the first time begins with its origin
            let end = self.text.len() - root.topic_id.len() - 1;
            put(Own::Origin, &self.text[..end], to);
        } else {
            let start = self.text.len();
            made_from.write_origin(&mut self.text);
            put(Own::Origin, &self.text[start..], to);
        }
    }
}

/// Writes the due time and the delay level that the client requested. They no longer decide anything.
fn put_requested_time(own: &OwnHeaders<'_>, to: &mut impl HeaderSink) {
    if let Some(deliver_at_ms) = own.deliver_at_ms {
        put_number(Own::DeliverAt, deliver_at_ms, to);
    }
    if let Some(delay_level) = own.delay_level {
        put_number(Own::DelayLevel, delay_level, to);
    }
}

pub(crate) fn put_number(name: Own, number: impl itoa::Integer, to: &mut impl HeaderSink) {
    put(name, itoa::Buffer::new().format(number).as_bytes(), to);
}

fn put(name: Own, value: &[u8], to: &mut impl HeaderSink) {
    to.header(name.name().as_bytes(), Some(value));
}

/// Copies the foreign headers in order, including duplicates.
fn put_foreign<'a>(headers: impl Headers<'a>, to: &mut impl HeaderSink) {
    for (name, value) in headers {
        if Own::of(name).is_none() {
            to.header(name, value);
        }
    }
}
