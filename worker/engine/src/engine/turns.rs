//! A heap of partitions, ordered by the turn of their first record.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::partition::Partition;
use super::topic::Served;

/// See the module.
#[derive(Default)]
pub struct Turns(BinaryHeap<Reverse<(i64, usize)>>);

impl Turns {
    /// Registers a partition with its next turn. This has to be called after anything that may have given it an earlier turn. A partition
    /// whose topic is not served has no turn, because it would come again and again without any effect.
    pub fn register(&mut self, slot: usize, partition: &mut Partition, served: Option<&Served>) {
        let turn_ms = served.and_then(|served| partition.next_turn_ms(served.paused, served.skew_ms));
        let Some(turn_ms) = turn_ms else { return };
        if partition.turn_ms.map_or(true, |registered| turn_ms < registered) {
            partition.turn_ms = Some(turn_ms);
            self.0.push(Reverse((turn_ms, slot)));
        }
    }

    /// Drops outdated turns at the top of the heap. `is_current` says whether the partition in a slot is registered with a turn.
    pub fn drop_former(&mut self, is_current: impl Fn(usize, i64) -> bool) {
        while self.0.peek().is_some_and(|Reverse((turn_ms, slot))| !is_current(*slot, *turn_ms)) {
            self.0.pop();
        }
    }

    /// Returns the earliest turn, which may be outdated.
    #[must_use]
    pub fn next_ms(&self) -> Option<i64> {
        self.0.peek().map(|Reverse((turn_ms, _))| *turn_ms)
    }

    /// Removes and returns the earliest turn that has come, with the slot of its partition. The partition has to be registered again.
    pub fn pop(&mut self, now_ms: i64) -> Option<(i64, usize)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.0.pop().map(|Reverse(turn)| turn)
    }
}
