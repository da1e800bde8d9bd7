//! A client of Kafka that reports everything as events.

use std::ffi::{c_char, c_int, CString};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::batching::{Batching, Shared};
use super::error::{code, Error};
use super::event::Event;
use super::ffi::{self, text, Functions, Handle, Load, Queue};
use super::list::{List, Offset, Partitions};
use super::membership::Membership;
use super::statistics::knows_brokers;

/// What a client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A member of a consumer group.
    Consumer,
    /// Writes records, in transactions or not.
    Producer,
}

/// librdkafka's properties, by name.
pub type Settings = [(String, String)];

const TEXT_BYTES: usize = 512;

/// A consumer or a producer. It belongs to one thread, which polls it. Another thread may make the calls of transactions meanwhile.
pub struct Client {
    pub(super) functions: &'static Functions,
    pub(super) handle: *mut Handle,
    queue: *mut Queue,
    statistics_without_brokers: AtomicU32,
    /// Whether the client has begun to leave its group.
    closing: AtomicBool,
    pub(super) batching: Option<Shared>,
}

// SAFETY: librdkafka's handles and queues may be used by any thread.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

/// The end of a partition, for `ListOffsets`.
const LATEST: i64 = -1;

impl Client {
    /// Creates a client, which connects to nothing yet. It writes eight bytes to `wake` whenever an event comes after `poll` found none.
    ///
    /// # Errors
    /// A property is not valid.
    pub fn new(library: Load, kind: Kind, settings: &Settings, wake: BorrowedFd<'_>) -> Result<Self, String> {
        let functions = library.0;
        // SAFETY: strings end with 0 and live as long as the calls. The client owns the conf as soon as it exists.
        unsafe {
            let conf = (functions.conf_new)();
            let mut why = [0 as c_char; TEXT_BYTES];
            let to_queue = [("log.queue".to_owned(), "true".to_owned())];
            for (name, value) in settings.iter().chain(&to_queue) {
                let set = match (CString::new(name.as_str()), CString::new(value.as_str())) {
                    (Ok(name), Ok(value)) => {
                        (functions.conf_set)(conf, name.as_ptr(), value.as_ptr(), why.as_mut_ptr(), TEXT_BYTES)
                    }
                    _ => -1,
                };
                if set != 0 {
                    (functions.conf_destroy)(conf);
                    return Err(format!("{name}: {}", text(why.as_ptr())));
                }
            }
            let events = ffi::EVENT_ERROR | ffi::EVENT_STATISTICS | ffi::EVENT_LOG;
            let (rk_kind, events) = match kind {
                Kind::Consumer => (ffi::CONSUMER, events | ffi::EVENT_FETCH | ffi::EVENT_REBALANCE | ffi::EVENT_COMMIT),
                Kind::Producer => (ffi::PRODUCER, events | ffi::EVENT_DELIVERY),
            };
            (functions.conf_set_events)(conf, events);
            let handle = (functions.new)(rk_kind, conf, why.as_mut_ptr(), TEXT_BYTES);
            if handle.is_null() {
                (functions.conf_destroy)(conf);
                return Err(text(why.as_ptr()));
            }
            let queue = match kind {
                Kind::Consumer => {
                    (functions.poll_set_consumer)(handle);
                    (functions.queue_get_consumer)(handle)
                }
                Kind::Producer => (functions.queue_get_main)(handle),
            };
            (functions.set_log_queue)(handle, queue);
            let payload = 1u64.to_ne_bytes();
            (functions.queue_io_event_enable)(queue, wake.as_raw_fd(), payload.as_ptr().cast(), payload.len());
            let batching = Batching::of(settings);
            let statistics_without_brokers = AtomicU32::new(0);
            Ok(Client {
                functions,
                handle,
                queue,
                statistics_without_brokers,
                closing: AtomicBool::new(false),
                batching,
            })
        }
    }

    /// Returns the next event, if there is one. A member of a group has to call this within `max.poll.interval.ms`.
    pub fn poll(&self) -> Option<Event> {
        self.wait(0)
    }

