//! Sends records that are due, in the order of their turns.

use std::os::fd::AsFd;

use super::copying::{Goes, Sending};
use super::producer::ProducerPool;
use super::producers::Use;
use super::topic::Topic;
use super::transactions::Transactions;
use super::{boot_ns, Engine, NEAR_MS};
use crate::release::LowerBoundMs;

/// The engine sends nothing if it last polled longer ago than this, because it may no longer be a member of the group.
const MAX_POLL_AGE_NS: i64 = 1_000_000_000;
/// Bound of the bytes of copies that are not acknowledged, for all partitions together. Each has an equal share.
const MAX_BYTES_IN_FLIGHT: usize = 32 << 20;
/// The least share of a partition, however many partitions there are.
const MIN_BYTES_IN_FLIGHT: usize = 64 << 10;

impl Engine {
    /// Sends records that are due. Returns whether there was anything to send.
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
        while self.may_send() && boot_ns() - self.polled_at_ns < MAX_POLL_AGE_NS {
            let Some(now) = self.clock.bound() else { break };
            let Some((turn_ms, slot)) = self.turns.pop(now.0) else { break };
            let Some(partition) = self.slots.get_mut(slot) else { continue };
            if partition.turn_ms != Some(turn_ms) {
                continue; // the partition was since registered with an earlier turn
            }
            partition.turn_ms = None;
            let (queued, goes) = self.send_partition(slot, now);
            sent |= queued > 0;
            match goes {
                Goes::On => self.register(slot),
                Goes::Blocked | Goes::Alone | Goes::Unknown | Goes::Ended => self.blocked.push(slot),
                Goes::Refused => self.settling.push(slot),
            }
            if self.transactions.is_some() && self.slots.get(slot).is_some_and(|partition| partition.lone.is_some()) {
                break; // any other copy in this transaction would fail with this one
            }
        }
        if let Some(transactions) = self.transactions.as_mut().filter(|transactions| !sent && transactions.is_open()) {
            transactions.others_first = false;
        }
        sent
    }

    /// Sends the first record of a partition as the only one of a transaction.
    fn send_alone(&mut self, slot: usize) {
        if let Some(now) = self.clock.bound() {
            if self.send_partition(slot, now).1 == Goes::Refused {
                self.settling.push(slot);
            }
        }
        self.blocked.push(slot);
    }

    /// Creates producers again after Kafka has refused some, whether or not there is anything to send.
    pub(super) fn try_refused_producers(&mut self) {
        self.producers.try_refused(self.wake.as_fd(), &mut self.events);
    }

    pub(super) fn register(&mut self, slot: usize) {
        if let Some(partition) = self.slots.get_mut(slot) {
            self.turns.register(slot, partition, self.topics[partition.topic].served.as_ref());
        }
    }

    /// Returns in how many nanoseconds the next turn of a partition comes; `i64::MAX` if there is none.
    pub(super) fn next_turn_in_ns(&mut self) -> i64 {
        const SOON_NS: i64 = 1_000_000;
        // without a fresh bound, the engine has to wake in time to measure the broker's time
        let near_ms = self.clock.estimate_ms().map(|now_ms| now_ms + NEAR_MS);
        let until_ms = self.clock.bound().map(|now| now.0).or(near_ms);
        match (self.turns.next_ms(), until_ms) {
            (None, _) if self.blocked.is_empty() => i64::MAX,
            (Some(turn_ms), Some(until_ms)) if turn_ms > until_ms => (turn_ms - until_ms).saturating_mul(1_000_000),
            _ => SOON_NS, // the engine waits for the broker's time, the fence or room
        }
    }

    /// Sends the records of a partition whose turn has come. Returns how many copies were queued, and why it stopped.
    fn send_partition(&mut self, slot: usize, now: LowerBoundMs) -> (u32, Goes) {
        let partitions = self.slots.len().max(1);
        let Some(partition) = self.slots.get_mut(slot) else { return (0, Goes::On) };
        let Topic { names, served, dead_letter_partitions, changes, tally, undecided } =
            &mut self.topics[partition.topic];
        let Some(served) = &*served else { return (0, Goes::On) };
        if self.transactions.is_none() {
            let wake = self.wake.as_fd();
            let mut needed = [false, true].into_iter().filter(|alone| !alone || !partition.alone.is_empty());
            if !needed.all(|alone| self.producers.prepare(Use::of(served, alone), wake, &mut self.events)) {
                return (0, Goes::Blocked);
            }
        }
        let (batches, alone) = match &self.transactions {
            Some(transactions) => {
                let only = transactions.producer().map(ProducerPool::of_one);
                (only, only)
            }
            None => (self.producers.get(Use::of(served, false)), self.producers.get(Use::of(served, true))),
        };
        partition.delayed.serve_from(now.0); // has an effect only if the time was not known when the partition began
        let may_go_alone = self.transactions.as_ref().map_or(true, Transactions::may_go_alone);
        let most_bytes = MIN_BYTES_IN_FLIGHT.max(MAX_BYTES_IN_FLIGHT / partitions);
        let mut sending = Sending {
            slot,
            partition,
            names,
            dead_letter_partitions: *dead_letter_partitions,
            changes: served.has_control_topic.then_some(changes),
            tally: if self.transactions.is_some() { &mut *undecided } else { &mut *tally },
            served,
            now: LowerBoundMs(now.0 - served.skew_ms),
            batches: batches.as_ref(),
            alone: alone.as_ref(),
            may_go_alone,
            most_bytes,
            writer: &mut self.scratch.headers,
            block: &mut self.scratch.block,
            events: &mut self.events,
        };
        let (queued, goes) = sending.send();
        // a record that goes on waiting is not part of the transaction
        tally.waited_for_target += std::mem::take(&mut undecided.waited_for_target);
        if goes == Goes::Unknown {
            self.refresh_metadata();
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
