//! A partition that is assigned to this worker, and the records that the worker holds of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::alone::{Alone, Lone};
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

/// The most copies of a partition that no accepted commit covers. A crash repeats no more than these.
pub const MAX_UNCOMMITTED: u32 = 5_000;
/// How long a placed partition may deliver neither a record nor its end before it is placed again. The time doubles with each
/// such placement.
pub const PATIENCE_NS: i64 = 1_000_000_000;
/// How long a broker may take to know a new partition.
pub const UNKNOWN_PARTITION_NS: i64 = 5_000_000_000;

/// A partition. Its `state` determines which operations are allowed.
#[allow(clippy::struct_excessive_bools)] // none of them follows from the others
pub struct Partition {
    /// Distinguishes it from a partition that had the same slot before.
    pub id: u64,
    /// The number of its delayed topic.
    pub topic: usize,
    /// The name of the Kafka topic.
    pub name: String,
    /// The number of the partition in that topic.
    pub number: i32,
    /// Front or delays, as given when the partition began.
    pub side: Side,
    /// The id of the Kafka topic when the partition began; empty before.
    pub topic_id: Arc<str>,
    pub(super) state: State,
    /// Whether the window may be committed. It may not before `begin`, nor after `forget`, even if the partition then has to leave.
    pub(super) begun: bool,
    pub(super) window: Window,
    pub(super) delayed: Delayed,
    /// Records that were read and whose copies are not sent.
    pub(super) held: Held,
    /// How many copies are neither acknowledged nor refused, by target.
    pub(super) on_their_way: [u32; TARGETS.len()],
    /// The bytes of these copies, including their headers.
    pub(super) bytes_in_flight: usize,
    pub(super) undone: Undone,
    pub(super) congestion: CongestionWindow,
    /// When no copy was in flight, or one was acknowledged or refused, for the last time.
    pub(super) progress_at_ns: i64,
    /// Whether a copy was acknowledged or refused since the last `look`.
    pub(super) made_progress: bool,
    /// How many copies were acknowledged.
    pub(super) acknowledged: u64,
    /// How many copies were acknowledged when the last commit that Kafka accepted was made.
    pub(super) committed: u64,
    /// Whether Kafka has a commit of the partition. If so, it has to commit a new beginning only if its topic was created again.
    pub(super) has_commit: bool,
    /// Whether there is something to commit.
    pub(super) dirty: bool,
    /// When the partition may be committed again after Kafka refused its last commit, but not the commits of others; otherwise 0.
    pub(super) commit_at_ns: i64,
    /// Since when Kafka has refused its commits, but not those of others, and why.
    pub(super) commit_refused: Option<(i64, String)>,
    /// When the partition is committed again although nothing has changed. See `renewals`.
    pub(super) renew_at_ns: i64,
    /// Records that are sent alone, by offset, because Kafka refused their copies, or a batch or transaction that had them.
    pub(super) alone: BTreeMap<i64, Alone>,
    /// Records that were cancelled or rescheduled and whose copies are in flight, by offset, with their ids.
    pub(super) changed: BTreeMap<i64, (Box<[u8]>, Changed)>,
    /// The offset of the first record that was sent to each target in the current transaction.
    pub(super) first_copies: [Option<i64>; TARGETS.len()],
    /// The record whose copy is in flight alone.
    pub(super) lone: Option<Lone>,
    /// The offset of the last record whose producer did not know the target partition, and since when.
    pub(super) unknown: Option<(i64, i64)>,
    /// The offset of the last placement.
    pub(super) placed_at: Option<i64>,
    pub(super) placed_at_ns: i64,
    pub(super) patience_ns: i64,
    /// The end of the partition at the last fetch; -1 before the first.
    pub(super) end: i64,
    /// Why the next record could not be read. It stays until a record or the end has been read.
    pub(super) read_error: Option<String>,
    /// In how many statistics in a row it has had no leader, or one to which the consumer was not connected.
    pub(super) unreached_looks: u32,
    /// Why the partition is paused in Kafka's client, if it is.
    pub(super) paused: Option<Pause>,
    /// The turn with which the partition is registered in the heap.
    pub(super) turn_ms: Option<i64>,
}

