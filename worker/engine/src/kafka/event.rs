//! The events of a client.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::marker::PhantomData;
use std::time::Instant;
use std::{ptr, slice};

use super::batching::Shared;
use super::error::{code, Error};
use super::ffi::{self, text, Functions, Headers, Message, Topic};
use super::list::{read, Offset, Partitions};

/// An event of a client.
pub enum Event {
    /// A record was fetched.
    Fetched(Fetched),
    /// The end of a partition: nothing is left to read below this offset.
    End(Offset),
    /// An error of a partition or of the client.
    Failed(Error, Option<Offset>),
    /// Partitions were assigned to this member. The engine has to call `Client::assign` or `assign_more`.
    Assigned(Vec<Offset>),
    /// Partitions have to be given up. The engine has to call `Client::assign(None)` or `unassign`.
    Revoked(Vec<Offset>),
    /// The answer to a commit.
    Committed(Option<Error>, Partitions),
    /// Copies were acknowledged or refused.
    Delivered(Delivered),
    /// The client no longer knows any broker, and never will again, so it has to be replaced. See the Python module
    /// `delayed_topics_kafka.stranded`.
    Stranded,
    /// The statistics of a client that knows brokers, in JSON.
    Statistics(String),
    /// A line of the client's log.
    Log(LogLine),
    /// An event that is of no use here.
    Other,
}

/// A line of a client's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The level as in syslog: 7 is debug, 3 is an error.
    pub level: i32,
    /// The facility, for example `FAIL`.
    pub facility: String,
    /// The message for people.
    pub text: String,
}

/// An event of librdkafka.
struct OwnedEvent {
    functions: &'static Functions,
    pointer: *mut ffi::Event,
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        // SAFETY: the event comes from a queue, and is destroyed nowhere else.
        unsafe { (self.functions.event_destroy)(self.pointer) }
    }
}

impl Event {
    /// # Safety
    /// `pointer` comes from a queue, and nothing else uses it.
    pub(super) unsafe fn of(
        functions: &'static Functions,
        pointer: *mut ffi::Event,
        batching: Option<&Shared>,
    ) -> Self {
        let event = OwnedEvent { functions, pointer };
        match (functions.event_type)(pointer) {
            ffi::EVENT_FETCH => {
                let message = (functions.event_message_next)(pointer);
                match message.as_ref() {
                    Some(found) if found.err == ffi::NO_ERROR => Event::Fetched(Fetched { event, message }),
                    Some(found) => Event::Failed(Error::of(functions, found.err), None),
                    None => Event::Other,
                }
            }
            ffi::EVENT_DELIVERY => {
                Event::Delivered(Delivered { event, batching: batching.cloned(), at: Instant::now(), refused: false })
            }
            ffi::EVENT_ERROR => failed(&event),
            ffi::EVENT_REBALANCE => {
                let list = read(functions, (functions.event_topic_partition_list)(pointer));
                let partitions = list.into_iter().map(|(place, _)| place).collect();
                match (functions.event_error)(pointer) {
                    code::ASSIGN_PARTITIONS => Event::Assigned(partitions),
                    _ => Event::Revoked(partitions),
                }
            }
            ffi::EVENT_COMMIT => {
                let list = read(functions, (functions.event_topic_partition_list)(pointer));
                Event::Committed(Error::check(functions, (functions.event_error)(pointer)).err(), list)
            }
            ffi::EVENT_LOG => {
                let (mut facility, mut line, mut level): (*const c_char, *const c_char, c_int) =
                    (ptr::null(), ptr::null(), 0);
                match (functions.event_log)(pointer, &mut facility, &mut line, &mut level) {
                    0 => Event::Log(LogLine { level, facility: text(facility), text: text(line) }),
                    _ => Event::Other,
                }
            }
            ffi::EVENT_STATISTICS => Event::Statistics(text((functions.event_stats)(pointer))),
            _ => Event::Other,
        }
    }
}

