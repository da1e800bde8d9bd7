//! Counts the records that come out late because their partition moved to this worker, or came back.

/// Counts the records of a partition that were due before the partition was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delayed {
    /// When the partition was first served after its assignment, in milliseconds of broker time.
    served_from_ms: Option<i64>,
    /// How many records that were due before that have been released.
    pub released: u64,
    /// Whether a record that was due later has been released.
    on_time: bool,
}

impl Delayed {
    /// Sets when the partition is first served. Later calls change nothing.
    pub fn serve_from(&mut self, now_ms: i64) {
        self.served_from_ms.get_or_insert(now_ms);
    }

    /// Counts a record that is released.
    pub fn release(&mut self, due_at_ms: i64) {
        match self.served_from_ms {
            Some(from_ms) if due_at_ms < from_ms => self.released += 1,
            _ => self.on_time = true,
        }
    }

    /// Whether no more such records follow. `next_due_ms` is the next due time of the held records, and `at_end` says that there are no
    /// other records.
    #[must_use]
    pub fn is_over(&self, next_due_ms: Option<i64>, at_end: bool) -> bool {
        let Some(from_ms) = self.served_from_ms else { return false };
        self.on_time || next_due_ms.map_or(at_end, |due_at_ms| due_at_ms >= from_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_due_before_a_partition_is_served_are_counted_until_a_record_comes_out_on_time() {
        let mut delayed = Delayed::default();
        assert!(!delayed.is_over(None, true), "nobody knows yet when it is served");
        delayed.serve_from(1000);
        delayed.serve_from(2000);
        assert!(!delayed.is_over(Some(999), true));
        for due_at_ms in [998, 999] {
            delayed.release(due_at_ms);
        }
        assert!(!delayed.is_over(None, false), "there may be more");
        assert!(delayed.is_over(None, true) && delayed.is_over(Some(1000), false));
        delayed.release(1000);
        assert!(delayed.is_over(Some(0), false));
        assert_eq!(delayed.released, 2);
    }
}