impl Partition {
    /// A partition right after its assignment.
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
            bytes_in_flight: 0,
            undone: Undone::default(),
            congestion: CongestionWindow::default(),
            progress_at_ns: boot_ns(),
            made_progress: false,
            acknowledged: 0,
            committed: 0,
            has_commit: false,
            dirty: false,
            commit_at_ns: 0,
            commit_refused: None,
            renew_at_ns: i64::MAX,
            alone: BTreeMap::new(),
            changed: BTreeMap::new(),
            first_copies: [None; TARGETS.len()],
            lone: None,
            unknown: None,
            placed_at: None,
            placed_at_ns: 0,
            patience_ns: PATIENCE_NS,
            end: -1,
            read_error: None,
            unreached_looks: 0,
            paused: Some(Pause::NotServed),
            turn_ms: None,
        }
    }

    /// An offset of this partition, for a call to Kafka's client.
    #[must_use]
    pub fn offset(&self, offset: i64) -> Offset {
        Offset { topic: self.name.clone(), partition: self.number, offset, metadata: String::new() }
    }

    /// Changes to the state that follows after `step`. Drops the held records if the new state does not send.
    pub fn step(&mut self, step: Step) {
        self.state = self.state.after(step);
        if matches!(step, Step::Forget | Step::Fail) {
            // the window may count copies as finished that Kafka never committed, so not even a partition that leaves commits it
            self.begun = false;
            self.dirty = false;
            self.commit_refused = None;
            self.commit_at_ns = 0;
        }
        if !self.state.sends() {
            self.held = Held::default();
        }
    }

    /// Whether the partition may be committed, for the first time or again.
    #[must_use]
    pub fn may_commit(&self) -> bool {
        self.begun && self.state != State::Unplaced
    }

    /// How many copies are neither acknowledged nor refused.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.on_their_way.iter().sum()
    }

    /// How many records are due, plus how many copies are not acknowledged, or not committed if copies are sent in transactions.
    #[must_use]
    pub fn due(&self, now_ms: i64, transactional: bool) -> usize {
        let copies = if transactional { self.uncommitted() } else { u64::from(self.in_flight()) };
        self.held.due_count(now_ms) + usize::try_from(copies).unwrap_or(usize::MAX)
    }

    /// Which targets have copies that are not acknowledged, including those of a transaction that failed.
    #[must_use]
    pub fn unacknowledged(&self) -> [bool; TARGETS.len()] {
        std::array::from_fn(|to| self.on_their_way[to] > 0 || self.undone.unacknowledged[to])
    }

    /// Whether one more copy may be sent now. `most_bytes` is the limit for the bytes of copies in flight.
    pub fn has_room(&mut self, most_bytes: usize) -> bool {
        let in_flight = self.in_flight();
        self.room() > 0 && self.bytes_in_flight < most_bytes && self.congestion.has_room(in_flight)
    }

    /// How many copies may still be sent before Kafka accepts the next commit.
    #[must_use]
    pub fn room(&self) -> u64 {
        u64::from(MAX_UNCOMMITTED).saturating_sub(self.uncommitted())
    }

    /// How many copies the last accepted commit does not cover. The next worker of the partition may send them again.
    #[must_use]
    pub fn uncommitted(&self) -> u64 {
        u64::from(self.in_flight()) + self.acknowledged - self.committed
    }

    /// When the partition has its next turn, in milliseconds of broker time; `None` if it has nothing to send, or may not send now.
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

    /// Takes in that the producer does not know the target partition of a record. Returns whether this partition may be new. Workers serve a layout that has grown as soon
    /// as the operator sees its partitions, and a broker may see them later.
    pub fn waits_for_new_partition(&mut self, offset: i64) -> bool {
        let now_ns = boot_ns();
        let since_ns = self.unknown.filter(|(of, _)| *of == offset).map_or(now_ns, |(_, since_ns)| since_ns);
        self.unknown = Some((offset, since_ns));
        now_ns - since_ns < UNKNOWN_PARTITION_NS
    }

    /// Counts the copy of a record that was queued. `lone` is given if the copy is sent alone.
    pub fn sent_on(&mut self, taken: &Taken, target: Target, bytes: usize, lone: Option<Lone>) {
        let offset = taken.offset;
        self.held.let_go(taken);
        self.first_copies[target as usize].get_or_insert(offset);
        if !self.unacknowledged().contains(&true) {
            self.progress_at_ns = boot_ns();
        }
        self.on_their_way[target as usize] += 1;
        self.bytes_in_flight += bytes;
        self.congestion.sent(offset);
        self.lone = lone;
    }

    /// Finishes a record whose copy was acknowledged.
    pub fn acknowledge(&mut self, offset: i64, target: Target, bytes: usize) {
        self.complete_copy(offset, target, bytes);
        self.undone = Undone::default();
        self.alone.remove(&offset);
        self.acknowledged += 1;
        if self.window.finish(offset) {
            self.dirty = true;
        }
    }

    /// Counts a copy that was acknowledged or refused, and is no longer in flight. Returns its `Lone` if it was sent alone.
    pub fn complete_copy(&mut self, offset: i64, target: Target, bytes: usize) -> Option<Lone> {
        self.on_their_way[target as usize] -= 1;
        // exact when nothing is in flight, even if the client reported refused copies in another order than they were sent in
        self.bytes_in_flight = if self.in_flight() == 0 { 0 } else { self.bytes_in_flight.saturating_sub(bytes) };
        self.congestion.came_back(offset);
        self.made_progress = true;
        let came_back = self.lone.filter(|lone| lone.offset == offset);
        if came_back.is_some() {
            self.lone = None;
        }
        came_back
    }

    /// Forgets the copies of a transaction that was committed or has failed.
    pub fn forget_copies(&mut self) {
        self.first_copies = [None; TARGETS.len()];
        self.clear_in_flight();
        self.committed = self.acknowledged;
    }

    /// Handles the failure of a transaction that the partition had a part in. `now_ms` is the broker's time.
    pub fn fail(&mut self, now_ms: i64) {
        let due = self.due(now_ms, true).max(self.undone.due);
        self.undone = Undone { due, unacknowledged: self.unacknowledged() };
        self.forget_copies();
        self.step(Step::Fail);
    }

    /// Gives up copies whose results will not be reported. Their records are read again.
    pub fn give_up_copies(&mut self) {
        self.clear_in_flight();
        self.step(Step::ReadAgain);
    }

    fn clear_in_flight(&mut self) {
        self.on_their_way = [0; TARGETS.len()];
        self.bytes_in_flight = 0;
        self.congestion.forget();
        self.lone = None;
    }
}

