//! What a client tells.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::marker::PhantomData;
use std::time::Instant;
use std::{ptr, slice};

use super::batching::Shared;
use super::error::{code, Error};
use super::ffi::{self, text, Functions, Headers, Message, Topic};
use super::list::{read, Offset, Partitions};
use super::producing::header_bytes;

/// What a client tells.
pub enum Event {
    /// A record.
    Fetched(Fetched),
    /// There is nothing to read below this offset of a partition.
    End(Offset),
    /// Something went wrong, with a partition or with the client.
    Failed(Error, Option<Offset>),
    /// Partitions are this member's. It has to call `Client::assign` or `assign_more`.
    Assigned(Vec<Offset>),
    /// Partitions are to be given up. It has to call `Client::assign(None)` or `unassign`.
    Revoked(Vec<Offset>),
    /// The answer to a commit.
    Committed(Option<Error>, Partitions),
    /// Copies were acknowledged, or refused.
    Delivered(Delivered),
    /// The client knows no broker any more, and never will again, see kafka/stranded.py: it can only be replaced.
    Stranded,
    /// JSON; `Client` reads it.
    Statistics(String),
    /// What the client tells about its doings.
    Log(LogLine),
    /// Nothing that is of use.
    Other,
}

/// A line of a client's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// As syslog has them: 7 is debugging, 3 is an error.
    pub level: i32,
    /// Such as `FAIL`.
    pub facility: String,
    /// For people.
    pub text: String,
}

/// An event of librdkafka's.
struct Owned {
    functions: &'static Functions,
    pointer: *mut ffi::Event,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: given by a queue, and destroyed nowhere else.
        unsafe { (self.functions.event_destroy)(self.pointer) }
    }
}

