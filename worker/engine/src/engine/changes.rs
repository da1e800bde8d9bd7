//! Records whose senders have changed their minds, by their ids.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::place::Place;
use crate::reading::OwnHeaders;

/// Releases of all topics that are remembered, so that whoever changes one is told that it is too late: some 30 bytes each.
const REMEMBERED: usize = 100_000;

/// What is wanted of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is not to be released.
    Cancel,
    /// It is due then, if it came in before.
    DeliverAt(i64),
}

/// What became of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is a dead letter.
    Cancelled,
    /// It came out at the time that was asked for, or goes on to it.
    Rescheduled(i64),
    /// It came out when it was due before, which is later than was asked for: its turn came no sooner.
    TooDeep(i64),
}

/// Of a delayed topic.
#[derive(Debug, Default)]
pub struct Changes {
    /// How many releases are remembered.
    remembered: usize,
    wanted: HashMap<Box<[u8]>, Change>,
    /// Hashes of ids.
    released: HashSet<u64>,
    /// The same, the oldest first.
    by_age: VecDeque<u64>,
    hasher: RandomState,
}

impl Changes {
    /// From now on this is wanted of records of this id; true: one was released lately.
    pub fn want(&mut self, id: &[u8], change: Change) -> bool {
        self.wanted.insert(id.into(), change);
        self.released.contains(&self.hasher.hash_one(id))
    }

    /// Nothing is wanted of records of this id any more.
    pub fn withdraw(&mut self, id: &[u8]) {
        self.wanted.remove(id);
    }

    /// As if nothing had been wanted or released.
    pub fn forget(&mut self) {
        *self = Changes { remembered: self.remembered, ..Changes::default() };
    }

    /// Nothing is wanted of any record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// What is wanted of a record, and its id.
    #[must_use]
    pub fn of(&self, own: &OwnHeaders<'_>, root: Place<'_>) -> Option<(Box<[u8]>, Change)> {
        with_id(own, root, |id| self.wanted.get_key_value(id).map(|(id, change)| (id.clone(), *change)))
    }

    /// There are so many topics whose releases are remembered; each has an equal part.
    pub fn share(&mut self, topics: usize) {
        self.remembered = REMEMBERED / topics.max(1);
    }

    /// A record is released.
    pub fn release(&mut self, own: &OwnHeaders<'_>, root: Place<'_>) {
        let hash = with_id(own, root, |id| self.hasher.hash_one(id));
        if self.released.insert(hash) {
            self.by_age.push_back(hash);
            while self.by_age.len() > self.remembered {
                self.by_age.pop_front().map(|oldest| self.released.remove(&oldest));
            }
        }
    }
}

/// A record that came without an id gets its root as one.
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
    fn of_what_is_withdrawn_nothing_is_wanted() {
        let mut changes = Changes::default();
        changes.want(b"order-42", Change::Cancel);
        changes.withdraw(b"order-42");
        assert_eq!(changes.of(&with(b"order-42"), ROOT), None);
        assert!(changes.is_empty());
    }

    #[test]
    fn of_the_latest_releases_it_is_known_that_it_is_too_late() {
        for topics in 1..3 {
            let mut changes = Changes::default();
            changes.share(topics);
            let remembered = REMEMBERED / topics;
            for number in 0..=remembered {
                changes.release(&with(number.to_string().as_bytes()), ROOT);
                changes.release(&with(number.to_string().as_bytes()), ROOT);
            }
            let mut was_released = |id: &str| changes.want(id.as_bytes(), Change::Cancel);
            assert!(!was_released("0"));
            assert!(was_released("1"));
            assert!(was_released(&remembered.to_string()));
            assert!(!was_released("never"));
            assert_eq!(changes.released.len(), remembered);
        }
    }
}
