//! Lists of partitions, with offsets and metadata.

use std::ffi::{c_void, CString};
use std::ptr;

use super::error::Error;
use super::ffi::{text, Functions, TopicPartitionList};

/// A partition, and an offset of it with what was committed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offset {
    /// Name of the topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// The offset, or one of librdkafka's negative ones.
    pub offset: i64,
    /// Committed with the offset.
    pub metadata: String,
}

/// What was said of each partition of a list.
pub type Partitions = Vec<(Offset, Option<Error>)>;

/// A list of librdkafka's, for the time of a call.
pub(super) struct List {
    functions: &'static Functions,
    pub(super) pointer: *mut TopicPartitionList,
}

impl List {
    pub(super) fn of<'a>(functions: &'static Functions, offsets: impl IntoIterator<Item = &'a Offset>) -> Self {
        // SAFETY: each element is made by the library; the metadata is freed by it with `free`, so it comes from `calloc`.
        unsafe {
            let list = List { functions, pointer: (functions.topic_partition_list_new)(8) };
            for wanted in offsets {
                // a name with a 0 byte is no topic's, and the call that the list is for says so
                let name = CString::new(wanted.topic.as_str()).unwrap_or_default();
                let element = &mut *(functions.topic_partition_list_add)(list.pointer, name.as_ptr(), wanted.partition);
                element.offset = wanted.offset;
                if !wanted.metadata.is_empty() {
                    // the 0 at its end is committed, too: the Python client reads it as a text that ends with one
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
        // SAFETY: it is a list of the library's until `self` goes.
        unsafe { read(self.functions, self.pointer) }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: made by `of`, and destroyed nowhere else.
        unsafe { (self.functions.topic_partition_list_destroy)(self.pointer) }
    }
}

/// # Safety
/// `list` is null or one of the library's.
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
