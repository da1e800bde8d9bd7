//! The binary format of held records. A record takes about 28 bytes in addition to its own, and two for each header.

use crate::dead_letter::MAX_FOREIGN_HEADERS;
use crate::own::Own;
use crate::reading::Header;
use crate::routing::Waiting;

/// The parts of a record that are kept.
pub struct Parts<'a, H> {
    /// The broker's append time; `None` if the topic has the producers' times.
    pub appended_at_ms: Option<i64>,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
    /// The headers in order, or `None` if they cannot be read.
    pub headers: Option<H>,
}

// A block begins with its size (4 bytes), the append time (8 bytes), and room for the decision about the record: its due time
// (8 bytes) and whether it was misrouted (1 byte). Then come varints: the size of the key, the size of the value, the number of
// headers, and the sizes of each header's name and value. Those that can be null are one higher, and 0 for null; the number of
// headers is null if they cannot be read. The bytes of the headers, the key and the value follow.
const APPENDED: usize = 4;
const DUE: usize = 12;
const MISROUTED: usize = 20;
const SIZES: usize = 21;
const NO_TIME: i64 = i64::MIN;

/// Reusable memory for the headers of a record, which are iterated only once because each one costs two calls of librdkafka.
#[derive(Debug, Default)]
pub struct HeaderBytes {
    /// The number of headers; `None` if they cannot be read.
    count: Option<usize>,
    /// The varints of the names and values.
    sizes: Vec<u8>,
    /// The names and values.
    contents: Vec<u8>,
}

impl HeaderBytes {
    /// Replaces the content with these headers.
    pub fn fill<'a>(&mut self, headers: Option<impl Iterator<Item = Header<'a>>>) {
        self.sizes.clear();
        self.contents.clear();
        self.count = headers.map(|headers| {
            let mut count = 0;
            for (name, value) in headers {
                count += 1;
                put_varint(&mut self.sizes, name.len());
                put_nullable(&mut self.sizes, value.map(<[u8]>::len));
                self.contents.extend_from_slice(name);
                self.contents.extend_from_slice(value.unwrap_or_default());
            }
            count
        });
    }
}

/// Returns the size of the block of a record with these headers.
pub fn size_of<H>(parts: &Parts<'_, H>, headers: &HeaderBytes) -> usize {
    let (key_size, value_size) = (parts.key.map(<[u8]>::len), parts.value.map(<[u8]>::len));
    let sizes = [key_size, value_size, headers.count].map(|size| varint_size(size.map_or(0, |size| size + 1)));
    let contents = key_size.unwrap_or(0) + value_size.unwrap_or(0) + headers.contents.len();
    SIZES + sizes.into_iter().sum::<usize>() + headers.sizes.len() + contents
}

fn varint_size(number: usize) -> usize {
    match number {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        0x20_0000..=0xfff_ffff => 4,
        _ => 5,
    }
}

#[allow(clippy::cast_possible_truncation)] // a varint writes the lowest bits first
fn put_varint(to: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn put_nullable(to: &mut Vec<u8>, size: Option<usize>) {
    put_varint(to, size.map_or(0, |size| size + 1));
}

/// Appends the block of a record with these headers. `size` is its `size_of`.
#[allow(clippy::cast_possible_truncation)] // sizes in Kafka have 31 bits
pub fn write<H>(to: &mut Vec<u8>, size: usize, parts: &Parts<'_, H>, headers: &HeaderBytes) {
    to.extend_from_slice(&(size as u32).to_ne_bytes());
    to.extend_from_slice(&parts.appended_at_ms.unwrap_or(NO_TIME).to_ne_bytes());
    to.extend_from_slice(&[0; SIZES - DUE]);
    for size in [parts.key.map(<[u8]>::len), parts.value.map(<[u8]>::len), headers.count] {
        put_nullable(to, size);
    }
    for bytes in [&headers.sizes, &headers.contents, parts.key.unwrap_or_default(), parts.value.unwrap_or_default()] {
        to.extend_from_slice(bytes);
    }
}

/// Writes what was decided about a record that waits into its block, except its turn.
pub fn write_decision(block: &mut [u8], waiting: Waiting) {
    block[DUE..MISROUTED].copy_from_slice(&waiting.due_at_ms.to_ne_bytes());
    block[MISROUTED] = u8::from(waiting.misrouted);
}

/// Reads what `write_decision` wrote, and adds the turn.
#[must_use]
pub fn read_decision(stored: Stored<'_>, turn_at_ms: i64) -> Waiting {
    Waiting {
        due_at_ms: i64::from_ne_bytes(array(&stored.0[DUE..MISROUTED])),
        turn_at_ms,
        misrouted: stored.0[MISROUTED] != 0,
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut copied = [0; N];
    copied.copy_from_slice(bytes);
    copied
}

/// A stored record. Its parts borrow from its block.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a>(&'a [u8]);

impl<'a> Stored<'a> {
    /// Copies the block, so that it can be read while other records are added and removed.
    pub fn copy_to(self, block: &mut Vec<u8>) {
        block.clear();
        self.append_to(block);
    }

    /// Appends a copy of the block.
    pub fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.0[..self.size()]);
    }

    /// The record whose block begins here.
    #[must_use]
    pub fn of(block: &'a [u8]) -> Self {
        Stored(block)
    }

    /// The size of the block.
    #[must_use]
    pub fn size(self) -> usize {
        u32::from_ne_bytes(array(&self.0[..APPENDED])) as usize
    }

    /// The parts of the record.
    #[must_use]
    pub fn parts(self) -> Parts<'a, StoredHeaders<'a>> {
        let block = &self.0[..self.size()];
        let appended_at_ms = i64::from_ne_bytes(array(&block[APPENDED..DUE]));
        let mut sizes = Sizes(&block[SIZES..]);
        let (key_size, value_size, count) = (sizes.nullable(), sizes.nullable(), sizes.nullable());
        let mut contents = sizes.clone();
        for _ in 0..2 * count.unwrap_or(0) {
            contents.next();
        }
        let (rest, value) = contents.0.split_at(contents.0.len() - value_size.unwrap_or(0));
        let (header_bytes, key) = rest.split_at(rest.len() - key_size.unwrap_or(0));
        Parts {
            appended_at_ms: (appended_at_ms != NO_TIME).then_some(appended_at_ms),
            key: key_size.map(|_| key),
            value: value_size.map(|_| value),
            headers: count.map(|left| StoredHeaders { left, sizes, contents: header_bytes }),
        }
    }
}