/// What was left to do when a transaction failed. It counts until a copy is acknowledged, or the partition is read again and has
/// no record that is due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undone {
    /// See `Partition::due`.
    pub due: usize,
    /// See `Partition::unacknowledged`.
    pub unacknowledged: [bool; TARGETS.len()],
}

/// Why a partition is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It holds too much.
    HeldBack,
    /// Its state takes in no records, or it has just been placed again.
    NotServed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stored::{HeaderBytes, Parts};
    use crate::engine::turns::Turns;
    use crate::routing::Waiting;

    fn partition() -> Partition {
        let mut taken = Partition::new(1, 0, "orders".to_owned(), 3);
        taken.step(Step::Take);
        taken
    }

    /// A partition that holds the record at offset 0.
    fn partition_with_a_record() -> Partition {
        let mut partition = partition();
        partition.step(Step::Place);
        let headers: [(&[u8], Option<&[u8]>); 0] = [];
        let parts = Parts { appended_at_ms: Some(1), key: None, value: None, headers: Some(headers.into_iter()) };
        partition.held.arrive(0, &parts, i64::MAX, &mut HeaderBytes::default());
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
    fn one_that_is_leaving_when_its_transaction_fails_commits_nothing_of_it() {
        let mut leaving = Partition { begun: true, ..partition() };
        leaving.step(Step::Place);
        leaving.step(Step::Revoke);
        assert!(leaving.may_commit(), "its copies may still be acknowledged");
        leaving.step(Step::Fail);
        assert!(leaving.state.leaves());
        assert!(!leaving.may_commit());
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