    /// Waits for the next event for up to `timeout_ms`, and returns it.
    pub fn wait(&self, timeout_ms: i32) -> Option<Event> {
        // SAFETY: the queue is this client's.
        let event = unsafe { (self.functions.queue_poll)(self.queue, timeout_ms) };
        if event.is_null() {
            return None;
        }
        // SAFETY: the queue has just returned the event, and nothing else uses it.
        match unsafe { Event::of(self.functions, event, self.batching.as_ref()) } {
            Event::Statistics(statistics) => Some(self.check_brokers(statistics)),
            event => Some(event),
        }
    }

    fn check_brokers(&self, statistics: String) -> Event {
        if knows_brokers(&statistics) {
            self.statistics_without_brokers.store(0, Ordering::Relaxed);
            return Event::Statistics(statistics);
        }
        // a client that bootstraps again by itself knows no broker for a moment
        match self.statistics_without_brokers.fetch_add(1, Ordering::Relaxed) {
            0 => Event::Other,
            _ => Event::Stranded,
        }
    }

    /// Joins the group, or reads other topics than before; without topics, it unsubscribes.
    ///
    /// # Errors
    /// The client refuses the call.
    pub fn subscribe(&self, topics: &[String]) -> Result<(), Error> {
        let topics: Vec<_> = topics.iter().map(|topic| place(topic, -1)).collect();
        let list = List::of(self.functions, &topics);
        // SAFETY: the list lives as long as the call.
        let code = unsafe {
            if topics.is_empty() {
                (self.functions.unsubscribe)(self.handle)
            } else {
                (self.functions.subscribe)(self.handle, list.pointer)
            }
        };
        Error::check(self.functions, code)
    }

    /// Returns whether each rebalance assigns all partitions anew (`EAGER`), and not only those that move.
    pub fn is_eager(&self) -> bool {
        // SAFETY: the call returns a string that lives as long as the client.
        unsafe { text((self.functions.rebalance_protocol)(self.handle)) != "COOPERATIVE" }
    }

    /// Returns whether partitions that are revoked may have another owner already.
    pub fn has_lost_assignment(&self) -> bool {
        // SAFETY: the call only reads.
        unsafe { (self.functions.assignment_lost)(self.handle) != 0 }
    }

    /// Reads these partitions from these offsets, and no other partitions. With `None`, it reads none.
    ///
    /// # Errors
    /// The client refuses the call.
    pub fn assign(&self, partitions: Option<&[Offset]>) -> Result<(), Error> {
        let list = partitions.map(|partitions| List::of(self.functions, partitions));
        let pointer = list.as_ref().map_or(ptr::null_mut(), |list| list.pointer);
        // SAFETY: the list lives as long as the call.
        Error::check(self.functions, unsafe { (self.functions.assign)(self.handle, pointer) })
    }

    /// Reads these partitions in addition to the others.
    ///
    /// # Errors
    /// The client refuses the call.
    pub fn assign_more(&self, partitions: &[Offset]) -> Result<(), Error> {
        let list = List::of(self.functions, partitions);
        // SAFETY: the list lives as long as the call.
        unsafe { Error::take(self.functions, (self.functions.incremental_assign)(self.handle, list.pointer)) }
    }

    /// Stops reading these partitions.
    ///
    /// # Errors
    /// The client refuses the call.
    pub fn unassign(&self, partitions: &[Offset]) -> Result<(), Error> {
        let list = List::of(self.functions, partitions);
        // SAFETY: the list lives as long as the call.
        unsafe { Error::take(self.functions, (self.functions.incremental_unassign)(self.handle, list.pointer)) }
    }

    /// Pauses reading these partitions, and discards what was fetched from them.
    pub fn pause(&self, partitions: &[Offset]) {
        let list = List::of(self.functions, partitions);
        // SAFETY: the list lives as long as the call. It fails only for partitions that are no longer assigned.
        unsafe { (self.functions.pause_partitions)(self.handle, list.pointer) };
    }

    /// Resumes reading these partitions.
    pub fn resume(&self, partitions: &[Offset]) {
        let list = List::of(self.functions, partitions);
        // SAFETY: as in `pause`.
        unsafe { (self.functions.resume_partitions)(self.handle, list.pointer) };
        self.fetch_at_once(partitions);
    }