/// The varints of a block, and the bytes after them.
#[derive(Clone, Debug)]
struct Sizes<'a>(&'a [u8]);

impl Sizes<'_> {
    fn next(&mut self) -> usize {
        let (mut number, mut shift) = (0, 0);
        while let Some((byte, rest)) = self.0.split_first() {
            self.0 = rest;
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
        number
    }

    fn nullable(&mut self) -> Option<usize> {
        self.next().checked_sub(1)
    }
}

/// The headers of a `Stored`.
#[derive(Clone, Debug)]
pub struct StoredHeaders<'a> {
    left: usize,
    sizes: Sizes<'a>,
    contents: &'a [u8],
}

impl StoredHeaders<'_> {
    /// Whether all names are UTF-8, as Kafka requires, and there are not too many headers for a copy to be readable. Some clients cannot
    /// even read a record that has other names.
    #[must_use]
    pub fn are_readable(&self) -> bool {
        let too_many = || self.clone().filter(|(name, _)| Own::of(name).is_none()).count() > MAX_FOREIGN_HEADERS;
        self.clone().all(|(name, _)| std::str::from_utf8(name).is_ok())
            && (self.left <= MAX_FOREIGN_HEADERS || !too_many())
    }
}

impl<'a> Iterator for StoredHeaders<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (name_size, value_size) = (self.sizes.next(), self.sizes.nullable());
        let (name, contents) = self.contents.split_at(name_size);
        let (value, contents) = contents.split_at(value_size.unwrap_or(0));
        self.contents = contents;
        Some((name, value_size.map(|_| value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::store::Store;

    #[test]
    fn what_is_stored_reads_back_with_empty_and_null_told_apart() {
        let long = [7; 300];
        let headers: Vec<Header<'_>> =
            vec![(b"a", Some(b"1")), (b"", None), (b"a", Some(b"")), (b"caf\xe9", Some(&long))];
        let (mut store, mut memory) = (Store::default(), HeaderBytes::default());
        for (key, value) in [(None, None), (Some(&b""[..]), Some(&b""[..])), (Some(&b"key"[..]), Some(&long[..]))] {
            for headers in [None, Some(vec![]), Some(headers.clone())] {
                let parts = Parts { appended_at_ms: Some(5), key, value, headers: headers.clone().map(Vec::into_iter) };
                let at = store.add(&parts, &mut memory);
                let read = store.get(at).parts();
                assert_eq!((read.key, read.value, read.appended_at_ms), (key, value, Some(5)));
                assert_eq!(read.headers.map(Iterator::collect::<Vec<_>>), headers);
            }
        }
        let at = store.add(
            &Parts { appended_at_ms: None, key: None, value: None, headers: Some(std::iter::empty()) },
            &mut memory,
        );
        assert_eq!(store.get(at).parts().appended_at_ms, None);
    }

    #[test]
    fn what_was_decided_of_a_record_is_noted_beside_it() {
        let (mut store, mut memory) = (Store::default(), HeaderBytes::default());
        let at = store.add(
            &Parts { appended_at_ms: None, key: None, value: Some(b"v"), headers: Some(std::iter::empty()) },
            &mut memory,
        );
        for misrouted in [false, true] {
            let waiting = Waiting { due_at_ms: 70, turn_at_ms: 60, misrouted };
            store.note(at, waiting);
            assert_eq!(store.waiting(at, 60), waiting);
            assert_eq!(store.get(at).parts().value, Some(&b"v"[..]));
        }
    }
}
