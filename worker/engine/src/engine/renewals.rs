//! Repeats commits whose offsets have not changed.
//!
//! Kafka removes an offset that was not committed for `offsets.retention.minutes`, which is seven days by default. With the newer
//! protocol it only checks whether the group has members at that moment, so a quiet partition would lose its offset when a worker is
//! replaced.

use super::boot_ns;
use super::partition::Partition;
use super::slots::Slots;
use super::state::State;

/// How long after its beginning a partition is first committed again. During a rebalance, other commits come first.
const SOON_NS: i64 = 5_000_000_000;
/// The most partitions that one commit repeats.
const MAX_AT_ONCE: usize = 20;

impl Partition {
    /// Schedules a commit of a partition that has begun, because another worker may have committed it long ago.
    pub(super) fn renew_soon(&mut self) {
        self.renew_at_ns = boot_ns() + SOON_NS;
    }

    /// Whether the partition has nothing new to commit, and its last commit has to be repeated. A refused commit is retried anyway.
    /// Kafka would refuse the commit of a partition that cannot be read, and with it those of all others.
    pub(super) fn is_stale(&self, now_ns: i64) -> bool {
        now_ns >= self.renew_at_ns
            && !self.dirty
            && self.commit_at_ns == 0
            && self.begun
            && self.state == State::Serving
    }
}

impl Slots {
    /// Returns the first `MAX_AT_ONCE` partitions whose last commit has to be repeated.
    pub(super) fn stale(&self, now_ns: i64) -> impl Iterator<Item = (usize, &Partition)> {
        self.iter().filter(move |(_, partition)| partition.is_stale(now_ns)).take(MAX_AT_ONCE)
    }
}
