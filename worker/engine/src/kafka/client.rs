//! A client of Kafka, of which everything is told by events.

use std::ffi::{c_char, c_int, CString};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::batching::{Batching, Shared};
use super::error::{code, Error};
use super::event::{knows_brokers, Event};
use super::ffi::{self, text, Functions, Handle, Load, Queue};
use super::list::{List, Offset, Partitions};
use super::membership::Membership;

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

/// Belongs to one thread; the calls of a transaction may be made by another one, while this one polls.
pub struct Client {
    pub(super) functions: &'static Functions,
    pub(super) handle: *mut Handle,
    queue: *mut Queue,
    looks_without_brokers: AtomicU32,
    /// It has begun to leave its group.
    closing: AtomicBool,
    pub(super) batching: Option<Shared>,
}

// SAFETY: librdkafka's handles and queues may be used by any thread.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

/// For `ListOffsets`.
const LATEST: i64 = -1;

impl Client {
    /// Connects to nothing yet. `wake`: gets eight bytes whenever an event comes after `poll` has found none.
    ///
    /// # Errors
    /// A property that can't be.
    pub fn new(library: Load, kind: Kind, settings: &Settings, wake: BorrowedFd<'_>) -> Result<Self, String> {
        let functions = library.0;
        // SAFETY: texts end with 0 and live as long as the calls; the conf belongs to the client once there is one.
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
            let looks_without_brokers = AtomicU32::new(0);
            Ok(Client { functions, handle, queue, looks_without_brokers, closing: AtomicBool::new(false), batching })
        }
    }

    /// The next event, if one is there. Of what a client that is a group's member must do in time, this is what counts.
    pub fn poll(&self) -> Option<Event> {
        self.wait(0)
    }

    /// The next event, waiting for it.
    pub fn wait(&self, timeout_ms: i32) -> Option<Event> {
        // SAFETY: the queue is this client's.
        let event = unsafe { (self.functions.queue_poll)(self.queue, timeout_ms) };
        if event.is_null() {
            return None;
        }
        // SAFETY: it was just given, and is used nowhere else.
        match unsafe { Event::of(self.functions, event, self.batching.as_ref()) } {
            Event::Statistics(statistics) => Some(self.look_for_brokers(&statistics)),
            event => Some(event),
        }
    }

    fn look_for_brokers(&self, statistics: &str) -> Event {
        if knows_brokers(statistics) {
            self.looks_without_brokers.store(0, Ordering::Relaxed);
            return Event::Other;
        }
        // one that begins anew by itself has none for a moment
        match self.looks_without_brokers.fetch_add(1, Ordering::Relaxed) {
            0 => Event::Other,
            _ => Event::Stranded,
        }
    }

    /// Becomes a member of its group.
    ///
    /// # Errors
    /// The client doesn't take it.
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

    /// Whether the group's protocol hands out all partitions anew each time (`EAGER`), and not only what changes.
    pub fn is_eager(&self) -> bool {
        // SAFETY: it gives a text that lives as long as the client.
        unsafe { text((self.functions.rebalance_protocol)(self.handle)) != "COOPERATIVE" }
    }

    /// Whether partitions that are revoked have another owner already.
    pub fn has_lost_assignment(&self) -> bool {
        // SAFETY: only asks.
        unsafe { (self.functions.assignment_lost)(self.handle) != 0 }
    }

    /// Reads these partitions from these offsets and no others; `None`: none at all.
    ///
    /// # Errors
    /// The client doesn't take it.
    pub fn assign(&self, partitions: Option<&[Offset]>) -> Result<(), Error> {
        let list = partitions.map(|partitions| List::of(self.functions, partitions));
        let pointer = list.as_ref().map_or(ptr::null_mut(), |list| list.pointer);
        // SAFETY: the list lives as long as the call.
        Error::check(self.functions, unsafe { (self.functions.assign)(self.handle, pointer) })
    }

    /// Reads these partitions, too.
    ///
    /// # Errors
    /// The client doesn't take it.
    pub fn assign_more(&self, partitions: &[Offset]) -> Result<(), Error> {
        let list = List::of(self.functions, partitions);
        // SAFETY: the list lives as long as the call.
        unsafe { Error::take(self.functions, (self.functions.incremental_assign)(self.handle, list.pointer)) }
    }

    /// Reads these partitions no more.
    ///
    /// # Errors
    /// The client doesn't take it.
    pub fn unassign(&self, partitions: &[Offset]) -> Result<(), Error> {
        let list = List::of(self.functions, partitions);
        // SAFETY: the list lives as long as the call.
        unsafe { Error::take(self.functions, (self.functions.incremental_unassign)(self.handle, list.pointer)) }
    }

    /// Reads no more of these partitions for now, and throws away what has been fetched of them.
    pub fn pause(&self, partitions: &[Offset]) {
        let list = List::of(self.functions, partitions);
        // SAFETY: the list lives as long as the call. What fails is a partition that is not assigned any more.
        unsafe { (self.functions.pause_partitions)(self.handle, list.pointer) };
    }

    /// The contrary of `pause`.
    pub fn resume(&self, partitions: &[Offset]) {
        let list = List::of(self.functions, partitions);
        // SAFETY: as in `pause`.
        unsafe { (self.functions.resume_partitions)(self.handle, list.pointer) };
        self.fetch_at_once(partitions);
    }

    /// Wakes the client's threads for the leaders of these partitions, by a request whose answer nobody needs. While it may fetch no
    /// partition of a broker, the thread for it sleeps for up to a second, and isn't woken when it may (2.16,
    /// `rd_kafka_broker_consumer_serve`): neither by `resume` nor by the end of a rebalance, until which the client itself pauses all
    /// that a cooperative member has.
    pub fn fetch_at_once<'a>(&self, partitions: impl IntoIterator<Item = &'a Offset>) {
        let latest = partitions.into_iter().map(|place| Offset { offset: LATEST, ..place.clone() });
        let list = List::of(self.functions, &latest.collect::<Vec<_>>());
        // SAFETY: the request has a copy of the list, and its answer is an event of the queue, which is ours.
        unsafe { (self.functions.ListOffsets)(self.handle, list.pointer, ptr::null(), self.queue) };
    }

    /// Reads these partitions from these offsets; what was fetched before doesn't come any more. Not waited for: a partition
    /// that can't be sought, since reading it has ended, simply gives nothing.
    ///
    /// # Errors
    /// The client doesn't take it.
    pub fn seek(&self, partitions: &[Offset]) -> Result<(), Error> {
        let list = List::of(self.functions, partitions);
        // SAFETY: the list lives as long as the call.
        unsafe { Error::take(self.functions, (self.functions.seek_partitions)(self.handle, list.pointer, 0)) }
    }

    /// Sends a commit; the answer comes as `Event::Committed`.
    ///
    /// # Errors
    /// The client doesn't take it.
    pub fn commit(&self, offsets: &[Offset]) -> Result<(), Error> {
        let list = List::of(self.functions, offsets);
        let commit = self.functions.commit_queue;
        // SAFETY: the list lives as long as the call; without a callback the answer is an event of the queue, which is ours.
        let code = unsafe { commit(self.handle, list.pointer, self.queue, ptr::null(), ptr::null_mut()) };
        Error::check(self.functions, code)
    }

    /// What the group has committed. Waits for it.
    ///
    /// # Errors
    /// Kafka's, or there was no answer in time.
    pub fn committed(&self, partitions: &[Offset], timeout_ms: i32) -> Result<Partitions, Error> {
        let list = List::of(self.functions, partitions);
        // SAFETY: the list lives as long as the call, which fills it in.
        let code = unsafe { (self.functions.committed)(self.handle, list.pointer, timeout_ms) };
        Error::check(self.functions, code).map(|()| list.read())
    }

    /// First offset and end of a partition as the client saw them with the last fetch; -1001 while it knows none.
    pub fn known_ends(&self, topic: &str, partition: i32) -> Option<(i64, i64)> {
        let name = CString::new(topic).ok()?;
        let (mut low, mut high) = (0, 0);
        // SAFETY: both numbers live as long as the call.
        let code = unsafe {
            (self.functions.get_watermark_offsets)(self.handle, name.as_ptr(), partition, &mut low, &mut high)
        };
        (code == ffi::NO_ERROR).then_some((low, high))
    }

    /// Begins to leave the group; partitions are revoked by events, until `is_closed`.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // SAFETY: the queue is this client's. An error means that it is closed.
        let _ = unsafe { Error::take(self.functions, (self.functions.consumer_close_queue)(self.handle, self.queue)) };
    }

    /// Writes nothing any more to the descriptor that it was given, which may be closed then.
    pub fn wake_no_more(&self) {
        // SAFETY: the queue is this client's.
        unsafe { (self.functions.queue_io_event_enable)(self.queue, -1 as RawFd as c_int, ptr::null(), 0) };
    }

    /// Whether it has left the group.
    pub fn is_closed(&self) -> bool {
        // SAFETY: only asks.
        unsafe { (self.functions.consumer_closed)(self.handle) != 0 }
    }

    /// Shuts out former producers of its transactional id, and ends what they left open. Waits for it.
    ///
    /// # Errors
    /// Kafka's, or there was no answer in time.
    pub fn init_transactions(&self, timeout_ms: i32) -> Result<(), Error> {
        // SAFETY: a call of a producer.
        unsafe { Error::take(self.functions, (self.functions.init_transactions)(self.handle, timeout_ms)) }
    }

    /// What is produced from now on is in a transaction.
    ///
    /// # Errors
    /// The client doesn't take it.
    pub fn begin_transaction(&self) -> Result<(), Error> {
        // SAFETY: a call of a producer.
        unsafe { Error::take(self.functions, (self.functions.begin_transaction)(self.handle)) }
    }

    /// Whether the open transaction can still end well.
    ///
    /// # Errors
    /// Why it can't.
    pub fn look_at_transaction(&self) -> Result<(), Error> {
        // a second one is never begun, but refused: with the reason for which the first can't go on, if there is one
        self.begin_transaction().or_else(|refusal| if refusal.code == code::STATE { Ok(()) } else { Err(refusal) })
    }

    /// Makes offsets part of the transaction. Waits for it, and for a group coordinator for ever, see kafka/transactions.py.
    ///
    /// # Errors
    /// Kafka's, or there was no answer in time.
    pub fn send_offsets(&self, offsets: &[Offset], member: &Membership, timeout_ms: i32) -> Result<(), Error> {
        let list = List::of(self.functions, offsets);
        let send = self.functions.send_offsets_to_transaction;
        // SAFETY: list and metadata live as long as the call.
        unsafe { Error::take(self.functions, send(self.handle, list.pointer, member.metadata, timeout_ms)) }
    }

    /// Ends the transaction well. Waits for it.
    ///
    /// # Errors
    /// Kafka's, or there was no answer in time.
    pub fn commit_transaction(&self, timeout_ms: i32) -> Result<(), Error> {
        // SAFETY: a call of a producer.
        unsafe { Error::take(self.functions, (self.functions.commit_transaction)(self.handle, timeout_ms)) }
    }

    /// Ends the transaction as if it had not been. Waits for it.
    ///
    /// # Errors
    /// Kafka's, or there was no answer in time.
    pub fn abort_transaction(&self, timeout_ms: i32) -> Result<(), Error> {
        // SAFETY: a call of a producer.
        unsafe { Error::take(self.functions, (self.functions.abort_transaction)(self.handle, timeout_ms)) }
    }

    /// Who this consumer is in its group at this moment.
    pub fn membership(&self) -> Membership {
        // SAFETY: a call of a consumer; what it gives is given back by `Membership`.
        let metadata = unsafe { (self.functions.consumer_group_metadata)(self.handle) };
        Membership { functions: self.functions, metadata }
    }

    /// Copies whose outcome was not told yet.
    pub fn outstanding(&self) -> usize {
        // SAFETY: only asks.
        usize::try_from(unsafe { (self.functions.outq_len)(self.handle) }).unwrap_or(0)
    }

    /// Batches that were refused, as far as their outcomes were taken.
    pub fn refused_batches(&self) -> u32 {
        self.batching.as_ref().map_or(0, |batching| batching.refusals())
    }

    /// Gives up all that is on its way; whether it arrives is not known. Its outcomes come a moment later: not before the client's
    /// threads know of it, of which one may wait for a name server.
    pub fn purge(&self) {
        // SAFETY: a call of a producer.
        unsafe { (self.functions.purge)(self.handle, ffi::PURGE_ALL_WITHOUT_WAITING) };
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.wake_no_more();
        if self.closing.load(Ordering::Relaxed) && !self.is_closed() {
            // it waits for somebody to give up its partitions, and a second call to close it does not end that, as the first
            // would have done (2.16, `rd_kafka_cgrp_terminate0`)
            let _ = self.assign(None);
        }
        // SAFETY: nothing of it is used after this.
        unsafe {
            (self.functions.queue_destroy)(self.queue);
            (self.functions.destroy_flags)(self.handle, ffi::DESTROY_NO_CONSUMER_CLOSE);
        }
    }
}

fn place(topic: &str, partition: i32) -> Offset {
    Offset { topic: topic.to_owned(), partition, offset: 0, metadata: String::new() }
}
