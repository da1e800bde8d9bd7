//! A partition that is assigned to this worker, and the records that it holds of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::changes::Changed;
use super::clock::boot_ns;
use super::congestion::CongestionWindow;
use super::delayed::Delayed;
use super::held::{Held, Taken};
use super::state::{State, Step};
use super::topic::{Target, TARGETS};
use crate::kafka::Offset;
use crate::record::Side;
use crate::window::Window;
use crate::writing::Extent;

/// A crash repeats no more than this of a partition.
pub const MAX_UNCOMMITTED: u32 = 5_000;
/// A partition tells within this time that it is read, by a record or its end, or reading is placed again; twice as long
/// each time.
pub const PATIENCE_NS: i64 = 1_000_000_000;

/// A partition. What may be done with it follows from `state`.
#[allow(clippy::struct_excessive_bools)] // none of them follows from the others
pub struct Partition {
    /// Tells it from one that had its number before.
    pub id: u64,
    /// The delayed topic that it is of, by its number.
    pub topic: usize,
    /// Of the Kafka topic.
    pub name: String,
    /// In that topic.
    pub number: i32,
    /// Front or delays, as it was told when the partition began.
    pub side: Side,
    /// Of the Kafka topic, as it was when the partition began; empty before.
    pub topic_id: Arc<str>,
    pub(super) state: State,
    /// Its window is that of what is read: not before `begin`, nor after `forget`, even if it has to leave then.
    pub(super) begun: bool,
    pub(super) window: Window,
    pub(super) delayed: Delayed,
    /// Its records that are neither sent nor given up.
    pub(super) held: Held,
    /// Copies that are neither acknowledged nor refused, by target.
    pub(super) on_their_way: [u32; TARGETS.len()],
    /// Of them, with their headers.
    pub(super) bytes_on_their_way: usize,
    pub(super) undone: Undone,
    pub(super) congestion: CongestionWindow,
    /// When none was missing, or one came back, last.
    pub(super) progress_at_ns: i64,
    /// One has come back since somebody looked.
    pub(super) made_progress: bool,
    /// Copies that were acknowledged.
    pub(super) acknowledged: u64,
    /// How many were acknowledged when the last commit that Kafka accepted was made.
    pub(super) committed: u64,
    /// Kafka has a commit of it: where it begins after that has to be committed only if its topic was made again.
    pub(super) has_commit: bool,
    /// There is something to commit.
    pub(super) dirty: bool,
    /// No commit before that, since Kafka has refused its last one, and would take others'; 0: it has not.
    pub(super) commit_at_ns: i64,
    /// Then it is committed once more, whatever is done meanwhile. See `renewals`.
    pub(super) renew_at_ns: i64,
    /// Offsets whose copies were refused as too large, alone or in a batch with others. They go by themselves.
    pub(super) alone: BTreeMap<i64, Alone>,
    /// Offsets of records of which something was wanted and whose copies are on their way, with their ids.
    pub(super) changed: BTreeMap<i64, (Box<[u8]>, Changed)>,
    /// The first copies to each target that were sent in the transaction at hand.
    pub(super) first_copies: [Option<i64>; TARGETS.len()],
    /// The one of them that is on its way.
    pub(super) lone: Option<Lone>,
    /// Since when the first copy can't be queued, since its producer knows no such partition.
    pub(super) unknown_since_ns: Option<i64>,
    /// Where Kafka's client was told to read last.
    pub(super) placed_at: Option<i64>,
    pub(super) placed_at_ns: i64,
    pub(super) patience_ns: i64,
    /// Where it ended when something was fetched last; -1: nothing was yet.
    pub(super) end: i64,
    /// Why what comes next could not be read, until something was.
    pub(super) read_error: Option<String>,
    /// Why Kafka's client was told not to read on, if it was.
    pub(super) paused: Option<Pause>,
    /// The turn that it is in the heap with.
    pub(super) turn_ms: Option<i64>,
}

impl Partition {
    /// As it is right after its assignment.
    #[must_use]
    pub fn new(id: u64, topic: usize, name: String, number: i32) -> Self {
        Partition {
            id,
            topic,
            name,
            number,
            side: Side::Front,
            topic_id: "".into(),
            state: State::Assigned,
            begun: false,
            window: Window::new(0, []),
            delayed: Delayed::default(),
            held: Held::default(),
            on_their_way: [0; TARGETS.len()],
            bytes_on_their_way: 0,
            undone: Undone::default(),
            congestion: CongestionWindow::default(),
            progress_at_ns: boot_ns(),
            made_progress: false,
            acknowledged: 0,
            committed: 0,
            has_commit: false,
            dirty: false,
            commit_at_ns: 0,
            renew_at_ns: i64::MAX,
            alone: BTreeMap::new(),
            changed: BTreeMap::new(),
            first_copies: [None; TARGETS.len()],
            lone: None,
            unknown_since_ns: None,
            placed_at: None,
            placed_at_ns: 0,
            patience_ns: PATIENCE_NS,
            end: -1,
            read_error: None,
            paused: Some(Pause::NotServed),
            turn_ms: None,
        }
    }

