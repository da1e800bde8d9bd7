//! Places partitions: tells the consumer from which offset to read them again.

use super::engine_event::EngineEvent;
use super::partition::{Partition, Pause};
use super::state::{State, Step, Then};
use super::{boot_ns, Engine};

/// The pause before the client reads again a batch that it could not decode.
const RETRY_READING_NS: i64 = 1_000_000_000;
const MAX_PATIENCE_NS: i64 = 60_000_000_000;

impl Engine {
    /// Continues with the partitions that have no more copies in flight.
    pub(super) fn settle(&mut self) {
        if self.settling.is_empty() {
            return;
        }
        let mut again = Vec::new();
        for slot in std::mem::take(&mut self.settling) {
            let Some(partition) = self.slots.get_mut(slot) else { continue };
            let State::Settling(then) = partition.state else { continue };
            if partition.in_flight() > 0 {
                self.settling.push(slot);
            } else if then == Then::ReadAgain {
                again.push(slot);
            } else {
                partition.step(Step::Settled);
            }
        }
        self.settling.sort_unstable();
        self.settling.dedup();
        for slot in again {
            self.place(slot);
        }
    }

    /// Places a partition, that is, has the client read from its lowest unfinished offset.
    pub(super) fn place(&mut self, slot: usize) {
        let Some(partition) = self.slots.get_mut(slot) else { return };
        partition.window = partition.window.renewed();
        partition.changed.clear();
        let position = partition.window.position();
        partition.step(Step::Place);
        partition.placed_at_ns = boot_ns();
        partition.placed_at = Some(position);
        let target = partition.offset(position);
        if let Some(consumer) = &self.consumer {
            // if this fails, the client delivers nothing, and `place_stalled` places the partition in another way
            let _ = consumer.seek(&[target]);
        }
    }

    /// Places the partitions again from which nothing has come since their placement. A seek may have failed, so they are assigned
    /// again instead. Also retries the partitions whose next record could not be decoded.
    pub(super) fn place_stalled(&mut self) {
        let now_ns = boot_ns();
        if self.revoking.is_some() || self.subscribing.is_some() || self.leaving.is_some() {
            // A cooperative client delivers nothing during this time. It takes any call to unassign a partition for the answer to
            // its own revocation (2.16, `rd_kafka_cgrp_incremental_unassign`), and would not wait for the copies in flight.
            self.slots.iter_mut().for_each(|(_, partition)| partition.placed_at_ns = now_ns);
            return;
        }
        let mut unreadable = Vec::new();
        for (_, partition) in self.slots.iter_mut() {
            if partition.state == State::Unreadable && now_ns - partition.placed_at_ns > RETRY_READING_NS {
                partition.step(Step::Place);
                partition.placed_at_ns = now_ns;
                unreadable.push(partition.offset(partition.window.position()));
            }
        }
        if let Some(consumer) = self.consumer.as_ref().filter(|_| !unreadable.is_empty()) {
            let _ = consumer.seek(&unreadable); // as in `place`
        }
        let stalled = |p: &Partition| {
            matches!(p.state, State::Placed { .. }) && p.paused.is_none() && now_ns - p.placed_at_ns > p.patience_ns
        };
        let slots: Vec<usize> = self.slots.iter().filter(|(_, p)| stalled(p)).map(|(slot, _)| slot).collect();
        if slots.is_empty() {
            return;
        }
        let Some(consumer) = &self.consumer else { return };
        let mut again = Vec::new();
        let eager = consumer.is_eager();
        for (slot, partition) in self.slots.iter_mut() {
            let is_stalled = slots.contains(&slot);
            if is_stalled {
                partition.patience_ns = (2 * partition.patience_ns).min(MAX_PATIENCE_NS);
                partition.placed_at_ns = now_ns;
            }
            if is_stalled || eager {
                let position = partition.window.position(); // 0 where it is not known, as in `assign`
                partition.placed_at = Some(position);
                partition.paused = Some(Pause::NotServed);
                again.push(partition.offset(position));
            }
        }
        let placed = if eager {
            consumer.assign(Some(&again))
        } else {
            consumer.unassign(&again).and_then(|()| consumer.assign_more(&again))
        };
        consumer.pause(&again);
        if let Err(error) = placed {
            // the client may now lack partitions that it should read, and could not give them up either
            self.events.push(EngineEvent::AssignmentFailed(error));
        }
    }
}
