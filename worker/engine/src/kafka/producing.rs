//! Produces copies.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Instant;

use super::client::Client;
use super::error::{code, Error};
use super::event::Place;
use super::ffi::{self, argument, Argument, Bytes, Functions, Headers, Value};
use super::topics::TopicHandle;

/// The headers of a copy, in order.
pub struct CopyHeaders {
    functions: &'static Functions,
    pointer: *mut Headers,
    bytes: usize,
}

impl CopyHeaders {
    /// Appends a header. Its value may be null.
    pub fn add(&mut self, name: &[u8], value: Option<&[u8]>) {
        let (pointer, size) = value.map_or((ptr::null(), 0), |value| (value.as_ptr(), value.len()));
        self.bytes += name.len() + size;
        // SAFETY: the call copies name and value.
        unsafe {
            (self.functions.header_add)(
                self.pointer,
                name.as_ptr().cast(),
                signed(name.len()),
                pointer.cast(),
                signed(size),
            )
        };
    }
}

impl Drop for CopyHeaders {
    fn drop(&mut self) {
        // SAFETY: `Client::copy_headers` created the headers. `Client::produce` forgets those that librdkafka has taken over.
        unsafe { (self.functions.headers_destroy)(self.pointer) }
    }
}

/// A copy to produce.
pub struct Copy<'a, H> {
    /// The partition of the topic.
    pub partition: i32,
    /// The key, or `None` for null.
    pub key: Option<&'a [u8]>,
    /// The value, or `None` for null.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: H,
    /// The timestamp, which topics with `LogAppendTime` do not keep. 0 means the time of this machine.
    pub timestamp_ms: i64,
    /// A number that comes back with the outcome.
    pub number: u64,
}

impl Client {
    /// Creates the headers of a copy. `count` is about how many there will be.
    pub fn copy_headers(&self, count: usize) -> CopyHeaders {
        // SAFETY: the result owns the headers.
        CopyHeaders { functions: self.functions, pointer: unsafe { (self.functions.headers_new)(count) }, bytes: 0 }
    }

    /// Queues a copy, and returns its size in bytes including the headers. Key and value are copied. The outcome comes as
    /// `Event::Delivered`.
    ///
    /// # Errors
    /// `code::QUEUE_FULL` if there is no room for the copy now, or another error if it cannot be queued at all.
    pub fn produce(&self, topic: &TopicHandle, copy: Copy<'_, CopyHeaders>) -> Result<usize, Error> {
        let size = copy.key.map_or(0, <[u8]>::len) + copy.value.map_or(0, <[u8]>::len) + copy.headers.bytes;
        let place = Place(topic.pointer as usize, copy.partition);
        if self.batching.as_ref().is_some_and(|batching| !batching.admit(place, size, Instant::now())) {
            return Err(Error::local(code::QUEUE_FULL, "the partition has as much in flight as is sent at once"));
        }
        let bytes = |of: Option<&[u8]>| Value {
            bytes: of.map_or(Bytes { pointer: ptr::null(), size: 0 }, |of| Bytes {
                pointer: of.as_ptr().cast::<c_void>(),
                size: of.len(),
            }),
        };
        let arguments = [
            of(argument::TOPIC_HANDLE, Value { topic: topic.pointer }),
            of(argument::PARTITION, Value { int32: copy.partition }),
            of(argument::VALUE, bytes(copy.value)),
            of(argument::KEY, bytes(copy.key)),
            of(argument::HEADERS, Value { headers: copy.headers.pointer }),
            of(argument::TIMESTAMP, Value { int64: copy.timestamp_ms }),
            of(argument::OPAQUE, Value { pointer: copy.number as *mut c_void }),
            of(argument::FLAGS, Value { int: ffi::MSG_COPY }),
        ];
        // SAFETY: the kind of each argument matches its value. The call takes over the headers if it succeeds.
        unsafe {
            let queued = Error::take(
                self.functions,
                (self.functions.produceva)(self.handle, arguments.as_ptr(), arguments.len()),
            );
            if let (Err(_), Some(batching)) = (&queued, &self.batching) {
                batching.not_queued(place);
            }
            queued?;
        }
        std::mem::forget(copy.headers);
        Ok(size)
    }
}

fn of(kind: c_int, value: Value) -> Argument {
    Argument { kind, value }
}

fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}
