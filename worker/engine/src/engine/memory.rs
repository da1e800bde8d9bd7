//! Bounded memory: which partitions are paused. Pausing throws away what the client has fetched, so it is a brake only.
//!
//! Records that are due soon may fill all of the memory, those that wait longer only half of it: records due in an hour never
//! starve those due now. Beyond that each partition still gets its equal share.

use super::partition::{Partition, Pause};
use super::{boot_ns, Engine};
use crate::kafka::Offset;
use crate::window::MAX_SPAN;

const LOOK_NS: i64 = 5_000_000;
const NEAR_MS: i64 = 1000;
/// Memory that a partition may keep of records that are gone, besides as much as it needs: giving it back means to copy what stays.
const MOST_SPARE_BYTES: usize = 128 << 10;

/// See the module.
pub struct Memory {
    window_bytes: usize,
    next_look_ns: i64,
    /// What all partitions hold.
    pub held_bytes: usize,
}

impl Memory {
    /// Bounded by so many bytes.
    #[must_use]
    pub fn new(window_bytes: usize) -> Self {
        Memory { window_bytes, next_look_ns: i64::MIN, held_bytes: 0 }
    }

    /// Something is full.
    pub fn look_at_once(&mut self) {
        self.next_look_ns = i64::MIN;
    }
}

impl Engine {
    /// Pauses and resumes what has to be.
    pub(super) fn balance_memory(&mut self) {
        let now_ns = boot_ns();
        if now_ns < self.memory.next_look_ns {
            return;
        }
        self.memory.next_look_ns = now_ns + LOOK_NS;
        let horizon_ms = self.clock.estimate_ms().map_or(i64::MAX, |now_ms| now_ms + NEAR_MS);
        let is_far = |partition: &Partition| {
            !partition.held.has_arrived()
                && partition.held.next_turn_at_ms().is_some_and(|turn_ms| turn_ms > horizon_ms)
        };
        let whole = self.memory.window_bytes;
        let share = whole / 2 / self.slots.len().max(1);
        let (mut held, mut far) = (0, 0);
        for (_, partition) in self.slots.iter_mut() {
            // one that holds nothing keeps less than its share, so that it is read again, however much others hold
            partition.held.compact(MOST_SPARE_BYTES.min(share / 4));
            let bytes = partition.held.bytes();
            held += bytes;
            far += if is_far(partition) { bytes } else { 0 };
        }
        self.memory.held_bytes = held;
        let (mut pause, mut resume): (Vec<Offset>, Vec<Offset>) = (Vec::new(), Vec::new());
        for (_, partition) in self.slots.iter_mut() {
            let (used, limit) = if is_far(partition) { (far, whole / 2) } else { (held, whole) };
            // released only well below, so that it doesn't flutter
            let (used, kept, span) = if partition.paused.is_some() {
                (used / 3 * 4, partition.held.bytes() * 2, MAX_SPAN / 4 * 3)
            } else {
                (used, partition.held.bytes(), MAX_SPAN)
            };
            let held_back = used > limit && kept > share || partition.window.span() >= span;
            let wanted = if held_back {
                Some(Pause::HeldBack)
            } else {
                (!partition.state.takes_in()).then_some(Pause::NotServed)
            };
            if wanted.is_some() != partition.paused.is_some() {
                let place = partition.offset(0);
                if wanted.is_some() { &mut pause } else { &mut resume }.push(place);
            }
            partition.paused = wanted;
        }
        if let Some(consumer) = &self.consumer {
            if !pause.is_empty() {
                consumer.pause(&pause);
            }
            if !resume.is_empty() {
                consumer.resume(&resume);
            }
        }
    }
}