impl Event {
    /// # Safety
    /// The event was given by a queue and is used nowhere else.
    pub(super) unsafe fn of(
        functions: &'static Functions,
        pointer: *mut ffi::Event,
        batching: Option<&Shared>,
    ) -> Self {
        let event = Owned { functions, pointer };
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
/// The event says that something failed.
unsafe fn failed(event: &Owned) -> Event {
    let functions = event.functions;
    let mut error = Error::of(functions, (functions.event_error)(event.pointer));
    let told = text((functions.event_error_string)(event.pointer));
    if error.code == code::AUTO_OFFSET_RESET {
        // which is the code whatever the reason; that is in the text only
        let truncation = Error::of(functions, code::LOG_TRUNCATION);
        if told.contains(&truncation.text) {
            error = truncation;
        }
    }
    error.text = told;
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

/// Where a record was fetched from, or goes to: a topic as librdkafka's pointer, which is the same as long as the topic is used,
/// and a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place(pub(super) usize, pub(super) i32);

fn place_of(message: &Message) -> Place {
    Place(message.topic as usize, message.partition)
}

/// A record. It keeps all that was fetched with it in memory.
pub struct Fetched {
    event: Owned,
    message: *const Message,
}

impl Fetched {
    fn message(&self) -> &Message {
        // SAFETY: it belongs to the event.
        unsafe { &*self.message }
    }

    /// To find its partition by.
    pub fn place(&self) -> Place {
        place_of(self.message())
    }

    /// Its topic's name.
    pub fn topic(&self) -> String {
        let topic: *const Topic = self.message().topic;
        // SAFETY: the topic lives as long as the message.
        unsafe { text((self.event.functions.topic_name)(topic)) }
    }

    /// Its partition.
    pub fn partition(&self) -> i32 {
        self.message().partition
    }

    /// Its offset.
    pub fn offset(&self) -> i64 {
        self.message().offset
    }

    /// Its key, or null.
    pub fn key(&self) -> Option<&[u8]> {
        // SAFETY: the memory belongs to the message.
        unsafe { bytes(self.message().key, self.message().key_len) }
    }

    /// Its value, or null.
    pub fn value(&self) -> Option<&[u8]> {
        // SAFETY: the memory belongs to the message.
        unsafe { bytes(self.message().payload, self.message().len) }
    }

    /// When the broker appended it; `None`: its time is a producer's.
    pub fn appended_at_ms(&self) -> Option<i64> {
        // SAFETY: the message belongs to the event.
        unsafe { appended_at_ms(self.event.functions, self.message()) }
    }

    /// Its headers, in order. `None`: there are some that the client can't read, or more than it reads.
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

/// Headers of a record: name, and value or null.
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
        // SAFETY: the list, its names and values belong to the record.
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
    event: Owned,
    batching: Option<Shared>,
    /// When it was taken.
    at: Instant,
    /// One of them was refused. They were one batch.
    refused: bool,
}

impl Drop for Delivered {
    fn drop(&mut self) {
        // SAFETY: no message of it is used.
        while unsafe { self.next_message() }.is_some() {}
    }
}

/// Why a copy was refused, and by which topic.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Why.
    pub error: Error,
    /// The topic that it should go to.
    pub topic: String,
}

impl Delivered {
    /// The next one, which is on its way no more.
    ///
    /// # Safety
    /// The message belongs to the event.
    unsafe fn next_message<'a>(&mut self) -> Option<&'a Message> {
        let message = (self.event.functions.event_message_next)(self.event.pointer).as_ref()?;
        if let Some(batching) = &self.batching {
            let has_offset = message.err == ffi::NO_ERROR && message.offset >= 0;
            batching.came_back(place_of(message), has_offset.then_some(self.at));
            if message.err != ffi::NO_ERROR && !self.refused {
                self.refused = true;
                batching.refused();
            }
        }
        Some(message)
    }

    /// As `next`, with the broker's append time; `None`: it is a producer's.
    pub fn next_timed(&mut self) -> Option<(u64, Result<Option<i64>, Refusal>)> {
        let functions = self.event.functions;
        // SAFETY: the message belongs to the event, and its topic lives as long as it.
        unsafe {
            let message = self.next_message()?;
            let outcome = refusal_of(functions, message).map_or_else(|| Ok(appended_at_ms(functions, message)), Err);
            Some((message.opaque as u64, outcome))
        }
    }
}

/// # Safety
/// The message belongs to an event that is there, and so does its topic.
unsafe fn refusal_of(functions: &Functions, message: &Message) -> Option<Refusal> {
    let error = if message.err != ffi::NO_ERROR {
        Error::of(functions, message.err) // not `rd_kafka_message_produce_errstr`, whose text is freed by then (2.16)
    } else if message.offset < 0 {
        // which the client takes for delivered since a later one was (2.16, `rd_kafka_dr_implicit_ack`): Kafka may have refused it
        Error::local(code::OUT_OF_ORDER_SEQUENCE_NUMBER, "Kafka did not say at which offset the record is")
    } else {
        return None;
    };
    Some(Refusal { error, topic: text((functions.topic_name)(message.topic)) })
}

/// # Safety
/// The message belongs to an event that is there.
unsafe fn appended_at_ms(functions: &Functions, message: &Message) -> Option<i64> {
    let mut kind: c_int = 0;
    let at_ms = (functions.message_timestamp)(message, &mut kind);
    (kind == ffi::TIMESTAMP_LOG_APPEND_TIME).then_some(at_ms)
}

/// Whether a client's statistics know a broker.
pub(super) fn knows_brokers(statistics: &str) -> bool {
    ["\"source\":\"configured\"", "\"source\":\"learned\""].iter().any(|some| statistics.contains(some))
}

impl Iterator for Delivered {
    /// The number that the copy was produced with, its bytes as `Client::produce` told them, and why it was refused.
    type Item = (u64, usize, Option<Refusal>);

    fn next(&mut self) -> Option<Self::Item> {
        let functions = self.event.functions;
        // SAFETY: the message belongs to the event, and its topic lives as long as it.
        unsafe {
            let message = self.next_message()?;
            let headers = headers_of(functions, message).into_iter().flatten();
            let in_headers: usize = headers.map(|(name, value)| header_bytes(name, value)).sum();
            let bytes = message.len + message.key_len + in_headers;
            Some((message.opaque as u64, bytes, refusal_of(functions, message)))
        }
    }
}
