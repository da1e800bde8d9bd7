//! The window of one partition: what is taken in and not yet finished, and the offset that may be committed.
//!
//! Committed is the lowest unfinished offset. Finished offsets above it travel in the commit's metadata, so that a restart
//! repeats none of them.

use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};

use crate::metadata::MetadataEncoder;

/// Offsets that a bitmap may have to cover before intake waits. With nothing to compress, base64 of 23,700 / 8 bytes fits into
/// a commit's metadata beside a topic id; the rest is room for what is taken in before anybody looks.
pub const MAX_SPAN: i64 = 20_000;

/// What to commit for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPoint {
    /// The lowest unfinished one.
    pub offset: i64,
    /// The finished ones above it.
    pub metadata: String,
}

/// The consumer went back without a new window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WentBack {
    /// What it gave.
    pub offset: i64,
    /// What was to come.
    pub position: i64,
}

impl Display for WentBack {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "offset {} was taken before, and the position is {} now", self.offset, self.position)
    }
}

impl std::error::Error for WentBack {}

/// Offsets of one partition between the committed one and the position.
#[derive(Clone, Debug)]
pub struct Window {
    position: i64,
    /// Ascending, those without a bit left out: Kafka may skip any number of offsets.
    blocks: VecDeque<Block>,
}

const BLOCK: i64 = 64;

/// As many offsets as a word has bits, least significant first.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// A multiple of `BLOCK`.
    start: i64,
    /// Taken in and not finished.
    held: u64,
    done: u64,
}

impl Window {
    /// `start`: the committed offset; `finished`: those above it that are already done, ascending (`metadata::decode`).
    #[must_use]
    pub fn new(start: i64, finished: impl IntoIterator<Item = i64>) -> Self {
        let mut window = Window { position: start, blocks: VecDeque::new() };
        for offset in finished {
            window.block(offset).done |= bit(offset);
        }
        window.shed();
        window
    }

    /// The offset that comes next.
    #[must_use]
    pub fn position(&self) -> i64 {
        self.position
    }

    /// How many offsets lie between the one to commit and the position. At `MAX_SPAN` intake has to wait: what finishes
    /// above the lowest unfinished offset would no longer fit the metadata. Finished offsets of a former life may lie above
    /// the position; they don't count, or intake would never get there.
    #[must_use]
    pub fn span(&self) -> i64 {
        self.position - self.lowest_unfinished()
    }

    /// The one to commit.
    #[must_use]
    pub fn lowest_unfinished(&self) -> i64 {
        match self.blocks.front() {
            Some(first) if first.held != 0 => first.start + i64::from(first.held.trailing_zeros()),
            _ => self.position, // `shed` has left no block below it
        }
    }

    /// Takes in an offset; false if it is finished already. Offsets that Kafka skips (transaction marks) count as finished.
    ///
    /// # Errors
    /// The offset lies before the position.
    pub fn take(&mut self, offset: i64) -> Result<bool, WentBack> {
        if offset < self.position {
            return Err(WentBack { offset, position: self.position });
        }
        self.position = offset.saturating_add(1);
        let block = self.block(offset);
        let fresh = block.done & bit(offset) == 0;
        if fresh {
            block.held |= bit(offset);
        }
        self.shed();
        Ok(fresh)
    }

    /// Kafka has no more records below `offset`, only transaction marks and aborted ones. False: that is no news.
    pub fn skip_to(&mut self, offset: i64) -> bool {
        if offset <= self.position {
            return false;
        }
        self.position = offset;
        self.shed();
        true
    }

    /// One that begins at the lowest unfinished offset and knows what is finished above it.
    #[must_use]
    pub fn renewed(&self) -> Window {
        let lowest = self.lowest_unfinished();
        let finished = |block: &Block| {
            let (start, done) = (block.start, block.done);
            (0..BLOCK).filter(move |bit| done >> bit & 1 == 1).map(move |bit| start + bit)
        };
        Window::new(lowest, self.blocks.iter().flat_map(finished).filter(|offset| *offset > lowest))
    }

