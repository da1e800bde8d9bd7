//! The window of one partition: the offsets that were taken in and are not finished, and the offset that may be committed.
//!
//! The committed offset is the lowest unfinished one. The metadata of the commit has the finished offsets above it, so that a restart
//! repeats none of them.

use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};

use crate::metadata::MetadataEncoder;

/// How many offsets a bitmap may have to cover before intake pauses. Even if it cannot be compressed, the base64 of 23,700 / 8 bytes
/// fits into the metadata of a commit beside a topic id. The difference is room for what is taken in before the pause.
pub const MAX_SPAN: i64 = 20_000;

/// What to commit for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPoint {
    /// The lowest unfinished offset.
    pub offset: i64,
    /// The finished offsets above it, encoded.
    pub metadata: String,
}

/// The consumer went back to an earlier offset without a new window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WentBack {
    /// The offset that came.
    pub offset: i64,
    /// The lowest offset that could come.
    pub position: i64,
}

impl Display for WentBack {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "offset {} was taken before, and the position is {} now", self.offset, self.position)
    }
}

impl std::error::Error for WentBack {}

/// The offsets of one partition between the committed offset and the position.
#[derive(Clone, Debug)]
pub struct Window {
    position: i64,
    /// In ascending order. Blocks without a bit are left out, because Kafka may skip any number of offsets.
    blocks: VecDeque<Block>,
}

const BLOCK: i64 = 64;

/// 64 offsets, each with a bit in `held` and `done`, least significant first.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// A multiple of `BLOCK`.
    start: i64,
    /// Offsets that were taken in and are not finished.
    held: u64,
    done: u64,
}

impl Window {
    /// Creates a window. `start` is the committed offset. `finished` has the finished offsets above it, in ascending order
    /// (`metadata::decode`).
    #[must_use]
    pub fn new(start: i64, finished: impl IntoIterator<Item = i64>) -> Self {
        let mut window = Window { position: start, blocks: VecDeque::new() };
        for offset in finished {
            window.block(offset).done |= bit(offset);
        }
        window.drop_finished_blocks();
        window
    }

    /// Returns the offset that comes next.
    #[must_use]
    pub fn position(&self) -> i64 {
        self.position
    }

    /// Returns how many offsets lie between the offset to commit and the position. At `MAX_SPAN`, intake has to pause, because further
    /// finished offsets would not fit into the metadata. Finished offsets of an earlier assignment may lie above the position. They do
    /// not count, because intake would otherwise never reach them.
    #[must_use]
    pub fn span(&self) -> i64 {
        self.position - self.lowest_unfinished()
    }

    /// Returns the offset to commit.
    #[must_use]
    pub fn lowest_unfinished(&self) -> i64 {
        match self.blocks.front() {
            Some(first) if first.held != 0 => first.start + i64::from(first.held.trailing_zeros()),
            _ => self.position, // `drop_finished_blocks` has left no block that is wholly below it
        }
    }

    /// Takes in an offset. Returns false if it is finished already. Offsets that Kafka skips (transaction markers) count as finished.
    ///
    /// # Errors
    /// The offset is below the position.
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
        self.drop_finished_blocks();
        Ok(fresh)
    }

    /// Moves the position to `offset`, because Kafka has no more records below it, only transaction markers and aborted records. Returns
    /// false if the position is not below `offset`.
    pub fn skip_to(&mut self, offset: i64) -> bool {
        if offset <= self.position {
            return false;
        }
        self.position = offset;
        self.drop_finished_blocks();
        true
    }

    /// Returns a window that begins at the lowest unfinished offset and has the same finished offsets above it.
    #[must_use]
    pub fn renewed(&self) -> Window {
        let lowest = self.lowest_unfinished();
        let finished = |block: &Block| {
            let (start, done) = (block.start, block.done);
            (0..BLOCK).filter(move |bit| done >> bit & 1 == 1).map(move |bit| start + bit)
        };
        Window::new(lowest, self.blocks.iter().flat_map(finished).filter(|offset| *offset > lowest))
    }

    /// Marks an offset as finished, because Kafka has acknowledged the copy of its record. Returns false if the offset was not held.
    pub fn finish(&mut self, offset: i64) -> bool {
        if offset < self.lowest_unfinished() {
            return false;
        }
        let block = self.block(offset);
        let held = block.held & bit(offset) != 0;
        block.held &= !bit(offset);
        block.done |= bit(offset);
        self.drop_finished_blocks();
        held
    }

    /// Returns whether an offset is finished, so that a restart would not repeat its record.
    #[must_use]
    pub fn is_finished(&self, offset: i64) -> bool {
        let place = self.blocks.binary_search_by_key(&start_of(offset), |block| block.start);
        offset < self.lowest_unfinished() || place.is_ok_and(|at| self.blocks[at].done & bit(offset) != 0)
    }

    /// Returns what to commit. `topic_id` is as Kafka prints it, and empty if it is not known.
    #[must_use]
    pub fn commit_point(&self, encoder: &mut MetadataEncoder, topic_id: &str) -> CommitPoint {
        let offset = self.lowest_unfinished();
        let finished = self.blocks.iter().map(|block| (block.start, block.done));
        CommitPoint { offset, metadata: encoder.encode(offset, finished, topic_id) }
    }

    /// Returns the block of an offset, and creates it if it does not exist.
    fn block(&mut self, offset: i64) -> &mut Block {
        let start = start_of(offset);
        let at = self.block_index(start);
        if self.blocks.get(at).map_or(true, |block| block.start != start) {
            self.blocks.insert(at, Block { start, held: 0, done: 0 });
        }
        &mut self.blocks[at]
    }

    /// Returns the index of a block, or the index at which to insert it.
    fn block_index(&self, start: i64) -> usize {
        // nearly always no block is left out, so that the index is the distance to the first block
        let first = self.blocks.front().map_or(start, |block| block.start);
        if let Ok(guess) = usize::try_from((start - first) / BLOCK) {
            if self.blocks.get(guess).is_some_and(|block| block.start == start) {
                return guess;
            }
        }
        self.blocks.binary_search_by_key(&start, |block| block.start).unwrap_or_else(|at| at)
    }

    /// Drops the blocks that a commit no longer needs: those wholly below the lowest unfinished offset.
    fn drop_finished_blocks(&mut self) {
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
