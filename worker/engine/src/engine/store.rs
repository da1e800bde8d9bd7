//! The records that a partition holds, in chunks of memory.

use std::collections::VecDeque;

use super::stored::{read_decision, size_of, write, write_decision, HeaderBytes, Parts, Stored};
use crate::reading::Header;
use crate::routing::Waiting;

/// The size of the first chunk, unless the first record is larger.
pub const MIN_CHUNK_BYTES: usize = 4 << 10;
const MAX_CHUNK_BYTES: usize = 64 << 10;

/// The place of a record in a `Store`.
#[derive(Clone, Copy, Debug)]
pub struct At {
    chunk: u32,
    start: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Store {
    chunks: VecDeque<Chunk>,
    /// The number of the first chunk. The chunks after it have consecutive numbers.
    first: u32,
    /// The bytes of all chunks.
    allocated: usize,
    /// The bytes of the stored records.
    live: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// How many records of this chunk have not been removed.
    live: u32,
}

impl Store {
    /// Stores a copy of a record. `memory` is reusable.
    pub fn add<'a, H>(&mut self, parts: &Parts<'a, H>, memory: &mut HeaderBytes) -> At
    where
        H: Iterator<Item = Header<'a>> + Clone,
    {
        memory.fill(parts.headers.clone());
        let size = size_of(parts, memory);
        let (at, bytes) = self.allocate(size);
        write(bytes, size, parts, memory);
        at
    }

    /// Returns a stored record.
    #[must_use]
    pub fn get(&self, at: At) -> Stored<'_> {
        Stored::of(&self.chunks[self.chunk_index(at)].bytes[at.start as usize..])
    }

    /// Stores what was decided about a record that waits, except its turn.
    pub fn note(&mut self, at: At, waiting: Waiting) {
        let index = self.chunk_index(at);
        write_decision(&mut self.chunks[index].bytes[at.start as usize..], waiting);
    }

    /// Returns what `note` stored, with this turn.
    #[must_use]
    pub fn waiting(&self, at: At, turn_at_ms: i64) -> Waiting {
        read_decision(self.get(at), turn_at_ms)
    }

    /// Removes a record.
    pub fn remove(&mut self, at: At) {
        self.live -= self.get(at).size();
        let index = self.chunk_index(at);
        let is_last = index + 1 == self.chunks.len();
        let chunk = &mut self.chunks[index];
        chunk.live -= 1;
        if chunk.live > 0 {
            return;
        }
        if is_last && chunk.bytes.capacity() <= MAX_CHUNK_BYTES {
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

    /// The allocated memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.allocated
    }

    /// The memory that the stored records need.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.live
    }

    /// Copies a record from another store.
    pub fn take_over(&mut self, from: &Store, at: At) -> At {
        let block = from.get(at);
        let (to, bytes) = self.allocate(block.size());
        block.append_to(bytes);
        to
    }

    /// Counts a new record of `size` bytes, whose block the caller has to append to the returned bytes.
    #[allow(clippy::cast_possible_truncation)] // a chunk is larger than 64 KiB only for one record, whose size has 31 bits
    fn allocate(&mut self, size: usize) -> (At, &mut Vec<u8>) {
        if self.chunks.back().map_or(true, |last| last.bytes.capacity() - last.bytes.len() < size) {
            let last = self.chunks.back().map_or(0, |last| last.bytes.capacity());
            let bytes = Vec::with_capacity((2 * last).clamp(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES).max(size));
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

    fn chunk_index(&self, at: At) -> usize {
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
        let (mut store, mut memory) = (Store::default(), HeaderBytes::default());
        let mut held: Vec<(At, Vec<u8>)> = Vec::new();
        for n in 0..5000usize {
            let value = n.to_ne_bytes().repeat(1 + n % 40);
            held.push((store.add(&record(&value), &mut memory), value));
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
        assert!(store.bytes() <= MAX_CHUNK_BYTES);
    }

    #[test]
    fn a_record_that_is_larger_than_a_chunk_has_one_of_its_own() {
        let large = vec![1; 3 * MAX_CHUNK_BYTES];
        let (mut store, mut memory) = (Store::default(), HeaderBytes::default());
        let (first, second) = (store.add(&record(&large), &mut memory), store.add(&record(b"small"), &mut memory));
        assert_eq!(store.get(first).parts().value.map(<[u8]>::len), Some(large.len()));
        store.remove(first);
        store.remove(second);
        assert!(store.bytes() <= MAX_CHUNK_BYTES);
    }
}