    /// For a call to Kafka's client.
    #[must_use]
    pub fn offset(&self, offset: i64) -> Offset {
        Offset { topic: self.name.clone(), partition: self.number, offset, metadata: String::new() }
    }

    /// Goes on to the state after `step`. What is held goes when it isn't served any more.
    pub fn step(&mut self, step: Step) {
        self.state = self.state.after(step);
        if matches!(step, Step::Forget | Step::Fail) {
            // its window says finished of what may never have come true: whoever leaves it now leaves it as it was committed
            self.begun &= self.state.leaves();
            self.dirty = false;
        }
        if !self.state.sends() {
            self.held = Held::default();
        }
    }

    /// There is something to commit, or the same once more.
    #[must_use]
    pub fn may_commit(&self) -> bool {
        self.begun && self.state != State::Unplaced
    }

    /// Copies that are neither acknowledged nor refused.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.on_their_way.iter().sum()
    }

    /// Records that are due, and copies that are not acknowledged, or with transactions not committed.
    #[must_use]
    pub fn due(&self, now_ms: i64, transactional: bool) -> usize {
        let copies = if transactional { self.uncommitted() } else { u64::from(self.in_flight()) };
        self.held.due_count(now_ms) + usize::try_from(copies).unwrap_or(usize::MAX)
    }

    /// The targets that owe an acknowledgement.
    #[must_use]
    pub fn unacknowledged(&self) -> [bool; TARGETS.len()] {
        std::array::from_fn(|to| self.on_their_way[to] > 0 || self.undone.unacknowledged[to])
    }

    /// Whether one more copy may be sent now. `most_bytes`: of copies that are on their way.
    pub fn has_room(&mut self, most_bytes: usize) -> bool {
        let in_flight = self.in_flight();
        self.room() > 0 && self.bytes_on_their_way < most_bytes && self.congestion.has_room(in_flight)
    }

    /// How many copies may still be sent before the next commit is accepted.
    #[must_use]
    pub fn room(&self) -> u64 {
        u64::from(MAX_UNCOMMITTED).saturating_sub(self.uncommitted())
    }

    /// Copies that were sent since the last commit that Kafka accepted: whoever serves it next may send them again.
    #[must_use]
    pub fn uncommitted(&self) -> u64 {
        u64::from(self.in_flight()) + self.acknowledged - self.committed
    }

    /// When there is something to do, in milliseconds of broker time; `None`: nothing, or not now.
    #[must_use]
    pub fn next_turn_ms(&self, paused: bool, skew_ms: i64) -> Option<i64> {
        if !self.state.sends() {
            return None;
        }
        if self.held.has_arrived() {
            return Some(0);
        }
        let turn_ms = self.held.next_turn_at_ms()?;
        (!paused).then_some(turn_ms.saturating_add(skew_ms))
    }

    /// The copy of a record is on its way, by itself if it is a `Lone`.
    pub fn sent_on(&mut self, taken: &Taken, target: Target, bytes: usize, lone: Option<Lone>) {
        let offset = taken.offset;
        self.held.let_go(taken);
        self.first_copies[target as usize].get_or_insert(offset);
        self.unknown_since_ns = None;
        if !self.unacknowledged().contains(&true) {
            self.progress_at_ns = boot_ns();
        }
        self.on_their_way[target as usize] += 1;
        self.bytes_on_their_way += bytes;
        self.congestion.sent(offset);
        self.lone = lone;
    }

    /// The copy of a record has arrived.
    pub fn acknowledge(&mut self, offset: i64, target: Target, bytes: usize) {
        self.come_back(offset, target, bytes);
        self.undone = Undone::default();
        self.alone.remove(&offset);
        self.acknowledged += 1;
        if self.window.finish(offset) {
            self.dirty = true;
        }
    }

    /// The copy of a record is on its way no more. If it went by itself: as what.
    pub fn come_back(&mut self, offset: i64, target: Target, bytes: usize) -> Option<Lone> {
        self.on_their_way[target as usize] -= 1;
        self.bytes_on_their_way = self.bytes_on_their_way.saturating_sub(bytes);
        self.congestion.came_back(offset);
        self.made_progress = true;
        let came_back = self.lone.filter(|lone| lone.offset == offset);
        if came_back.is_some() {
            self.lone = None;
        }
        came_back
    }

    /// The record whose copy is on its way by itself, if there is one, and where that goes.
    #[must_use]
    pub fn lone_copy(&self) -> Option<(i64, Target)> {
        let offset = self.lone?.offset;
        TARGETS.into_iter().find(|to| self.first_copies[*to as usize] == Some(offset)).map(|target| (offset, target))
    }

    /// The first copy to each target is tried alone, for the one to be found that may not go there.
    pub fn suspect_first_copies(&mut self) {
        for offset in self.first_copies.into_iter().flatten() {
            self.alone.entry(offset).or_insert(Alone::AsDecided);
        }
    }

    /// The transaction that its copies were part of has ended, well or not.
    pub fn forget_copies(&mut self) {
        self.first_copies = [None; TARGETS.len()];
        self.forget_what_is_on_its_way();
        self.committed = self.acknowledged;
    }

    /// A transaction that it had a part in has failed. `now_ms`: the broker's time.
    pub fn fail(&mut self, now_ms: i64) {
        let due = self.due(now_ms, true).max(self.undone.due);
        self.undone = Undone { due, unacknowledged: self.unacknowledged() };
        self.forget_copies();
        self.step(Step::Fail);
    }

    /// What is on its way is not told of any more.
    pub fn give_up_copies(&mut self) {
        self.forget_what_is_on_its_way();
        self.step(Step::ReadAgain);
    }

    fn forget_what_is_on_its_way(&mut self) {
        self.on_their_way = [0; TARGETS.len()];
        self.bytes_on_their_way = 0;
        self.congestion.forget();
        self.lone = None;
    }
}

