//! Requests to cancel or reschedule records, by the ids of the records.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::place::Place;
use crate::reading::OwnHeaders;

/// How many releases the engine remembers for all topics together, so that Python can answer a request for a released record with
/// `too-late`. Each takes some 30 bytes.
const MAX_RELEASED: usize = 100_000;

/// A request for all records with an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Do not release the record.
    Cancel,
    /// Release the record at this time, in milliseconds since the epoch, unless it came in after that.
    DeliverAt(i64),
}

/// What a request did to one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The record became a dead letter.
    Cancelled,
    /// The record was released at the requested time, or hopped on and will be released then.
    Rescheduled(i64),
    /// The record was released at its former due time, which is later than the requested time, because its turn came no sooner.
    /// Holds the requested time.
    TooDeep(i64),
}

/// The requests for a delayed topic, and its latest releases.
#[derive(Debug, Default)]
pub struct Changes {
    /// How many releases to remember.
    max_released: usize,
    requested: HashMap<Box<[u8]>, Change>,
    /// Hashes of the ids of released records.
    released: HashSet<u64>,
    /// The same hashes, the oldest first.
    by_age: VecDeque<u64>,
    hasher: RandomState,
}

impl Changes {
    /// Applies a request to records with this id from now on. Returns whether such a record was released recently.
    pub fn want(&mut self, id: &[u8], change: Change) -> bool {
        self.requested.insert(id.into(), change);
        self.released.contains(&self.hasher.hash_one(id))
    }

    /// Withdraws the request for records with this id.
    pub fn withdraw(&mut self, id: &[u8]) {
        self.requested.remove(id);
    }

    /// Drops all requests, and forgets all releases.
    pub fn forget(&mut self) {
        *self = Changes { max_released: self.max_released, ..Changes::default() };
    }

    /// Whether there are no requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requested.is_empty()
    }

    /// Returns the request for a record, with the id of the record.
    #[must_use]
    pub fn of(&self, own: &OwnHeaders<'_>, root: Place<'_>) -> Option<(Box<[u8]>, Change)> {
        with_id(own, root, |id| self.requested.get_key_value(id).map(|(id, change)| (id.clone(), *change)))
    }

    /// Sets how many releases to remember: an equal part of `MAX_RELEASED` for each of `topics` delayed topics.
    pub fn share(&mut self, topics: usize) {
        self.max_released = MAX_RELEASED / topics.max(1);
    }

    /// Remembers that a record is released.
    pub fn release(&mut self, own: &OwnHeaders<'_>, root: Place<'_>) {
        let hash = with_id(own, root, |id| self.hasher.hash_one(id));
        if self.released.insert(hash) {
            self.by_age.push_back(hash);
            while self.by_age.len() > self.max_released {
                self.by_age.pop_front().map(|oldest| self.released.remove(&oldest));
            }
        }
    }
}

/// Calls `with` with the id of a record, which is its root if it came without an id.
fn with_id<T>(own: &OwnHeaders<'_>, root: Place<'_>, with: impl FnOnce(&[u8]) -> T) -> T {
    if let Some(id) = own.id {
        return with(id);
    }
    let mut text = Vec::with_capacity(64);
    root.write_root(&mut text);
    with(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::SourceTopic;

    const ROOT: Place<'static> = Place { source: SourceTopic::Front, partition: 3, offset: 7, topic_id: "AbC" };

    fn with(id: &[u8]) -> OwnHeaders<'_> {
        OwnHeaders { id: Some(id), ..OwnHeaders::default() }
    }

    #[test]
    fn a_record_is_known_by_its_id_or_without_one_by_its_root() {
        let mut changes = Changes::default();
        changes.want(b"order-42", Change::Cancel);
        changes.want(b"f:3:7:AbC", Change::DeliverAt(5));
        let of = |own: &OwnHeaders<'_>| changes.of(own, ROOT).map(|(id, change)| (id.into_vec(), change));
        assert_eq!(of(&with(b"order-42")), Some((b"order-42".to_vec(), Change::Cancel)));
        assert_eq!(of(&OwnHeaders::default()), Some((b"f:3:7:AbC".to_vec(), Change::DeliverAt(5))));
        assert_eq!(of(&with(b"order-43")), None);
    }

    #[test]
    fn a_withdrawn_request_applies_to_no_record() {
        let mut changes = Changes::default();
        changes.want(b"order-42", Change::Cancel);
        changes.withdraw(b"order-42");
        assert_eq!(changes.of(&with(b"order-42"), ROOT), None);
        assert!(changes.is_empty());
    }

    #[test]
    fn a_request_for_one_of_the_latest_releases_is_known_to_be_too_late() {
        for topics in 1..3 {
            let mut changes = Changes::default();
            changes.share(topics);
            let max_released = MAX_RELEASED / topics;
            for number in 0..=max_released {
                changes.release(&with(number.to_string().as_bytes()), ROOT);
                changes.release(&with(number.to_string().as_bytes()), ROOT);
            }
            let mut was_released = |id: &str| changes.want(id.as_bytes(), Change::Cancel);
            assert!(!was_released("0"));
            assert!(was_released("1"));
            assert!(was_released(&max_released.to_string()));
            assert!(!was_released("never"));
            assert_eq!(changes.released.len(), max_released);
        }
    }
}
