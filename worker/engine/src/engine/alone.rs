//! Records that are sent alone, because Kafka refused their copies, or a batch or transaction that had them.

use super::partition::Partition;
use super::topic::{Target, TARGETS};
use crate::routing::Outcome;
use crate::writing::Extent;

/// A record whose copy is sent alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lone {
    /// The offset of the record.
    pub offset: i64,
    /// How much of the record the next dead letter keeps if Kafka refuses this copy; `None` if nothing is left to try.
    pub next: Option<Extent>,
}

/// What is sent of a record that goes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// The copy that was decided on, because Kafka may have refused only the other records of its batch.
    AsDecided,
    /// A dead letter, because Kafka refuses the copy that was decided on.
    AsDeadLetter(Extent, Refused),
}

/// Why Kafka refuses the copy of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Kafka reports that the record or its batch is too large, or its client that the record is.
    TooLarge,
    /// Kafka reports `INVALID_RECORD`.
    Invalid,
}

impl Partition {
    /// Returns the offset and the target of the copy that is in flight alone, if there is one.
    #[must_use]
    pub fn lone_copy(&self) -> Option<(i64, Target)> {
        let offset = self.lone?.offset;
        TARGETS.into_iter().find(|to| self.first_copies[*to as usize] == Some(offset)).map(|target| (offset, target))
    }

    /// Has a record sent as a dead letter that keeps `next` of it, because its copy is refused. The first reason stays.
    pub fn bury(&mut self, offset: i64, next: Extent, why: Refused) {
        let first = match self.alone.get(&offset) {
            Some(Alone::AsDeadLetter(_, first)) => *first,
            _ => why,
        };
        self.alone.insert(offset, Alone::AsDeadLetter(next, first));
    }

    /// Has the first copy to each target sent alone, to find the target that refuses copies.
    pub fn suspect_first_copies(&mut self) {
        for offset in self.first_copies.into_iter().flatten() {
            self.alone.entry(offset).or_insert(Alone::AsDecided);
        }
    }
}

/// Returns how much of the record to send as a dead letter if this copy is refused although it goes alone; `None` if there is nothing
/// left to leave out.
pub fn next_extent(alone: Alone, outcome: &Outcome<'_>) -> Option<Extent> {
    match (alone, outcome) {
        (Alone::AsDecided, Outcome::DeadLetter(_)) => Some(Extent::WithoutValue),
        (Alone::AsDecided, _) => Some(Extent::Whole),
        (Alone::AsDeadLetter(extent, _), _) => extent.smaller(),
    }
}
