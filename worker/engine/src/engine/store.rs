//! The records that a partition holds, in chunks of memory.

use std::collections::VecDeque;

use super::stored::{note, noted, size_of, write, Parts, Stored};
use crate::reading::Header;
use crate::routing::Waiting;

const LEAST_CHUNK_BYTES: usize = 4 << 10;
const MOST_CHUNK_BYTES: usize = 64 << 10;
/// Memory of records that are gone, in chunks that others are still in, before these are moved.
const WASTE_BYTES: usize = 2 * MOST_CHUNK_BYTES;

/// Where a record is.
#[derive(Clone, Copy, Debug)]
pub struct At {
    chunk: u32,
    start: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Store {
    chunks: VecDeque<Chunk>,
    /// Number of the first chunk; those that come later have the numbers after it.
    first: u32,
    /// Of all chunks.
    allocated: usize,
    /// Of the records that are there.
    live: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Records.
    live: u32,
}

impl Store {
    /// Keeps a copy of a record.
    pub fn add<'a, H: Iterator<Item = Header<'a>> + Clone>(&mut self, parts: &Parts<'a, H>) -> At {
        let size = size_of(parts);
        if self.chunks.back().map_or(true, |chunk| chunk.bytes.capacity() - chunk.bytes.len() < size) {
            let last = self.chunks.back().map_or(0, |last| last.bytes.capacity());
            self.allocate((2 * last).clamp(LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES).max(size));
        }
        let at = self.next();
        self.live += size;
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.live += 1;
            write(&mut chunk.bytes, size, parts);
        }
        at
    }

    /// A record that is there.
    #[must_use]
    pub fn get(&self, at: At) -> Stored<'_> {
        Stored::of(&self.chunks[self.place(at)].bytes[at.start as usize..])
    }

    /// Notes what was decided of a record that waits, but for its turn.
    pub fn note(&mut self, at: At, waiting: Waiting) {
        let place = self.place(at);
        note(&mut self.chunks[place].bytes[at.start as usize..], waiting);
    }

    /// What was noted.
    #[must_use]
    pub fn waiting(&self, at: At, turn_at_ms: i64) -> Waiting {
        noted(self.get(at), turn_at_ms)
    }

    /// Forgets a record.
    pub fn remove(&mut self, at: At) {
        self.live -= self.get(at).size();
        let place = self.place(at);
        let is_last = place + 1 == self.chunks.len();
        let chunk = &mut self.chunks[place];
        chunk.live -= 1;
        if chunk.live > 0 {
            return;
        }
        if is_last && chunk.bytes.capacity() <= MOST_CHUNK_BYTES {
            chunk.bytes.clear();
            return;
        }
        self.allocated -= chunk.bytes.capacity();
        chunk.bytes = Vec::new();
        while self.chunks.len() > 1 && self.chunks.front().is_some_and(|chunk| chunk.bytes.capacity() == 0) {
            self.chunks.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Memory that is taken.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.allocated
    }

    /// More of it is taken by records that are gone than by those that are there.
    #[must_use]
    pub fn is_wasteful(&self) -> bool {
        self.allocated > 2 * self.live + WASTE_BYTES
    }

    /// Takes over a record of another one.
    pub fn take_over(&mut self, from: &Store, at: At) -> At {
        let block = from.get(at);
        let size = block.size();
        if self.chunks.back().map_or(true, |chunk| chunk.bytes.capacity() - chunk.bytes.len() < size) {
            self.allocate(MOST_CHUNK_BYTES.max(size));
        }
        let to = self.next();
        self.live += size;
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.live += 1;
            block.append_to(&mut chunk.bytes);
        }
        to
    }

    fn allocate(&mut self, bytes: usize) {
        let chunk = Chunk { bytes: Vec::with_capacity(bytes), live: 0 };
        self.allocated += chunk.bytes.capacity();
        self.chunks.push_back(chunk);
    }

    /// Where the next record comes, in the last chunk.
    #[allow(clippy::cast_possible_truncation)] // a chunk is as large as a record at most, and those have sizes of 31 bits
    fn next(&self) -> At {
        let start = self.chunks.back().map_or(0, |chunk| chunk.bytes.len());
        At { chunk: self.first.wrapping_add(self.chunks.len() as u32 - 1), start: start as u32 }
    }

    fn place(&self, at: At) -> usize {
        at.chunk.wrapping_sub(self.first) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: &[u8]) -> Parts<'_, std::vec::IntoIter<Header<'_>>> {
        Parts { appended_at_ms: None, key: None, value: Some(value), headers: vec![].into_iter() }
    }

    #[test]
    fn memory_goes_with_the_records_in_whatever_order_they_leave() {
        let mut store = Store::default();
        let mut held: Vec<(At, Vec<u8>)> = Vec::new();
        for n in 0..5000usize {
            let value = n.to_ne_bytes().repeat(1 + n % 40);
            held.push((store.add(&record(&value)), value));
            if n % 3 == 0 {
                let (at, value) = held.swap_remove(n * 7919 % held.len());
                assert_eq!(store.get(at).parts().value, Some(&value[..]));
                store.remove(at);
            }
        }
        for (at, value) in held {
            assert_eq!(store.get(at).parts().value, Some(&value[..]));
            store.remove(at);
        }
        assert_eq!(store.live, 0);
        assert!(store.bytes() <= MOST_CHUNK_BYTES);
    }

    #[test]
    fn a_record_that_is_larger_than_a_chunk_has_one_of_its_own() {
        let large = vec![1; 3 * MOST_CHUNK_BYTES];
        let mut store = Store::default();
        let (first, second) = (store.add(&record(&large)), store.add(&record(b"small")));
        assert_eq!(store.get(first).parts().value.map(<[u8]>::len), Some(large.len()));
        store.remove(first);
        store.remove(second);
        assert!(store.bytes() <= MOST_CHUNK_BYTES);
    }

    #[test]
    fn a_few_records_that_stay_among_many_that_go_are_moved_together() {
        let mut store = Store::default();
        let value = [0; 1000];
        let held: Vec<At> = (0..10_000).map(|_| store.add(&record(&value))).collect();
        let (stay, go): (Vec<_>, Vec<_>) = held.into_iter().enumerate().partition(|(n, _)| n % 100 == 0);
        for (_, at) in go {
            store.remove(at);
        }
        assert!(store.is_wasteful());
        let mut moved = Store::default();
        for (_, at) in stay {
            let at = moved.take_over(&store, at);
            assert_eq!(moved.get(at).parts().value, Some(&value[..]));
        }
        assert!(!moved.is_wasteful());
    }
}
