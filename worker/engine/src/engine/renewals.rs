//! Commits of what is committed already.
//!
//! Kafka forgets an offset that was not committed for `offsets.retention.minutes`, seven days unless set. The newer protocol asks only
//! whether the group has members just then: a quiet partition would lose its offset in the moment in which a worker is replaced.

use super::boot_ns;
use super::partition::Partition;
use super::slots::Slots;
use super::state::State;

/// From the beginning of a partition: in a rebalance there are other things to commit.
const SOON_NS: i64 = 5_000_000_000;
/// With one commit.
const MOST_AT_ONCE: usize = 20;

impl Partition {
    /// It has begun, and somebody else may have committed it long ago.
    pub(super) fn renew_soon(&mut self) {
        self.renew_at_ns = boot_ns() + SOON_NS;
    }

    /// There is nothing to commit of it but the same once more. One that Kafka has refused is tried again anyway, and of one that
    /// can't be read Kafka would refuse the commit, with those of all others.
    pub(super) fn is_stale(&self, now_ns: i64) -> bool {
        now_ns >= self.renew_at_ns
            && !self.dirty
            && self.commit_at_ns == 0
            && self.begun
            && self.state == State::Serving
    }
}

impl Slots {
    /// Some of those that are to be committed again.
    pub(super) fn stale(&self, now_ns: i64) -> impl Iterator<Item = (usize, &Partition)> {
        self.iter().filter(move |(_, partition)| partition.is_stale(now_ns)).take(MOST_AT_ONCE)
    }
}
