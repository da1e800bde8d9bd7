//! The records of one partition that wait for their turn.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// Records that wait for their turn. Those with equal turns leave in the order of their offsets.
///
/// Most records arrive in the order of their turns, and wait in a queue. A heap has the few whose turns come earlier than that of a
/// record before them.
#[derive(Debug)]
pub struct Pending<T> {
    in_order: VecDeque<Entry<T>>,
    early: BinaryHeap<Entry<T>>,
}

/// A waiting record.
#[derive(Debug)]
pub struct Entry<T> {
    /// When its turn comes, in milliseconds of broker time.
    pub turn_at_ms: i64,
    /// The offset of the record.
    pub offset: i64,
    /// The record itself.
    pub record: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (i64, i64) {
        (self.turn_at_ms, self.offset)
    }
}

/// The order is reversed, because the heap pops the greatest entry and the earliest turn has to come first.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Pending { in_order: VecDeque::new(), early: BinaryHeap::new() }
    }
}

impl<T> Pending<T> {
    /// Adds a record. `turn_at_ms` is when its turn comes, in milliseconds of broker time.
    pub fn add(&mut self, turn_at_ms: i64, offset: i64, record: T) {
        let entry = Entry { turn_at_ms, offset, record };
        if self.in_order.back().map_or(true, |last| last.key() < entry.key()) {
            self.in_order.push_back(entry);
        } else {
            self.early.push(entry);
        }
    }

    /// Returns when the earliest turn comes, or `None` if no record waits.
    #[must_use]
    pub fn next_turn_at_ms(&self) -> Option<i64> {
        let first = if self.early_is_first() { self.early.peek() } else { self.in_order.front() };
        first.map(|entry| entry.turn_at_ms)
    }

    /// Removes and returns the record with the earliest turn, if that turn has come.
    pub fn pop(&mut self, now_ms: i64) -> Option<Entry<T>> {
        if self.next_turn_at_ms()? > now_ms {
            return None;
        }
        if self.early_is_first() {
            self.early.pop()
        } else {
            self.in_order.pop_front()
        }
    }

    /// Applies `change` to each record.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(&mut T)) {
        for entry in &mut self.in_order {
            change(&mut entry.record);
        }
        let mut early = std::mem::take(&mut self.early).into_vec();
        for entry in &mut early {
            change(&mut entry.record);
        }
        self.early = early.into();
    }

    /// Frees memory that is not needed.
    pub fn shrink_to_fit(&mut self) {
        self.in_order.shrink_to_fit();
        self.early.shrink_to_fit();
    }

    /// Returns how many bytes of memory are allocated, without what the records refer to.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.in_order.capacity() + self.early.capacity()) * std::mem::size_of::<Entry<T>>()
    }

    /// Returns the number of waiting records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.in_order.len() + self.early.len()
    }

    /// Returns whether no record waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.early.is_empty()
    }

    /// Returns the number of records whose turn has come by `now_ms`.
    #[must_use]
    pub fn due_count(&self, now_ms: i64) -> usize {
        let early = self.early.iter().filter(|entry| entry.turn_at_ms <= now_ms).count();
        early + self.in_order.partition_point(|entry| entry.turn_at_ms <= now_ms)
    }

    fn early_is_first(&self) -> bool {
        match (self.early.peek(), self.in_order.front()) {
            (Some(early), Some(line)) => early.key() < line.key(),
            (early, _) => early.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pending;

    #[test]
    fn turns_come_in_order_and_equal_ones_by_offset() {
        let mut pending = Pending::default();
        for (offset, turn_at_ms) in (0..).zip([5, 9, 3, 9, 5, 3]) {
            pending.add(turn_at_ms, offset, offset);
        }
        assert_eq!((pending.len(), pending.due_count(5), pending.next_turn_at_ms()), (6, 4, Some(3)));
        assert!(pending.pop(2).is_none());
        let left: Vec<i64> = std::iter::from_fn(|| pending.pop(9)).map(|entry| entry.record).collect();
        assert_eq!(left, [2, 5, 0, 4, 1, 3]);
        assert!(pending.is_empty());
    }
}