    /// The record is released, hopped or dead-lettered, and acknowledged. False: it was not held.
    pub fn finish(&mut self, offset: i64) -> bool {
        if offset < self.lowest_unfinished() {
            return false;
        }
        let block = self.block(offset);
        let held = block.held & bit(offset) != 0;
        block.held &= !bit(offset);
        block.done |= bit(offset);
        self.shed();
        held
    }

    /// Whether a restart would not repeat it.
    #[must_use]
    pub fn is_finished(&self, offset: i64) -> bool {
        let place = self.blocks.binary_search_by_key(&start_of(offset), |block| block.start);
        offset < self.lowest_unfinished() || place.is_ok_and(|at| self.blocks[at].done & bit(offset) != 0)
    }

    /// What to commit. `topic_id`: as Kafka prints it, empty if it isn't known.
    #[must_use]
    pub fn commit_point(&self, encoder: &mut MetadataEncoder, topic_id: &str) -> CommitPoint {
        let offset = self.lowest_unfinished();
        let finished = self.blocks.iter().map(|block| (block.start, block.done));
        CommitPoint { offset, metadata: encoder.encode(offset, finished, topic_id) }
    }

    /// The block of an offset, made if it isn't there.
    fn block(&mut self, offset: i64) -> &mut Block {
        let start = start_of(offset);
        let at = self.place_of(start);
        if self.blocks.get(at).map_or(true, |block| block.start != start) {
            self.blocks.insert(at, Block { start, held: 0, done: 0 });
        }
        &mut self.blocks[at]
    }

    /// Where a block is, or would have to be.
    fn place_of(&self, start: i64) -> usize {
        // nearly always none is left out, and nearly always it is the last or one of the first
        let first = self.blocks.front().map_or(start, |block| block.start);
        if let Ok(guess) = usize::try_from((start - first) / BLOCK) {
            if self.blocks.get(guess).is_some_and(|block| block.start == start) {
                return guess;
            }
        }
        self.blocks.binary_search_by_key(&start, |block| block.start).unwrap_or_else(|at| at)
    }

    /// Drops what a commit no longer has to say: whole blocks below the lowest unfinished offset.
    fn shed(&mut self) {
        while self.blocks.front().is_some_and(|first| first.held == 0 && first.start <= self.position - BLOCK) {
            self.blocks.pop_front();
        }
    }
}

fn start_of(offset: i64) -> i64 {
    offset & !(BLOCK - 1)
}

fn bit(offset: i64) -> u64 {
    1 << (offset & (BLOCK - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata;

    fn committed(window: &Window) -> (i64, Vec<i64>) {
        let point = window.commit_point(&mut MetadataEncoder::default(), "");
        (point.offset, metadata::decode(point.offset, &point.metadata).unwrap().collect())
    }

    #[test]
    fn the_lowest_unfinished_offset_is_committed() {
        let mut window = Window::new(10, []);
        assert!((10..13).all(|offset| window.take(offset) == Ok(true)));
        assert!(window.finish(12) && window.finish(10) && !window.finish(10));
        assert_eq!((committed(&window), window.span()), ((11, vec![12]), 2));
        assert!(window.is_finished(10) && !window.is_finished(11) && window.is_finished(12));
        assert!(window.finish(11));
        assert_eq!((committed(&window), window.span()), ((13, vec![]), 0));
        assert_eq!(window.take(12), Err(WentBack { offset: 12, position: 13 }));
    }

    #[test]
    fn any_number_of_offsets_may_be_skipped() {
        let mut window = Window::new(0, []);
        let far = 1 << 40;
        assert_eq!((window.take(0), window.take(far), window.take(far + 1)), (Ok(true), Ok(true), Ok(true)));
        assert!(window.finish(0));
        assert!(window.finish(far + 1));
        assert_eq!(committed(&window), (far, vec![far + 1]));
        assert_eq!(window.blocks.len(), 1);
    }

    #[test]
    fn what_a_former_life_finished_is_not_taken_again() {
        let mut window = Window::new(0, [24_500, 24_501]);
        assert_eq!(window.span(), 0);
        assert_eq!((window.take(0), window.take(24_500)), (Ok(true), Ok(false)));
        assert!(window.finish(0));
        assert_eq!(committed(&window), (24_501, vec![]));
        assert_eq!(window.take(24_501), Ok(false));
        assert_eq!(committed(&window), (24_502, vec![]));
    }
}