/// # Safety
/// The event is an error event.
unsafe fn failed(event: &OwnedEvent) -> Event {
    let functions = event.functions;
    let mut error = Error::of(functions, (functions.event_error)(event.pointer));
    let description = text((functions.event_error_string)(event.pointer));
    if error.code == code::AUTO_OFFSET_RESET {
        // the code is the same for every reason; only the message has the reason
        let truncation = Error::of(functions, code::LOG_TRUNCATION);
        if description.contains(&truncation.text) {
            error = truncation;
        }
    }
    error.text = description;
    error.fatal = (functions.event_error_is_fatal)(event.pointer) != 0 || error.code == code::FATAL;
    let found = (functions.event_topic_partition)(event.pointer);
    let place = found.as_ref().map(|place| Offset {
        topic: text(place.topic),
        partition: place.partition,
        offset: place.offset,
        metadata: String::new(),
    });
    if !found.is_null() {
        (functions.topic_partition_destroy)(found);
    }
    match place {
        Some(place) if error.code == code::PARTITION_EOF => Event::End(place),
        place => Event::Failed(error, place),
    }
}

/// The topic and the partition that a record was fetched from or goes to. The topic is librdkafka's pointer, which stays the same as
/// long as the topic is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place(pub(super) usize, pub(super) i32);

fn place_of(message: &Message) -> Place {
    Place(message.topic as usize, message.partition)
}

/// A fetched record. It keeps everything that was fetched with it in memory.
pub struct Fetched {
    event: OwnedEvent,
    message: *const Message,
}

impl Fetched {
    fn message(&self) -> &Message {
        // SAFETY: the message belongs to the event.
        unsafe { &*self.message }
    }

    /// Returns the place by which the engine finds the record's partition.
    pub fn place(&self) -> Place {
        place_of(self.message())
    }

    /// Returns the name of the topic.
    pub fn topic(&self) -> String {
        let topic: *const Topic = self.message().topic;
        // SAFETY: the topic lives as long as the message.
        unsafe { text((self.event.functions.topic_name)(topic)) }
    }

    /// Returns the partition.
    pub fn partition(&self) -> i32 {
        self.message().partition
    }

    /// Returns the offset.
    pub fn offset(&self) -> i64 {
        self.message().offset
    }

    /// Returns the key, or `None` for null.
    pub fn key(&self) -> Option<&[u8]> {
        // SAFETY: the memory belongs to the message.
        unsafe { bytes(self.message().key, self.message().key_len) }
    }

    /// Returns the value, or `None` for null.
    pub fn value(&self) -> Option<&[u8]> {
        // SAFETY: the memory belongs to the message.
        unsafe { bytes(self.message().payload, self.message().len) }
    }

    /// Returns the broker's append time, or `None` if the timestamp is a producer's.
    pub fn appended_at_ms(&self) -> Option<i64> {
        // SAFETY: the message belongs to the event.
        unsafe { appended_at_ms(self.event.functions, self.message()) }
    }

    /// Returns the headers in order, or `None` if the client cannot read some of them or there are more than it reads.
    pub fn headers(&self) -> Option<HeaderIterator<'_>> {
        // SAFETY: the message belongs to the event.
        unsafe { headers_of(self.event.functions, self.message) }
    }
}

/// # Safety
/// The message lives as long as `'a`.
unsafe fn headers_of<'a>(functions: &'static Functions, message: *const Message) -> Option<HeaderIterator<'a>> {
    let mut headers = ptr::null_mut();
    let count = match (functions.message_headers)(message, &mut headers) {
        ffi::NO_ERROR => (functions.header_cnt)(headers),
        code::NO_ENTRY => 0,
        _ => return None,
    };
    Some(HeaderIterator { functions, headers, next: 0, count, of: PhantomData })
}

/// # Safety
/// The memory lives as long as `'a`, or it is null.
unsafe fn bytes<'a>(pointer: *const c_void, size: usize) -> Option<&'a [u8]> {
    (!pointer.is_null()).then(|| slice::from_raw_parts(pointer.cast(), size))
}

/// Iterates over the headers of a record: the name, and the value or `None` for null.
#[derive(Clone)]
pub struct HeaderIterator<'a> {
    functions: &'static Functions,
    headers: *const Headers,
    next: usize,
    count: usize,
    of: PhantomData<&'a Fetched>,
}