/// What was left to do when a transaction failed: until a copy is acknowledged, or the partition is read again and nothing is due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undone {
    /// See `Partition::due`.
    pub due: usize,
    /// See `Partition::unacknowledged`.
    pub unacknowledged: [bool; TARGETS.len()],
}

/// Why a partition is read no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Too much is held.
    HeldBack,
    /// Its state, or it has just been placed anew.
    NotServed,
}

/// A record whose copy went by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lone {
    /// Of the record.
    pub offset: i64,
    /// As how much of a dead letter it goes next if it is refused; `None`: nothing is left to try.
    pub next: Option<Extent>,
}

/// As what a record goes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// It may be that only its neighbours were refused.
    AsDecided,
    /// Kafka takes no copy of it where it should go.
    AsDeadLetter(Extent, Refused),
}

/// Why Kafka takes no copy of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// See `outcomes`.
    TooLarge,
    /// The same.
    Invalid,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stored::Parts;
    use crate::engine::turns::Turns;
    use crate::routing::Waiting;

    fn partition() -> Partition {
        let mut taken = Partition::new(1, 0, "orders".to_owned(), 3);
        taken.step(Step::Take);
        taken
    }

    /// It has the record at offset 0.
    fn partition_with_a_record() -> Partition {
        let mut partition = partition();
        partition.step(Step::Place);
        let headers: [(&[u8], Option<&[u8]>); 0] = [];
        let parts = Parts { appended_at_ms: Some(1), key: None, value: None, headers: Some(headers.into_iter()) };
        partition.held.arrive(0, &parts, i64::MAX);
        partition
    }

    #[test]
    fn one_that_never_began_or_has_to_begin_again_commits_nothing_when_it_leaves() {
        let mut never_began = partition();
        never_began.step(Step::Revoke);
        never_began.step(Step::Settled);
        assert!(never_began.state.leaves());
        assert!(!never_began.may_commit());
        let mut begins_again = Partition { begun: true, ..partition() };
        begins_again.step(Step::Place);
        assert!(begins_again.may_commit());
        begins_again.step(Step::Forget);
        begins_again.step(Step::Revoke);
        assert!(!begins_again.may_commit());
    }

    #[test]
    fn one_whose_topic_is_not_served_has_no_turn() {
        let mut partition = partition_with_a_record();
        let mut turns = Turns::default();
        turns.register(0, &mut partition, None);
        assert_eq!(turns.next_ms(), None);
    }

    #[test]
    fn the_farthest_due_time_is_no_overflow() {
        let mut partition = partition_with_a_record();
        let taken = partition.held.take(0, false).unwrap();
        let waiting = Waiting { due_at_ms: i64::MAX, turn_at_ms: i64::MAX, misrouted: false };
        partition.held.wait(&taken, waiting);
        assert_eq!(partition.next_turn_ms(false, 5), Some(i64::MAX));
    }
}
