//! The records that a partition holds: those that have just arrived, and those that wait for their turn.

use std::collections::VecDeque;
use std::mem::size_of;

use super::store::{At, Store, MIN_CHUNK_BYTES};
use super::stored::{HeaderBytes, Parts, Stored};
use crate::pending::{Entry, Pending};
use crate::reading::Header;
use crate::routing::Waiting;

/// See the module.
#[derive(Default)]
pub struct Held {
    store: Store,
    /// Records for which nothing is decided yet.
    arrived: VecDeque<Arrived>,
    pending: Pending<At>,
}

/// A record that was read, and for which nothing is decided yet.
#[derive(Clone, Copy)]
struct Arrived {
    offset: i64,
    read_at_ms: i64,
    at: At,
}

/// A record that was taken out to decide what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The offset of the record.
    pub offset: i64,
    /// What was decided before; `None` for a newly arrived record.
    pub waiting: Option<Waiting>,
    /// The broker's time at which the record was read; `i64::MAX` if that is unknown, or no longer needed.
    pub read_at_ms: i64,
    at: At,
}

impl Held {
    /// Adds a record that was read. `read_at_ms` is the broker's time at that moment, or `i64::MAX` if it is unknown. `memory` is
    /// reusable.
    pub fn arrive<'a, H>(&mut self, offset: i64, parts: &Parts<'a, H>, read_at_ms: i64, memory: &mut HeaderBytes)
    where
        H: Iterator<Item = Header<'a>> + Clone,
    {
        let at = self.store.add(parts, memory);
        self.arrived.push_back(Arrived { offset, read_at_ms, at });
    }

    /// Returns the record whose turn has come; waiting records come before newly arrived ones. With `paused`, waiting records stay.
    pub fn take(&mut self, now_ms: i64, paused: bool) -> Option<Taken> {
        let waited = if paused { None } else { self.pending.pop(now_ms) };
        match waited {
            Some(Entry { turn_at_ms, offset, record: at }) => {
                let waiting = Some(self.store.waiting(at, turn_at_ms));
                Some(Taken { offset, waiting, read_at_ms: i64::MAX, at })
            }
            None => self.arrived.pop_front().map(|arrived| {
                let Arrived { offset, read_at_ms, at } = arrived;
                Taken { offset, waiting: None, read_at_ms, at }
            }),
        }
    }

    /// Returns the content of a record that `take` returned.
    #[must_use]
    pub fn get(&self, taken: &Taken) -> Stored<'_> {
        self.store.get(taken.at)
    }

    /// Puts back a record that `take` returned; it is the next one again.
    pub fn put_back(&mut self, taken: &Taken) {
        let Taken { offset, waiting, read_at_ms, at } = *taken;
        match waiting {
            Some(waiting) => self.pending.add(waiting.turn_at_ms, offset, at),
            None => self.arrived.push_front(Arrived { offset, read_at_ms, at }),
        }
    }

    /// Lets a record that `take` returned wait for its turn.
    pub fn wait(&mut self, taken: &Taken, waiting: Waiting) {
        self.store.note(taken.at, waiting);
        self.pending.add(waiting.turn_at_ms, taken.offset, taken.at);
    }

    /// Removes a record that `take` returned.
    pub fn let_go(&mut self, taken: &Taken) {
        self.store.remove(taken.at);
    }

    /// Whether there are newly arrived records.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Returns the next turn of the waiting records, in milliseconds of broker time; `None` if no record waits.
    #[must_use]
    pub fn next_turn_at_ms(&self) -> Option<i64> {
        self.pending.next_turn_at_ms()
    }

    /// Returns the number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arrived.len() + self.pending.len()
    }

    /// Returns how many records have arrived or have their turn by `now_ms`.
    #[must_use]
    pub fn due_count(&self, now_ms: i64) -> usize {
        self.arrived.len() + self.pending.due_count(now_ms)
    }

    /// Returns the memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.store.bytes() + self.arrived.capacity() * size_of::<Arrived>() + self.pending.bytes()
    }

    /// Frees the memory of removed records, if this is more than `spare_bytes` plus the memory that the remaining records need. If none
    /// remain, no more than `spare_bytes` are in use afterwards.
    pub fn compact(&mut self, spare_bytes: usize) {
        if self.bytes() <= 2 * self.needed_bytes() + spare_bytes {
            return;
        }
        let former = std::mem::take(&mut self.store);
        for arrived in &mut self.arrived {
            arrived.at = self.store.take_over(&former, arrived.at);
        }
        let store = &mut self.store;
        self.pending.for_each_mut(|at| *at = store.take_over(&former, *at));
        self.arrived.shrink_to_fit();
        self.pending.shrink_to_fit();
    }

    /// The memory that compacting cannot free.
    fn needed_bytes(&self) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let index_bytes = self.arrived.len() * size_of::<Arrived>() + self.pending.len() * size_of::<Entry<At>>();
        index_bytes + self.store.live_bytes().max(MIN_CHUNK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: i64 = 5000;

    fn waiting(turn_at_ms: i64) -> Waiting {
        Waiting { due_at_ms: turn_at_ms, turn_at_ms, misrouted: false }
    }

    /// A `Held` that held `COUNT` records, of which one of `every` remains and waits.
    fn mostly_removed(every: i64) -> Held {
        let mut held = Held::default();
        let parts =
            Parts { appended_at_ms: None, key: None, value: Some(&[0; 400]), headers: Some(std::iter::empty()) };
        for offset in 1..=COUNT {
            held.arrive(offset, &parts, i64::MAX, &mut HeaderBytes::default());
        }
        for turn_at_ms in [5, 6] {
            let taken: Vec<Taken> = std::iter::from_fn(|| held.take(turn_at_ms - 1, false)).collect();
            for taken in taken {
                if turn_at_ms == 5 || taken.offset % every == 0 {
                    held.wait(&taken, waiting(turn_at_ms));
                } else {
                    held.let_go(&taken);
                }
            }
        }
        held
    }

    #[test]
    fn when_all_records_are_removed_no_more_than_the_spare_memory_is_in_use() {
        for spare_bytes in [0, 1000, 100_000] {
            let mut held = mostly_removed(COUNT + 1);
            held.compact(spare_bytes);
            assert_eq!(held.len(), 0);
            assert!(held.bytes() <= spare_bytes, "{} of {spare_bytes}", held.bytes());
        }
    }

    #[test]
    fn compacting_changes_no_record_and_leaves_nothing_to_compact() {
        for every in [1, 2, 10, 100, COUNT] {
            let mut held = mostly_removed(every);
            held.compact(0);
            assert!(held.bytes() <= 2 * held.needed_bytes(), "{} for {}", held.bytes(), held.len());
            for offset in (every..=COUNT).step_by(usize::try_from(every).unwrap_or(1)) {
                let taken = held.take(6, false);
                assert_eq!(taken.map(|taken| (taken.offset, taken.waiting)), Some((offset, Some(waiting(6)))));
                assert_eq!(taken.map(|taken| held.get(&taken).parts().value), Some(Some(&[0; 400][..])));
            }
            assert_eq!(held.len(), 0);
        }
    }
}
