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

/// What decides whether a partition is read on.
#[derive(Clone, Copy)]
struct Fill {
    /// Of memory, by all partitions that may fill it as far as this one.
    used_bytes: usize,
    limit_bytes: usize,
    /// Of it, by this one.
    kept_bytes: usize,
    share_bytes: usize,
    /// See `Window::span`.
    span: i64,
}

impl Fill {
    /// One that is held back is read again only well below the limits, so that it doesn't flutter.
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
