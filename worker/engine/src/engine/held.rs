//! The records that a partition holds: those that have just arrived, and those that wait for their turn.

use std::collections::VecDeque;
use std::mem::size_of;

use super::store::{At, Store, LEAST_CHUNK_BYTES};
use super::stored::{Parts, Stored};
use crate::pending::{Entry, Pending};
use crate::reading::Header;
use crate::routing::Waiting;

/// See the module.
#[derive(Default)]
pub struct Held {
    store: Store,
    /// What was not looked at.
    arrived: VecDeque<Arrived>,
    pending: Pending<At>,
}

/// A record that was read.
#[derive(Clone, Copy)]
struct Arrived {
    offset: i64,
    read_at_ms: i64,
    at: At,
}

/// A record that was taken out to be looked at.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Of the record.
    pub offset: i64,
    /// What was decided when it was looked at before.
    pub waiting: Option<Waiting>,
    /// The broker's time when it was read, as far as that is still needed; `i64::MAX` otherwise.
    pub read_at_ms: i64,
    at: At,
}

impl Held {
    /// A record that has been read. `read_at_ms`: the broker's time then; `i64::MAX`: nobody knows.
    pub fn arrive<'a, H>(&mut self, offset: i64, parts: &Parts<'a, H>, read_at_ms: i64)
    where
        H: Iterator<Item = Header<'a>> + Clone,
    {
        let at = self.store.add(parts);
        self.arrived.push_back(Arrived { offset, read_at_ms, at });
    }

    /// The record whose turn has come. Those that wait come before those that have arrived.
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

    /// What `take` gave.
    #[must_use]
    pub fn get(&self, taken: &Taken) -> Stored<'_> {
        self.store.get(taken.at)
    }

    /// What `take` gave comes next again.
    pub fn put_back(&mut self, taken: &Taken) {
        let Taken { offset, waiting, read_at_ms, at } = *taken;
        match waiting {
            Some(waiting) => self.pending.add(waiting.turn_at_ms, offset, at),
            None => self.arrived.push_front(Arrived { offset, read_at_ms, at }),
        }
    }

    /// What `take` gave waits.
    pub fn wait(&mut self, taken: &Taken, waiting: Waiting) {
        self.store.note(taken.at, waiting);
        self.pending.add(waiting.turn_at_ms, taken.offset, taken.at);
    }

    /// What `take` gave is not needed any more.
    pub fn let_go(&mut self, taken: &Taken) {
        self.store.remove(taken.at);
    }

    /// Some have not been looked at.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Of those that wait.
    #[must_use]
    pub fn next_turn_at_ms(&self) -> Option<i64> {
        self.pending.next_turn_at_ms()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arrived.len() + self.pending.len()
    }

    /// How many could be sent.
    #[must_use]
    pub fn due_count(&self, now_ms: i64) -> usize {
        self.arrived.len() + self.pending.due_count(now_ms)
    }

    /// Memory that is taken.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.store.bytes() + self.arrived.capacity() * size_of::<Arrived>() + self.pending.bytes()
    }

    /// Gives back the memory of records that are gone, where that is more than `spare_bytes` and than what is needed by those
    /// that are there. With none there no more than `spare_bytes` are taken afterwards.
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

    /// What compacting can't give back.
    fn needed_bytes(&self) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let lines = self.arrived.len() * size_of::<Arrived>() + self.pending.len() * size_of::<Entry<At>>();
        lines + self.store.live_bytes().max(LEAST_CHUNK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: i64 = 5000;

    fn waiting(turn_at_ms: i64) -> Waiting {
        Waiting { due_at_ms: turn_at_ms, turn_at_ms, misrouted: false }
    }

    /// Many records were held, all are looked at, and one of `every` stays.
    fn held_much(every: i64) -> Held {
        let mut held = Held::default();
        let parts =
            Parts { appended_at_ms: None, key: None, value: Some(&[0; 400]), headers: Some(std::iter::empty()) };
        for offset in 1..=COUNT {
            held.arrive(offset, &parts, i64::MAX);
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
    fn what_held_much_and_holds_nothing_takes_no_more_than_the_spare_memory() {
        for spare_bytes in [0, 1000, 100_000] {
            let mut held = held_much(COUNT + 1);
            held.compact(spare_bytes);
            assert_eq!(held.len(), 0);
            assert!(held.bytes() <= spare_bytes, "{} of {spare_bytes}", held.bytes());
        }
    }

    #[test]
    fn what_is_compacted_stays_as_it_was_and_is_not_compacted_again() {
        for every in [1, 2, 10, 100, COUNT] {
            let mut held = held_much(every);
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
