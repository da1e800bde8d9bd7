//! Which partition of the delays topic stands for which delay. The Python counterpart is `delayed_topics_core.layout`.

use std::fmt::{self, Display, Formatter};

/// A delay and its partitions of the delays topic, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    delay_seconds: u32,
    partitions: Vec<u32>,
}

impl Kind {
    /// Returns how long a record waits in these partitions.
    #[must_use]
    pub fn delay_seconds(&self) -> u32 {
        self.delay_seconds
    }

    /// Returns the delay in milliseconds.
    #[must_use]
    pub fn delay_ms(&self) -> i64 {
        i64::from(self.delay_seconds) * 1000
    }

    /// Returns the lane for records of a front partition, which is always the same.
    #[must_use]
    pub fn lane(&self, front_partition: u32) -> u32 {
        self.partitions[front_partition as usize % self.partitions.len()]
    }
}

/// The layout at one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// All delays of the layout, including those that are no longer in the delay list.
    kinds: Vec<Kind>,
    /// The delay list, as indexes into `kinds`.
    list: Vec<usize>,
    /// The delays above 0 of the delay list and the ladder, ascending and without duplicates, as indexes into `kinds`.
    nonzero_delays: Vec<usize>,
    has_ladder: bool,
    partition_delays: Vec<u32>,
}

/// Why a layout is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The delay list is empty.
    NoDelays,
    /// This delay of the delay list or the ladder, in seconds, has no partition.
    NoPartition(u32),
}

