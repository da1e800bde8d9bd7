//! Records that somebody doesn't want any more, by their ids.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::place::Place;
use crate::reading::OwnHeaders;

/// Releases of all topics that are remembered, so that whoever cancels one is told that it is too late: some 30 bytes each.
const REMEMBERED: usize = 100_000;

/// Of a delayed topic.
#[derive(Debug, Default)]
pub struct Cancellations {
    /// How many releases are remembered.
    remembered: usize,
    open: HashSet<Box<[u8]>>,
    /// Hashes of ids.
    released: HashSet<u64>,
    /// The same, the oldest first.
    by_age: VecDeque<u64>,
    hasher: RandomState,
}

impl Cancellations {
    /// From now on no record of this id is released; true: one was, lately.
    pub fn cancel(&mut self, id: &[u8]) -> bool {
        self.open.insert(id.into());
        self.released.contains(&self.hasher.hash_one(id))
    }

    /// Records of this id are released again.
    pub fn withdraw(&mut self, id: &[u8]) {
        self.open.remove(id);
    }

    /// The id of a record that is not to be released.
    #[must_use]
    pub fn id_of(&self, own: &OwnHeaders<'_>, root: Place<'_>) -> Option<Box<[u8]>> {
        if self.open.is_empty() {
            return None;
        }
        with_id(own, root, |id| self.open.get(id).cloned())
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
    use crate::place::Door;

    const ROOT: Place<'static> = Place { door: Door::Front, partition: 3, offset: 7, topic_id: "AbC" };

    fn with(id: &[u8]) -> OwnHeaders<'_> {
        OwnHeaders { id: Some(id), ..OwnHeaders::default() }
    }

    #[test]
    fn a_record_is_known_by_its_id_or_without_one_by_its_root() {
        let mut cancellations = Cancellations::default();
        cancellations.cancel(b"order-42");
        cancellations.cancel(b"f:3:7:AbC");
        assert_eq!(cancellations.id_of(&with(b"order-42"), ROOT).as_deref(), Some(&b"order-42"[..]));
        assert_eq!(cancellations.id_of(&OwnHeaders::default(), ROOT).as_deref(), Some(&b"f:3:7:AbC"[..]));
        assert_eq!(cancellations.id_of(&with(b"order-43"), ROOT), None);
    }

    #[test]
    fn what_is_withdrawn_is_released() {
        let mut cancellations = Cancellations::default();
        cancellations.cancel(b"order-42");
        cancellations.withdraw(b"order-42");
        assert_eq!(cancellations.id_of(&with(b"order-42"), ROOT), None);
    }

    #[test]
    fn of_the_latest_releases_it_is_known_that_it_is_too_late() {
        for topics in 1..3 {
            let mut cancellations = Cancellations::default();
            cancellations.share(topics);
            let remembered = REMEMBERED / topics;
            for number in 0..=remembered {
                cancellations.release(&with(number.to_string().as_bytes()), ROOT);
                cancellations.release(&with(number.to_string().as_bytes()), ROOT);
            }
            assert!(!cancellations.cancel(b"0"));
            assert!(cancellations.cancel(b"1"));
            assert!(cancellations.cancel(remembered.to_string().as_bytes()));
            assert!(!cancellations.cancel(b"never"));
            assert_eq!(cancellations.released.len(), remembered);
        }
    }
}
