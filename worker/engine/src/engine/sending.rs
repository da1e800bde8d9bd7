//! What becomes due is sent on, in the order of turns.

use std::os::fd::AsFd;

use super::copying::{Goes, Sending};
use super::topic::Topic;
use super::transactions::Transactions;
use super::{boot_ns, Engine, NEAR_MS};
use crate::release::LowerBoundMs;

/// Whoever polled longer ago than this may not be a member any more.
const POLLED_NS: i64 = 1_000_000_000;
/// Memory of copies that are not acknowledged: of all partitions together, each having its equal share.
const MOST_BYTES_ON_THEIR_WAY: usize = 32 << 20;
/// However many partitions there are.
const LEAST_BYTES_ON_THEIR_WAY: usize = 64 << 10;

impl Engine {
    /// Sends what is due; false: it was nothing.
    pub(super) fn send_due(&mut self) -> bool {
        if let Some(slot) = self.transactions.as_mut().and_then(Transactions::take_alone) {
            self.blocked.retain(|blocked| *blocked != slot);
            self.send_alone(slot);
            return true;
        }
        for slot in std::mem::take(&mut self.blocked) {
            self.register(slot);
        }
        let mut sent = false;
        while self.may_send() && boot_ns() - self.polled_at_ns < POLLED_NS {
            let Some(now) = self.clock.bound() else { break };
            let Some((turn_ms, slot)) = self.turns.pop(now.0) else { break };
            let Some(partition) = self.slots.get_mut(slot) else { continue };
            if partition.turn_ms != Some(turn_ms) {
                continue; // since then it was registered with an earlier turn
            }
            partition.turn_ms = None;
            let (queued, goes) = self.work(slot, now);
            sent |= queued > 0;
            match goes {
                Goes::On => self.register(slot),
                Goes::Blocked | Goes::Alone | Goes::Unknown | Goes::Ended => self.blocked.push(slot),
                Goes::Refused => self.settling.push(slot),
            }
            if self.transactions.is_some() && self.slots.get(slot).is_some_and(|partition| partition.lone.is_some()) {
                break; // whatever else went with it would share what becomes of it
            }
        }
        if let Some(transactions) = self.transactions.as_mut().filter(|transactions| !sent && transactions.is_open()) {
            transactions.others_first = false;
        }
        sent
    }

    /// The first record of a partition goes as the only one of its transaction.
    fn send_alone(&mut self, slot: usize) {
        if let Some(now) = self.clock.bound() {
            if self.work(slot, now).1 == Goes::Refused {
                self.settling.push(slot);
            }
        }
        self.blocked.push(slot);
    }

    pub(super) fn register(&mut self, slot: usize) {
        if let Some(partition) = self.slots.get_mut(slot) {
            self.turns.register(slot, partition, self.topics[partition.topic].served.as_ref());
        }
    }

    /// In nanoseconds; very long if nothing waits.
    pub(super) fn next_turn_in_ns(&mut self) -> i64 {
        const SOON_NS: i64 = 1_000_000;
        // without a fresh bound: when it is time to ask for one
        let near_ms = self.clock.estimate_ms().map(|now_ms| now_ms + NEAR_MS);
        let until_ms = self.clock.bound().map(|now| now.0).or(near_ms);
        match (self.turns.next_ms(), until_ms) {
            (None, _) if self.blocked.is_empty() => i64::MAX,
            (Some(turn_ms), Some(until_ms)) if turn_ms > until_ms => (turn_ms - until_ms).saturating_mul(1_000_000),
            _ => SOON_NS, // the time, the fence or room is awaited
        }
    }

    /// Sends what of a partition has its turn: how many copies.
    fn work(&mut self, slot: usize, now: LowerBoundMs) -> (u32, Goes) {
        let partitions = self.slots.len().max(1);
        let Some(partition) = self.slots.get_mut(slot) else { return (0, Goes::On) };
        let Topic { names, served, dead_letter_partitions, changes, tally, undecided } =
            &mut self.topics[partition.topic];
        let Some(served) = &*served else { return (0, Goes::On) };
        let compression = &served.compression;
        if self.transactions.is_none() {
            let wake = self.wake.as_fd();
            let mut needed = [false, true].into_iter().filter(|alone| !alone || !partition.alone.is_empty());
            if !needed.all(|alone| self.producers.prepare(compression, alone, wake, &mut self.happenings)) {
                return (0, Goes::Blocked);
            }
        }
        let (batches, alone) = match &self.transactions {
            Some(transactions) => (transactions.producer(), transactions.producer()),
            None => (self.producers.get(compression, false), self.producers.get(compression, true)),
        };
        partition.delayed.serve_from(now.0); // where the time was not known when it began
        let may_go_alone = self.transactions.as_ref().map_or(true, Transactions::may_go_alone);
        let most_bytes = LEAST_BYTES_ON_THEIR_WAY.max(MOST_BYTES_ON_THEIR_WAY / partitions);
        let mut sending = Sending {
            slot,
            partition,
            names,
            dead_letter_partitions: *dead_letter_partitions,
            changes: served.has_control_topic.then_some(changes),
            tally: if self.transactions.is_some() { &mut *undecided } else { &mut *tally },
            served,
            now: LowerBoundMs(now.0 - served.skew_ms),
            batches,
            alone,
            may_go_alone,
            most_bytes,
            writer: &mut self.scratch.headers,
            block: &mut self.scratch.block,
            happenings: &mut self.happenings,
        };
        let (queued, goes) = sending.send();
        // what waits on is not part of the transaction
        tally.waited_for_target += std::mem::take(&mut undecided.waited_for_target);
        if goes == Goes::Unknown {
            self.look_at_topics();
        }
        if let Some(transactions) = &mut self.transactions {
            let is_lone = self.slots.get(slot).is_some_and(|partition| partition.lone.is_some());
            if queued > 0 {
                transactions.touch(slot);
                transactions.others_first = is_lone;
            }
            if goes == Goes::Alone || is_lone {
                transactions.alone = Some(slot);
            }
            if goes == Goes::Ended {
                transactions.end_now();
            }
        }
        (queued, goes)
    }
}