impl<'a> Iterator for HeaderIterator<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.count {
            return None;
        }
        let (mut name, mut value, mut size): (*const c_char, *const c_void, usize) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the list, the names and the values belong to the record.
        unsafe {
            let get = self.functions.header_get_all;
            if get(self.headers, self.next, &mut name, &mut value, &mut size) != ffi::NO_ERROR {
                return None;
            }
            self.next += 1;
            Some((CStr::from_ptr(name).to_bytes(), bytes(value, size)))
        }
    }
}

/// Copies that were acknowledged or refused, in order.
pub struct Delivered {
    event: OwnedEvent,
    batching: Option<Shared>,
    /// When the event was taken from the queue.
    at: Instant,
    /// Whether one of the copies was refused. All copies of the event were one batch.
    refused: bool,
}

impl Drop for Delivered {
    fn drop(&mut self) {
        // SAFETY: the messages are discarded.
        while unsafe { self.next_message() }.is_some() {}
    }
}

/// Why a copy was refused, and by which topic.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The reason.
    pub error: Error,
    /// The topic that the copy was sent to.
    pub topic: String,
}

impl Delivered {
    /// Returns the next copy, which is no longer in flight, with its size.
    ///
    /// # Safety
    /// The message belongs to the event.
    unsafe fn next_message<'a>(&mut self) -> Option<(&'a Message, usize)> {
        let message = (self.event.functions.event_message_next)(self.event.pointer).as_ref()?;
        let mut bytes = 0;
        if let Some(batching) = &self.batching {
            let has_offset = message.err == ffi::NO_ERROR && message.offset >= 0;
            bytes = batching.completed(place_of(message), has_offset.then_some(self.at));
            if message.err != ffi::NO_ERROR && !self.refused {
                self.refused = true;
                batching.refused();
            }
        }
        Some((message, bytes))
    }

    /// Returns the next copy as `next` does, with the broker's append time, or `None` if the timestamp is a producer's.
    pub fn next_timed(&mut self) -> Option<(u64, Result<Option<i64>, Refusal>)> {
        let functions = self.event.functions;
        // SAFETY: the message belongs to the event, and its topic lives as long as it.
        unsafe {
            let (message, _) = self.next_message()?;
            let outcome = refusal_of(functions, message).map_or_else(|| Ok(appended_at_ms(functions, message)), Err);
            Some((message.opaque as u64, outcome))
        }
    }
}

/// # Safety
/// The message belongs to an event that still exists, and so does its topic.
unsafe fn refusal_of(functions: &Functions, message: &Message) -> Option<Refusal> {
    let error = if message.err != ffi::NO_ERROR {
        Error::of(functions, message.err) // the text of `rd_kafka_message_produce_errstr` is freed by then (2.16)
    } else if message.offset < 0 {
        // the client reports this copy as delivered because a later one was (2.16, `rd_kafka_dr_implicit_ack`); Kafka may have refused it
        Error::local(code::OUT_OF_ORDER_SEQUENCE_NUMBER, "Kafka did not say at which offset the record is")
    } else {
        return None;
    };
    Some(Refusal { error, topic: text((functions.topic_name)(message.topic)) })
}

/// # Safety
/// The message belongs to an event that still exists.
unsafe fn appended_at_ms(functions: &Functions, message: &Message) -> Option<i64> {
    let mut kind: c_int = 0;
    let at_ms = (functions.message_timestamp)(message, &mut kind);
    (kind == ffi::TIMESTAMP_LOG_APPEND_TIME).then_some(at_ms)
}

impl Iterator for Delivered {
    /// The number that the copy was produced with, its size as `Client::produce` returned it, and why it was refused, if it was.
    type Item = (u64, usize, Option<Refusal>);

    fn next(&mut self) -> Option<Self::Item> {
        let functions = self.event.functions;
        // SAFETY: the message belongs to the event, and its topic lives as long as it.
        unsafe {
            let (message, bytes) = self.next_message()?;
            Some((message.opaque as u64, bytes, refusal_of(functions, message)))
        }
    }
}
