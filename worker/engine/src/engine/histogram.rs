//! A histogram of durations, with fixed buckets.

/// Upper bounds of the buckets, inclusive.
pub const DURATION_BOUNDS_MS: [i64; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 30_000, 300_000];

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// The number of durations in each bucket. The last bucket is for those above all bounds.
    pub counts: [u64; DURATION_BOUNDS_MS.len() + 1],
    /// The sum of all durations.
    pub sum_ms: i64,
}

impl Histogram {
    /// Adds the counts of another histogram.
    pub fn add(&mut self, more: &Histogram) {
        self.counts.iter_mut().zip(more.counts).for_each(|(count, more)| *count += more);
        self.sum_ms = self.sum_ms.saturating_add(more.sum_ms);
    }

    /// Counts one duration.
    pub fn observe(&mut self, duration_ms: i64) {
        self.counts[DURATION_BOUNDS_MS.partition_point(|bound| *bound < duration_ms)] += 1;
        self.sum_ms = self.sum_ms.saturating_add(duration_ms); // a client that forges hops can make a record as late as it likes
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn durations_without_bounds_are_no_overflow() {
        let mut histogram = Histogram::default();
        (0..2).for_each(|_| histogram.observe(i64::MAX));
        assert_eq!((histogram.counts.last(), histogram.sum_ms), (Some(&2), i64::MAX));
    }

    #[test]
    fn a_duration_belongs_to_the_first_bucket_whose_bound_it_does_not_exceed() {
        let mut histogram = Histogram::default();
        for duration_ms in [0, 1, 2, 300_001] {
            histogram.observe(duration_ms);
        }
        assert_eq!(histogram.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(histogram.sum_ms, 300_004);
    }
}
