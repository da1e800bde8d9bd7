//! The records that a partition holds, in chunks of memory.

use std::collections::VecDeque;

use super::stored::{note, noted, size_of, write, Parts, Stored};
use crate::reading::Header;
use crate::routing::Waiting;

/// Taken by the first record, if it isn't larger.
pub const LEAST_CHUNK_BYTES: usize = 4 << 10;
const MOST_CHUNK_BYTES: usize = 64 << 10;

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
        let (at, bytes) = self.place_for(size);
        write(bytes, size, parts);
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

    /// Memory that the records need that are there.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.live
    }

    /// Takes over a record of another one.
    pub fn take_over(&mut self, from: &Store, at: At) -> At {
        let block = from.get(at);
        let (to, bytes) = self.place_for(block.size());
        block.append_to(bytes);
        to
    }

    /// Counts one more record. Its block of this size is to be appended to the bytes.
    #[allow(clippy::cast_possible_truncation)] // a chunk is as large as a record at most, and those have sizes of 31 bits
    fn place_for(&mut self, size: usize) -> (At, &mut Vec<u8>) {
        if self.chunks.back().map_or(true, |last| last.bytes.capacity() - last.bytes.len() < size) {
            let last = self.chunks.back().map_or(0, |last| last.bytes.capacity());
            let bytes = Vec::with_capacity((2 * last).clamp(LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES).max(size));
            self.allocated += bytes.capacity();
            self.chunks.push_back(Chunk { bytes, live: 0 });
        }
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        let at = At { chunk: self.first.wrapping_add(last as u32), start: chunk.bytes.len() as u32 };
        self.live += size;
        chunk.live += 1;
        (at, &mut chunk.bytes)
    }

    fn place(&self, at: At) -> usize {
        at.chunk.wrapping_sub(self.first) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: &[u8]) -> Parts<'_, std::vec::IntoIter<Header<'_>>> {
        Parts { appended_at_ms: None, key: None, value: Some(value), headers: Some(vec![].into_iter()) }
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
}
