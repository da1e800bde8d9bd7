//! What came out late since a partition had to come from another worker, or back.

/// What was due before a partition could be served, since it had to come from another worker, or back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delayed {
    /// When it was served first after its assignment, in milliseconds of broker time.
    served_from_ms: Option<i64>,
    /// Records that were due before that and have come out since.
    pub released: u64,
    /// A record that was not has come out.
    on_time: bool,
}

impl Delayed {
    /// It is served, or about to be. What is told again later changes nothing.
    pub fn serve_from(&mut self, now_ms: i64) {
        self.served_from_ms.get_or_insert(now_ms);
    }

    /// A record comes out.
    pub fn release(&mut self, due_at_ms: i64) {
        match self.served_from_ms {
            Some(from_ms) if due_at_ms < from_ms => self.released += 1,
            _ => self.on_time = true,
        }
    }

    /// Whether no more of them come. `next_due_ms`: of the records that are held; `at_end`: there are no others.
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
    fn what_was_due_before_a_partition_is_served_is_counted_until_something_comes_out_on_time() {
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