impl Display for LayoutError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::NoDelays => f.write_str("a delay list must have at least one delay"),
            LayoutError::NoPartition(delay) => {
                write!(f, "the delay of {delay} s must have a partition, but it has none")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

impl Layout {
    /// Creates a layout. `delay_seconds` is the delay list. `ladder_seconds` has the delays of the ladder, and is empty if there is
    /// no ladder. `partition_delays` has the delay in seconds of each partition of the delays topic.
    ///
    /// # Errors
    /// The delay list is empty, or a delay has no partition.
    pub fn new(delay_seconds: &[u32], ladder_seconds: &[u32], partition_delays: &[u32]) -> Result<Self, LayoutError> {
        let mut kinds: Vec<Kind> = Vec::new();
        for (partition, &delay_seconds) in (0..).zip(partition_delays) {
            match kinds.iter_mut().find(|kind| kind.delay_seconds == delay_seconds) {
                Some(kind) => kind.partitions.push(partition),
                None => kinds.push(Kind { delay_seconds, partitions: vec![partition] }),
            }
        }
        let indexes = |delays: &[u32]| -> Result<Vec<usize>, LayoutError> {
            let index = |delay: &u32| kinds.iter().position(|k| k.delay_seconds == *delay).ok_or(*delay);
            delays.iter().map(index).collect::<Result<_, _>>().map_err(LayoutError::NoPartition)
        };
        let (list, ladder) = (indexes(delay_seconds)?, indexes(ladder_seconds)?);
        if list.is_empty() {
            return Err(LayoutError::NoDelays);
        }
        let mut nonzero_delays = [&list[..], &ladder[..]].concat();
        nonzero_delays.retain(|kind| kinds[*kind].delay_seconds > 0);
        nonzero_delays.sort_unstable_by_key(|kind| kinds[*kind].delay_seconds);
        nonzero_delays.dedup();
        Ok(Layout {
            has_ladder: !ladder.is_empty(),
            kinds,
            list,
            nonzero_delays,
            partition_delays: partition_delays.to_vec(),
        })
    }

    /// Returns the delay, in seconds, that a partition of the delays topic stands for, or `None` if there is no such partition yet.
    #[must_use]
    pub fn delay_of(&self, partition: u32) -> Option<u32> {
        self.partition_delays.get(partition as usize).copied()
    }

    /// Returns the kind for `attempt`, counted from 0. The last entry of the delay list serves all later attempts.
    #[must_use]
    pub fn for_attempt(&self, attempt: u32) -> &Kind {
        &self.kinds[self.list[(attempt as usize).min(self.list.len() - 1)]]
    }

    /// Returns the kind for entry `level` of the delay list, counted from 1. A level above the last entry means the last entry.
    #[must_use]
    pub fn for_level(&self, level: u64) -> &Kind {
        let entry = usize::try_from(level.saturating_sub(1)).unwrap_or(usize::MAX);
        &self.kinds[self.list[entry.min(self.list.len() - 1)]]
    }

    /// Returns whether a record may have a due time of its own.
    #[must_use]
    pub fn has_ladder(&self) -> bool {
        self.has_ladder
    }

    /// Returns the longest delay above 0, of the delay list and the ladder, that is over within `remaining_ms`, or the shortest one if
    /// all are longer. Returns `None` if there is no delay above 0.
    #[must_use]
    pub fn longest_within(&self, remaining_ms: i64) -> Option<&Kind> {
        let fitting = self.nonzero_delays.partition_point(|kind| self.kinds[*kind].delay_ms() <= remaining_ms);
        self.nonzero_delays.get(fitting.saturating_sub(1)).map(|kind| &self.kinds[*kind])
    }

    /// Returns the shortest delay of the delay list and the ladder that is longer than `remaining_ms`, or `None` if there is none.
    #[must_use]
    pub fn shortest_beyond(&self, remaining_ms: i64) -> Option<&Kind> {
        self.nonzero_delays.iter().map(|kind| &self.kinds[*kind]).find(|kind| kind.delay_ms() > remaining_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_levels_and_attempts() {
        let layout = Layout::new(&[0, 60, 5, 60], &[], &[0, 0, 60, 5, 60, 10]).unwrap();
        let delays: Vec<u32> = (0..6).map(|attempt| layout.for_attempt(attempt).delay_seconds()).collect();
        assert_eq!(delays, [0, 60, 5, 60, 60, 60]);
        assert_eq!(layout.for_level(1).delay_seconds(), 0);
        assert_eq!(layout.for_level(u64::MAX).delay_seconds(), 60);
        assert_eq!([0, 1, 2].map(|front| layout.for_attempt(1).lane(front)), [2, 4, 2]);
        assert_eq!(layout.delay_of(5), Some(10)); // a kind that left the list
        assert_eq!(layout.delay_of(6), None);
    }

    #[test]
    fn a_late_record_gets_the_longest_that_fits() {
        let layout = Layout::new(&[0, 60, 5], &[], &[0, 60, 5, 10]).unwrap();
        let within = |remaining_ms| layout.longest_within(remaining_ms).map(Kind::delay_seconds);
        assert_eq!([4_999, 5_000, 59_999, 60_000, i64::MAX].map(within), [5, 5, 5, 60, 60].map(Some));
        let beyond = |remaining_ms| layout.shortest_beyond(remaining_ms).map(Kind::delay_seconds);
        assert_eq!([4_999, 5_000, 59_999, 60_000].map(beyond), [Some(5), Some(60), Some(60), None]);
        assert_eq!(Layout::new(&[0], &[], &[0]).unwrap().longest_within(10), None);
        let ladder = Layout::new(&[0, 60], &[1, 4, 16], &[0, 60, 1, 4, 16]).unwrap();
        let within = |remaining_ms| ladder.longest_within(remaining_ms).map(Kind::delay_seconds);
        assert_eq!([1_000, 15_999, 59_999, i64::MAX].map(within), [1, 4, 16, 60].map(Some));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        assert_eq!(Layout::new(&[], &[], &[0]), Err(LayoutError::NoDelays));
        assert_eq!(Layout::new(&[0, 5], &[], &[0]), Err(LayoutError::NoPartition(5)));
        assert_eq!(Layout::new(&[0], &[1, 2], &[0, 1]), Err(LayoutError::NoPartition(2)));
    }
}
