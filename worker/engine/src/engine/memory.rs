//! Bounds the memory for records, by pausing partitions. Kafka's client discards the fetched records of a partition that is
//! paused, so pausing is an emergency brake, not a means of flow control.
//!
//! Records that are due soon may fill all of the memory, and records that wait longer may fill half of it, so that records due in
//! an hour never starve records due now. A partition that holds no more than an equal share of one half is never paused for memory.

use super::partition::{Partition, Pause};
use super::{boot_ns, Engine};
use crate::kafka::Offset;
use crate::window::MAX_SPAN;

const CHECK_INTERVAL_NS: i64 = 5_000_000;
/// A record that is due within this time is due soon.
const NEAR_MS: i64 = 1000;
/// How much memory of removed records a partition may keep, in addition to as much as its records need. To free it, the engine has
/// to copy the remaining records.
const MAX_SPARE_BYTES: usize = 128 << 10;

/// See the module.
pub struct Memory {
    window_bytes: usize,
    next_check_ns: i64,
    /// The memory that the records of all partitions take.
    pub held_bytes: usize,
}

impl Memory {
    /// A bound of `window_bytes` for all partitions together.
    #[must_use]
    pub fn new(window_bytes: usize) -> Self {
        Memory { window_bytes, next_check_ns: i64::MIN, held_bytes: 0 }
    }

    /// Has the bounds checked at the end of the current turn, because a window is full.
    pub fn check_at_once(&mut self) {
        self.next_check_ns = i64::MIN;
    }
}

/// The numbers that decide whether a partition is paused.
#[derive(Clone, Copy)]
struct Fill {
    /// The memory that is taken by all partitions to which the same limit applies.
    used_bytes: usize,
    limit_bytes: usize,
    /// The memory that this partition takes.
    kept_bytes: usize,
    share_bytes: usize,
    /// See `Window::span`.
    span: i64,
}

impl Fill {
    /// A partition that is held back is resumed only well below the limits, so that it is not paused and resumed all the time.
    fn is_too_much(self, paused: Option<Pause>) -> bool {
        let (used_bytes, kept_bytes, most_span) = if paused == Some(Pause::HeldBack) {
            (self.used_bytes / 3 * 4, self.kept_bytes * 2, MAX_SPAN / 4 * 3)
        } else {
            (self.used_bytes, self.kept_bytes, MAX_SPAN)
        };
        used_bytes > self.limit_bytes && kept_bytes > self.share_bytes || self.span >= most_span
    }
}

impl Engine {
    /// Pauses the partitions that hold too much or are not served, and resumes the others.
    pub(super) fn balance_memory(&mut self) {
        let now_ns = boot_ns();
        if now_ns < self.memory.next_check_ns {
            return;
        }
        self.memory.next_check_ns = now_ns + CHECK_INTERVAL_NS;
        let horizon_ms = self.clock.estimate_ms().map_or(i64::MAX, |now_ms| now_ms + NEAR_MS);
        let is_far = |partition: &Partition| {
            !partition.held.has_arrived()
                && partition.held.next_turn_at_ms().is_some_and(|turn_ms| turn_ms > horizon_ms)
        };
        let whole = self.memory.window_bytes;
        let share = whole / 2 / self.slots.len().max(1);
        let (mut held, mut far) = (0, 0);
        for (_, partition) in self.slots.iter_mut() {
            // a partition without records keeps less than its share, so that it is resumed, however much the others hold
            partition.held.compact(MAX_SPARE_BYTES.min(share / 4));
            let bytes = partition.held.bytes();
            held += bytes;
            far += if is_far(partition) { bytes } else { 0 };
        }
        self.memory.held_bytes = held;
        let (mut pause, mut resume): (Vec<Offset>, Vec<Offset>) = (Vec::new(), Vec::new());
        for (_, partition) in self.slots.iter_mut() {
            let (used_bytes, limit_bytes) = if is_far(partition) { (far, whole / 2) } else { (held, whole) };
            let fill = Fill {
                used_bytes,
                limit_bytes,
                kept_bytes: partition.held.bytes(),
                share_bytes: share,
                span: partition.window.span(),
            };
            let wanted = if fill.is_too_much(partition.paused) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_is_read_again_well_below_the_limits_and_what_was_only_placed_anew_at_once() {
        let little = Fill { used_bytes: 0, limit_bytes: 1_000, kept_bytes: 0, share_bytes: 10, span: 0 };
        let much = [
            Fill { span: MAX_SPAN - 1, ..little },
            Fill { used_bytes: 1_000, kept_bytes: 1_000, ..little },
            Fill { used_bytes: 2_000, kept_bytes: 10, ..little },
        ];
        for fill in much {
            assert!(fill.is_too_much(Some(Pause::HeldBack)));
            assert!(!fill.is_too_much(None));
            assert!(!fill.is_too_much(Some(Pause::NotServed)), "nothing but its own records would let it be read on");
        }
        assert!(!little.is_too_much(Some(Pause::HeldBack)));
        for fill in [Fill { span: MAX_SPAN, ..little }, Fill { used_bytes: 1_001, kept_bytes: 11, ..little }] {
            assert!([None, Some(Pause::NotServed), Some(Pause::HeldBack)].into_iter().all(|p| fill.is_too_much(p)));
        }
    }
}
