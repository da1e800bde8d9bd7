//! The headers of a copy: the foreign ones as they are, then ours.

use std::io::Write;

use crate::dead_letter::MAX_NUMBER;
use crate::own::Own;
use crate::place::Place;
use crate::reading::{Headers, OwnHeaders};
use crate::release::Release;
use crate::routing::{DeadLetter, Hop};

/// Takes the headers of a copy, in order: a client's list, or an encoder.
pub trait HeaderSink {
    /// The next one; its value may be null.
    fn header(&mut self, name: &[u8], value: Option<&[u8]>);
}

impl HeaderSink for Vec<(Vec<u8>, Option<Vec<u8>>)> {
    fn header(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.push((name.to_vec(), value.map(<[u8]>::to_vec)));
    }
}

/// How much of a record its copy has. Less than all only in the dead-letter topic, after Kafka refused it as too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Key, value and headers.
    Whole,
    /// Key and headers.
    WithoutValue,
    /// Our own headers only.
    OwnHeaders,
}

impl Extent {
    /// The next smaller one; `None`: there is nothing left to leave out.
    #[must_use]
    pub fn smaller(self) -> Option<Extent> {
        match self {
            Extent::Whole => Some(Extent::WithoutValue),
            Extent::WithoutValue => Some(Extent::OwnHeaders),
            Extent::OwnHeaders => None,
        }
    }
}

/// Writes the headers of copies. One for a thread: it keeps the memory that it composes values in.
#[derive(Debug, Default)]
pub struct CopyHeaders {
    /// The root, then whatever else has to be composed.
    text: Vec<u8>,
}

impl CopyHeaders {
    /// Of the copy in the delays topic. `made_from`: the record, and `headers` are its.
    pub fn hop<'a>(
        &mut self,
        headers: impl Headers<'a>,
        made_from: Place<'_>,
        hop: &Hop<'a>,
        to: &mut impl HeaderSink,
    ) {
        foreign(headers, to);
        self.identity(&hop.own, hop.root, to);
        self.way(hop.root, made_from, to);
        put_number(Own::DueAt, hop.due_at_ms, to);
        asked(&hop.own, to);
        put_number(Own::Hops, MAX_NUMBER.min(hop.own.hops() + 1), to); // or the copy could not be read
    }

    /// Of the copy in the ready topic. `made_from`: the record, and `headers` are its.
    pub fn release<'a>(
        &mut self,
        headers: impl Headers<'a>,
        made_from: Place<'_>,
        release: &Release<'a>,
        to: &mut impl HeaderSink,
    ) {
        let own = release.own();
        foreign(headers, to);
        self.identity(own, release.root(), to);
        self.way(release.root(), made_from, to);
        put_number(Own::DueAt, release.due_at_ms(), to);
        let start = self.text.len();
        crate::digits::write(&mut self.text, own.attempt);
        self.text.push(b':');
        crate::digits::write(&mut self.text, release.released_at().0);
        put(Own::Released, &self.text[start..], to);
        put_number(Own::Hops, own.hops(), to);
    }

    /// Of the copy in the dead-letter topic. `made_from`: the record, and `headers` are its; of an `Extent` that has none,
    /// or where they can't be read, there are none. What the client asked for stays with it, so that it can be sent again.
    pub fn dead_letter<'a>(
        &mut self,
        headers: impl Headers<'a>,
        made_from: Place<'_>,
        dead: &DeadLetter<'a>,
        to: &mut impl HeaderSink,
    ) {
        foreign(headers, to);
        self.identity(&OwnHeaders { error: None, ..dead.own.clone() }, dead.root, to);
        self.way(dead.root, made_from, to);
        asked(&dead.own, to);
        if let Some(due_at_ms) = dead.due_at_ms {
            put_number(Own::DueAt, due_at_ms, to);
        }
        put(Own::Reason, dead.cause.reason().as_bytes(), to);
        let start = self.text.len();
        // writing into memory doesn't fail
        let _ = write!(self.text, "{}", dead.cause);
        put(Own::Error, dead.own.error.unwrap_or(&self.text[start..]), to);
        put_number(Own::Hops, dead.own.hops(), to);
    }

    /// What a client said of it, and leaves the root at the beginning of `text`.
    fn identity(&mut self, own: &OwnHeaders<'_>, root: Place<'_>, to: &mut impl HeaderSink) {
        self.text.clear();
        root.write_root(&mut self.text);
        put(Own::Id, own.id.unwrap_or(&self.text), to);
        put_number(Own::Attempt, own.attempt, to);
        if let Some(group) = own.group {
            put(Own::Group, group, to);
        }
        if let Some(target) = own.target {
            put(Own::Target, target.said, to);
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

    /// Where it was first seen, and what it is a copy of.
    fn way(&mut self, root: Place<'_>, made_from: Place<'_>, to: &mut impl HeaderSink) {
        put(Own::Root, &self.text, to);
        if root == made_from {
            // the root of a record that was just seen begins with its origin
            let end = self.text.len() - root.topic_id.len() - 1;
            put(Own::Origin, &self.text[..end], to);
        } else {
            let start = self.text.len();
            made_from.write_origin(&mut self.text);
            put(Own::Origin, &self.text[start..], to);
        }
    }
}

/// When the client asked for it to come out, which decides nothing any more.
fn asked(own: &OwnHeaders<'_>, to: &mut impl HeaderSink) {
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

/// The headers that are not ours, in order, duplicates included.
fn foreign<'a>(headers: impl Headers<'a>, to: &mut impl HeaderSink) {
    for (name, value) in headers {
        if Own::of(name).is_none() {
            to.header(name, value);
        }
    }
}
