//! Partitions by the turn of their first record: a heap of partitions, not of records.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::partition::Partition;
use super::topic::Served;

/// See the module.
#[derive(Default)]
pub struct Turns(BinaryHeap<Reverse<(i64, usize)>>);

impl Turns {
    /// Call after anything that may have given the partition an earlier turn. One whose topic is not served has none: each turn would
    /// come at once, and nothing would come of it.
    pub fn register(&mut self, slot: usize, partition: &mut Partition, served: Option<&Served>) {
        let turn_ms = served.and_then(|served| partition.next_turn_ms(served.paused, served.skew_ms));
        let Some(turn_ms) = turn_ms else { return };
        if partition.turn_ms.map_or(true, |registered| turn_ms < registered) {
            partition.turn_ms = Some(turn_ms);
            self.0.push(Reverse((turn_ms, slot)));
        }
    }

    /// Drops first turns that are nobody's any more. `is_current`: whether the partition of this number is registered with this turn.
    pub fn drop_former(&mut self, is_current: impl Fn(usize, i64) -> bool) {
        while self.0.peek().is_some_and(|Reverse((turn_ms, slot))| !is_current(*slot, *turn_ms)) {
            self.0.pop();
        }
    }

    /// When there is something to do; it may have been done.
    #[must_use]
    pub fn next_ms(&self) -> Option<i64> {
        self.0.peek().map(|Reverse((turn_ms, _))| *turn_ms)
    }

    /// The next turn that has come: when it was, and the partition's number. It has to be registered again.
    pub fn pop(&mut self, now_ms: i64) -> Option<(i64, usize)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.0.pop().map(|Reverse(turn)| turn)
    }
}