    /// Wakes the client's threads for the leaders of these partitions with a request whose answer is ignored. While the client may fetch
    /// no partition of a broker, its thread for that broker sleeps for up to a second. Nothing wakes it when it may fetch again (2.16,
    /// `rd_kafka_broker_consumer_serve`): neither `resume` nor the end of a rebalance, during which the client itself pauses all
    /// partitions of a cooperative member.
    pub fn fetch_at_once<'a>(&self, partitions: impl IntoIterator<Item = &'a Offset>) {
        let latest = partitions.into_iter().map(|place| Offset { offset: LATEST, ..place.clone() });
        let list = List::of(self.functions, &latest.collect::<Vec<_>>());
        // SAFETY: the request has a copy of the list, and its answer is an event in the queue of this client.
        unsafe { (self.functions.ListOffsets)(self.handle, list.pointer, ptr::null(), self.queue) };
    }

    /// Continues reading these partitions at these offsets, and discards what was fetched before. The call does not wait: a partition
    /// that cannot be sought, because the client no longer reads it, delivers nothing.
    ///
    /// # Errors
    /// The client refuses the call.
    pub fn seek(&self, partitions: &[Offset]) -> Result<(), Error> {
        let list = List::of(self.functions, partitions);
        // SAFETY: the list lives as long as the call.
        unsafe { Error::take(self.functions, (self.functions.seek_partitions)(self.handle, list.pointer, 0)) }
    }

    /// Sends a commit. The answer comes as `Event::Committed`.
    ///
    /// # Errors
    /// The client refuses the call.
    pub fn commit(&self, offsets: &[Offset]) -> Result<(), Error> {
        let list = List::of(self.functions, offsets);
        let commit = self.functions.commit_queue;
        // SAFETY: the list lives as long as the call. Without a callback, the answer is an event in the queue of this client.
        let code = unsafe { commit(self.handle, list.pointer, self.queue, ptr::null(), ptr::null_mut()) };
        Error::check(self.functions, code)
    }

    /// Requests what the group has committed, and waits for the answer.
    ///
    /// # Errors
    /// Kafka refused the request, or did not answer in time.
    pub fn committed(&self, partitions: &[Offset], timeout_ms: i32) -> Result<Partitions, Error> {
        let list = List::of(self.functions, partitions);
        // SAFETY: the list lives as long as the call, which fills it in.
        let code = unsafe { (self.functions.committed)(self.handle, list.pointer, timeout_ms) };
        Error::check(self.functions, code).map(|()| list.read())
    }

    /// Returns the first offset and the end of a partition as of the last fetch; -1001 if the client does not know them.
    pub fn known_ends(&self, topic: &str, partition: i32) -> Option<(i64, i64)> {
        let name = CString::new(topic).ok()?;
        let (mut low, mut high) = (0, 0);
        // SAFETY: both numbers live as long as the call.
        let code = unsafe {
            (self.functions.get_watermark_offsets)(self.handle, name.as_ptr(), partition, &mut low, &mut high)
        };
        (code == ffi::NO_ERROR).then_some((low, high))
    }

    /// Begins to leave the group. Events revoke partitions until `is_closed`.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // SAFETY: the queue is this client's. An error means that the client is closed already.
        let _ = unsafe { Error::take(self.functions, (self.functions.consumer_close_queue)(self.handle, self.queue)) };
    }

    /// Stops writing to the descriptor that the client was given. The descriptor may be closed after this.
    pub fn wake_no_more(&self) {
        // SAFETY: the queue is this client's.
        unsafe { (self.functions.queue_io_event_enable)(self.queue, -1 as RawFd as c_int, ptr::null(), 0) };
    }

    /// Returns whether the client has left the group.
    pub fn is_closed(&self) -> bool {
        // SAFETY: the call only reads.
        unsafe { (self.functions.consumer_closed)(self.handle) != 0 }
    }

    /// Fences former producers with the same transactional id, ends the transactions that they left open, and waits until this is done.
    ///
    /// # Errors
    /// Kafka refused the request, or did not answer in time.
    pub fn init_transactions(&self, timeout_ms: i32) -> Result<(), Error> {
        // SAFETY: a call of a producer.
        unsafe { Error::take(self.functions, (self.functions.init_transactions)(self.handle, timeout_ms)) }
    }

    /// Begins a transaction, which contains all that is produced from now on.
    ///
    /// # Errors
    /// The client refuses the call.
    pub fn begin_transaction(&self) -> Result<(), Error> {
        // SAFETY: a call of a producer.
        unsafe { Error::take(self.functions, (self.functions.begin_transaction)(self.handle)) }
    }

    /// Checks whether the open transaction can still be committed.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn look_at_transaction(&self) -> Result<(), Error> {
        // a second transaction is always refused; if the first one has failed, the refusal contains the reason
        self.begin_transaction().or_else(|refusal| if refusal.code == code::STATE { Ok(()) } else { Err(refusal) })
    }

    /// Adds offsets to the transaction, and waits until this is done. May wait forever for a group coordinator: see the Python module
    /// `delayed_topics_kafka.transactions`.
    ///
    /// # Errors
    /// Kafka refused the request, or did not answer in time.
    pub fn send_offsets(&self, offsets: &[Offset], member: &Membership, timeout_ms: i32) -> Result<(), Error> {
        let list = List::of(self.functions, offsets);
        let send = self.functions.send_offsets_to_transaction;
        // SAFETY: the list and the metadata live as long as the call.
        unsafe { Error::take(self.functions, send(self.handle, list.pointer, member.metadata, timeout_ms)) }
    }

    /// Commits the transaction, and waits until this is done.
    ///
    /// # Errors
    /// Kafka refused the request, or did not answer in time.
    pub fn commit_transaction(&self, timeout_ms: i32) -> Result<(), Error> {
        // SAFETY: a call of a producer.
        unsafe { Error::take(self.functions, (self.functions.commit_transaction)(self.handle, timeout_ms)) }
    }

    /// Aborts the transaction, and waits until this is done.
    ///
    /// # Errors
    /// Kafka refused the request, or did not answer in time.
    pub fn abort_transaction(&self, timeout_ms: i32) -> Result<(), Error> {
        // SAFETY: a call of a producer.
        unsafe { Error::take(self.functions, (self.functions.abort_transaction)(self.handle, timeout_ms)) }
    }

    /// Returns the current membership of this consumer in its group.
    pub fn membership(&self) -> Membership {
        // SAFETY: a call of a consumer. `Membership` destroys the result.
        let metadata = unsafe { (self.functions.consumer_group_metadata)(self.handle) };
        Membership { functions: self.functions, metadata }
    }

    /// Returns the number of copies whose outcome was not reported yet.
    pub fn outstanding(&self) -> usize {
        // SAFETY: the call only reads.
        usize::try_from(unsafe { (self.functions.outq_len)(self.handle) }).unwrap_or(0)
    }

    /// Returns the number of refused batches whose outcomes were taken from the client.
    pub fn refused_batches(&self) -> u32 {
        self.batching.as_ref().map_or(0, |batching| batching.refusals())
    }

    /// Gives up all copies that are queued or in flight. Copies in flight may still arrive. Outcomes are reported later, when all
    /// threads of the client have handled the purge, and one of them may be waiting for a name server.
    pub fn purge(&self) {
        // SAFETY: a call of a producer.
        unsafe { (self.functions.purge)(self.handle, ffi::PURGE_ALL_WITHOUT_WAITING) };
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.wake_no_more();
        if self.closing.load(Ordering::Relaxed) && !self.is_closed() {
            // the client waits until its partitions are given up; destroying it does not end this wait, because the client ignores a
            // second request to terminate (2.16, `rd_kafka_cgrp_terminate0`)
            let _ = self.assign(None);
        }
        // SAFETY: nothing uses the queue or the handle after this.
        unsafe {
            (self.functions.queue_destroy)(self.queue);
            (self.functions.destroy_flags)(self.handle, ffi::DESTROY_NO_CONSUMER_CLOSE);
        }
    }
}

fn place(topic: &str, partition: i32) -> Offset {
    Offset { topic: topic.to_owned(), partition, offset: 0, metadata: String::new() }
}
