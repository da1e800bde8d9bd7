//! Limits the copies of a partition that are in flight to what Kafka acknowledges soon.
//!
//! The client queues all copies that it is given. If the broker, the network or the machine is slow, a partition that moves to another
//! worker has to wait for the queued copies, or their records come out twice. Each partition therefore has a congestion window, as TCP
//! does: a full window grows while copies come back soon, and shrinks when they take longer.
//!
//! A batch is no larger than the window. If Kafka refuses a batch as too large, the window is limited for a while to half of the copies
//! that were in flight.

use super::boot_ns;
use super::partition::MAX_UNCOMMITTED;

/// The initial window. It takes a fast broker a tenth of a second to get from there to `MOST`.
const INITIAL: u32 = 32;
const MOST: u32 = MAX_UNCOMMITTED;
const SOON_NS: i64 = 100_000_000;
/// A fraction of the time that a revoked partition may take to settle.
const LATE_NS: i64 = 500_000_000;
/// How long the window stays capped after a batch was too large.
const CAPPED_NS: i64 = 60_000_000_000;
/// If a batch of up to so many copies was too large, each of them is sent alone.
const FEW: u32 = 16;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct CongestionWindow {
    copies: u32,
    /// The offset of the copy that is timed, and when it was sent.
    timed: Option<(i64, i64)>,
    /// Whether the window was full at any time since then.
    full: bool,
    /// The limit of the window, and until when it holds.
    cap: Option<(u32, i64)>,
}

impl Default for CongestionWindow {
    fn default() -> Self {
        CongestionWindow { copies: INITIAL, timed: None, full: false, cap: None }
    }
}

impl CongestionWindow {
    /// Returns whether one more copy may be sent, and remembers when the window is full.
    pub fn has_room(&mut self, in_flight: u32) -> bool {
        let has_room = in_flight < self.copies;
        self.full |= !has_room;
        has_room
    }

    /// Times a copy that was sent, unless another one is being timed.
    pub fn sent(&mut self, offset: i64) {
        if self.timed.is_none() {
            self.timed = Some((offset, boot_ns()));
            self.full = false;
        }
    }

    /// Adapts the window if the copy that came back, acknowledged or refused, is the one being timed.
    pub fn came_back(&mut self, offset: i64) {
        let Some((timed, sent_ns)) = self.timed else { return };
        if timed == offset {
            self.timed = None;
            self.adapt(boot_ns() - sent_ns);
        }
    }

    /// Halves and caps the window, because a batch was too large while `in_flight` copies were in flight.
    pub fn halve(&mut self, in_flight: u32) {
        self.copies = (in_flight.min(self.copies) / 2).max(1);
        self.cap = Some((self.copies, boot_ns() + CAPPED_NS));
    }

    /// Removes the cap, because a single record was too large and not the batch.
    pub fn uncap(&mut self) {
        self.cap = None;
    }

    /// Whether batches are so small that sending each record alone is the best way to find the one that is too large.
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.cap.is_some_and(|(most, _)| most <= FEW / 2)
    }

    /// Stops timing, because the outcomes of the copies in flight will not be reported.
    pub fn forget(&mut self) {
        self.timed = None;
    }

    fn adapt(&mut self, took_ns: i64) {
        let copies = i64::from(self.copies);
        let fitting = if took_ns > LATE_NS {
            copies * LATE_NS / took_ns
        } else if !self.full {
            copies
        } else if took_ns > SOON_NS {
            copies + copies / 8 + 1
        } else {
            copies * 2
        };
        self.cap = self.cap.filter(|(_, until_ns)| boot_ns() < *until_ns);
        let most = self.cap.map_or(MOST, |(most, _)| most);
        self.copies = u32::try_from(fitting).unwrap_or(MOST).clamp(1, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window that was full while copies took these times.
    fn after(times_ns: &[i64]) -> CongestionWindow {
        let mut window = CongestionWindow::default();
        for took_ns in times_ns {
            window.full = true;
            window.adapt(*took_ns);
        }
        window
    }

    #[test]
    fn a_full_window_grows_up_to_what_may_be_repeated_and_fast_while_copies_come_back_soon() {
        assert_eq!(after(&[1, 1]).copies, 4 * INITIAL);
        assert_eq!(after(&[1; 9]).copies, MOST);
        assert_eq!(after(&[1; 99]).copies, MOST);
        assert_eq!(after(&[LATE_NS]).copies, INITIAL + INITIAL / 8 + 1);
    }

    #[test]
    fn it_shrinks_to_what_comes_back_in_time_and_one_may_always_go() {
        assert_eq!(after(&[4 * LATE_NS]).copies, INITIAL / 4);
        let mut window = after(&[2 * LATE_NS; 20]);
        assert!(window.has_room(0) && !window.has_room(1));
        window.adapt(1);
        assert_eq!(window.copies, 2, "and it grows again");
    }

    #[test]
    fn a_window_that_was_never_full_does_not_grow() {
        let mut window = CongestionWindow::default();
        for offset in 0..20 {
            window.sent(offset);
            assert!(window.has_room(3));
            window.came_back(offset);
        }
        assert_eq!(window.copies, INITIAL);
    }

    #[test]
    fn a_window_whose_batches_are_too_large_stays_small_until_a_single_record_was_the_reason() {
        let mut window = after(&[1; 9]);
        window.halve(1000);
        assert_eq!((window.copies, window.is_small()), (500, false));
        window.full = true;
        window.adapt(1);
        assert_eq!(window.copies, 500);
        window.halve(FEW);
        assert_eq!((window.copies, window.is_small()), (FEW / 2, true));
        window.uncap();
        window.adapt(1);
        assert_eq!((window.copies, window.is_small()), (FEW, false));
        window.halve(1);
        assert_eq!(window.copies, 1);
    }

    #[test]
    fn one_copy_is_timed_at_a_time() {
        let mut window = CongestionWindow::default();
        window.sent(7);
        window.sent(8);
        assert!(!window.has_room(MOST));
        window.came_back(8);
        assert_eq!(window.copies, INITIAL);
        window.came_back(7);
        assert_eq!(window.copies, 2 * INITIAL);
        window.sent(9);
        window.forget();
        window.came_back(9);
        assert_eq!(window.copies, 2 * INITIAL);
    }
}
