//! Lists of partitions with offsets and metadata.

use std::ffi::{c_void, CString};
use std::ptr;

use super::error::Error;
use super::ffi::{text, Functions, TopicPartitionList};

/// An offset of a partition, with the metadata of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The name of the topic.
    pub topic: String,
    /// The partition of that topic.
    pub partition: i32,
    /// The offset, or one of librdkafka's negative logical offsets.
    pub offset: i64,
    /// The metadata that is committed with the offset.
    pub metadata: String,
}

/// The answer for each partition of a list.
pub type Partitions = Vec<(Offset, Option<Error>)>;

/// A list of librdkafka, for the duration of a call.
pub(super) struct List {
    functions: &'static Functions,
    pub(super) pointer: *mut TopicPartitionList,
}

impl List {
    pub(super) fn of<'a>(functions: &'static Functions, offsets: impl IntoIterator<Item = &'a Offset>) -> Self {
        // SAFETY: the library creates each element. It frees the metadata with `free`, so the metadata is allocated with `calloc`.
        unsafe {
            let list = List { functions, pointer: (functions.topic_partition_list_new)(8) };
            for wanted in offsets {
                // no topic has a name with a 0 byte; the name becomes empty, and the call that gets the list reports the error
                let name = CString::new(wanted.topic.as_str()).unwrap_or_default();
                let element = &mut *(functions.topic_partition_list_add)(list.pointer, name.as_ptr(), wanted.partition);
                element.offset = wanted.offset;
                if !wanted.metadata.is_empty() {
                    // the 0 at the end is committed, too, because the Python client reads the metadata as a string that ends with 0
                    let copy = libc::calloc(wanted.metadata.len() + 1, 1);
                    if !copy.is_null() {
                        ptr::copy_nonoverlapping(
                            wanted.metadata.as_ptr().cast::<c_void>(),
                            copy,
                            wanted.metadata.len(),
                        );
                        element.metadata = copy;
                        element.metadata_size = wanted.metadata.len() + 1;
                    }
                }
            }
            list
        }
    }

    pub(super) fn read(&self) -> Partitions {
        // SAFETY: the list lives as long as `self`.
        unsafe { read(self.functions, self.pointer) }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: `of` created the list, and it is destroyed nowhere else.
        unsafe { (self.functions.topic_partition_list_destroy)(self.pointer) }
    }
}

/// # Safety
/// `list` is null or a list of the library.
pub(super) unsafe fn read(functions: &Functions, list: *const TopicPartitionList) -> Partitions {
    if list.is_null() || (*list).count <= 0 {
        return Vec::new();
    }
    let elements = std::slice::from_raw_parts((*list).elements, usize::try_from((*list).count).unwrap_or(0));
    let of = |element: &super::ffi::TopicPartition| {
        let metadata = if element.metadata.is_null() {
            String::new()
        } else {
            let bytes = std::slice::from_raw_parts(element.metadata.cast::<u8>(), element.metadata_size);
            String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
        };
        let place =
            Offset { topic: text(element.topic), partition: element.partition, offset: element.offset, metadata };
        (place, Error::check(functions, element.err).err())
    };
    elements.iter().map(of).collect()
}
