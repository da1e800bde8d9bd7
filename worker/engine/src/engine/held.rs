//! The records that a partition holds: those that have just arrived, and those that wait for their turn.

use std::collections::VecDeque;
use std::mem::size_of;

use super::store::{At, Store};
use super::stored::{Parts, Stored};
use crate::pending::{Entry, Pending};
use crate::reading::Header;
use crate::routing::Waiting;

/// See the module.
#[derive(Default)]
pub struct Held {
    store: Store,
    /// Offsets that were not looked at.
    arrived: VecDeque<(i64, At)>,
    pending: Pending<At>,
}

/// A record that was taken out to be looked at.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Of the record.
    pub offset: i64,
    /// What was decided when it was looked at before.
    pub waiting: Option<Waiting>,
    at: At,
}

impl Held {
    /// A record that has been read.
    pub fn arrive<'a, H: Iterator<Item = Header<'a>> + Clone>(&mut self, offset: i64, parts: &Parts<'a, H>) {
        let at = self.store.add(parts);
        self.arrived.push_back((offset, at));
    }

    /// The record whose turn has come. Those that wait come before those that have arrived.
    pub fn take(&mut self, now_ms: i64, paused: bool) -> Option<Taken> {
        let waited = if paused { None } else { self.pending.pop(now_ms) };
        match waited {
            Some(Entry { turn_at_ms, offset, record: at }) => {
                Some(Taken { offset, waiting: Some(self.store.waiting(at, turn_at_ms)), at })
            }
            None => self.arrived.pop_front().map(|(offset, at)| Taken { offset, waiting: None, at }),
        }
    }

    /// What `take` gave.
    #[must_use]
    pub fn get(&self, taken: &Taken) -> Stored<'_> {
        self.store.get(taken.at)
    }

    /// What `take` gave comes next again.
    pub fn put_back(&mut self, taken: &Taken) {
        match taken.waiting {
            Some(waiting) => self.pending.add(waiting.turn_at_ms, taken.offset, taken.at),
            None => self.arrived.push_front((taken.offset, taken.at)),
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
        self.store.bytes() + self.arrived.capacity() * size_of::<(i64, At)>() + self.pending.bytes()
    }

    /// Gives back the memory of records that are gone, where it is more than that of those that are there.
    pub fn compact(&mut self) {
        if !self.store.is_wasteful() {
            return;
        }
        let former = std::mem::take(&mut self.store);
        for (_, at) in &mut self.arrived {
            *at = self.store.take_over(&former, *at);
        }
        let store = &mut self.store;
        self.pending.for_each_mut(|at| *at = store.take_over(&former, *at));
    }
}
