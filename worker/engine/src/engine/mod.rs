//! The engine: one consumer, the producers of copies, and every record between them.
//!
//! `Engine::turn` does the work that is pending, and reports what the worker has to decide: for example where a partition begins,
//! and what becomes of a partition that is stopped. It never waits for such a decision. `Running` calls it in a thread of its own.

mod alone;
mod beginning;
mod calls;
mod changes;
mod changing;
mod clock;
mod commit_points;
mod commits;
mod congestion;
mod copying;
#[cfg(test)]
mod copying_tests;
mod delayed;
mod delivery_reports;
mod ending;
mod engine_event;
#[cfg(test)]
mod fake_producer;
mod held;
mod histogram;
mod intake;
mod memory;
mod partition;
mod placing;
mod producer;
mod producers;
mod rebalance;
mod refusals;
mod renewals;
mod running;
mod sending;
mod slots;
mod snapshot;
mod state;
mod store;
mod stored;
mod topic;
mod transactions;
mod turns;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{eventfd, EventfdFlags};

pub use beginning::Beginning;
pub use changes::{Change, Changed};
pub use clock::{boot_ns, Samples};
pub use engine_event::EngineEvent;
pub use histogram::{Histogram, DURATION_BOUNDS_MS};
pub use partition::Partition;
pub use running::{Panicked, Running};
pub use snapshot::Seen;
pub use topic::{Names, Served, Tally, Topic};

use crate::kafka::{code, Client, Error, Kind, Load};
use crate::writing;
use clock::Clock;
use commits::Commits;
use memory::Memory;
use producers::{Producers, Use};
use rebalance::{Leaving, Revoking, Subscribing};
use slots::Slots;
use state::Step;
use stored::HeaderBytes;
use transactions::Transactions;
use turns::Turns;

/// How long a metadata request may take. Kafka normally answers within a few milliseconds.
const METADATA_TIMEOUT_MS: i32 = 1000;
/// How long before a record is due the engine requests the broker's time and a fresh commit.
const NEAR_MS: i64 = 1000;
/// Between two metadata requests.
const METADATA_PAUSE: Duration = Duration::from_millis(50);

/// What is fixed when the engine is created.
#[derive(Clone, Debug)]
pub struct Settings {
    /// librdkafka's properties of the producers, without the compression.
    pub producer: Vec<(String, String)>,
    /// librdkafka's properties of the producer of clock probes.
    pub clock: Vec<(String, String)>,
    /// The topic that clock probes are written to.
    pub clock_topic: String,
    /// Memory for the records that partitions hold.
    pub window_bytes: usize,
    /// The time between two commits of acknowledged records.
    pub commit_interval_ns: i64,
    /// The time after which a partition is committed again although nothing has changed.
    pub renew_ns: i64,
    /// Whether copies and offsets are written in transactions. The properties of the producers then have a `transactional.id`.
    pub exactly_once: bool,
}

/// See the module. It belongs to one thread.
pub struct Engine {
    load: Load,
    clock: Clock,
    topics: Vec<Topic>,
    by_topic: HashMap<String, usize>,
    slots: Slots,
    turns: Turns,
    /// Partitions that have records to send and cannot send them yet.
    blocked: Vec<usize>,
    /// Partitions that wait until none of their copies are in flight.
    settling: Vec<usize>,
    consumer: Option<Arc<Client>>,
    producers: Producers,
    commits: Commits,
    /// With `ExactlyOnce`, this takes the place of `commits`.
    transactions: Option<Transactions>,
    memory: Memory,
    revoking: Option<Revoking>,
    /// The topics that the consumer subscribes to.
    subscribed: Vec<String>,
    subscribing: Option<Subscribing>,
    leaving: Option<Leaving>,
    polled_at_ns: i64,
    /// How many identities partitions have been given.
    identities: u64,
    events: Vec<EngineEvent>,
    scratch: Scratch,
    /// Whether a thread refreshes the metadata of the producers' topics.
    refreshing_metadata: Arc<AtomicBool>,
    /// The clients write to it when they have an event. It is the last field, because it has to outlive them.
    wake: OwnedFd,
}

/// Buffers that every turn uses again.
#[derive(Default)]
struct Scratch {
    block: Vec<u8>,
    header_bytes: HeaderBytes,
    headers: writing::CopyHeaders,
}

impl Engine {
    /// An engine that has no client yet.
    ///
    /// # Errors
    /// The system provides no file descriptor.
    pub fn new(load: Load, settings: Settings) -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Engine {
            producers: Producers::new(load, settings.producer),
            clock: Clock::new(load, settings.clock, settings.clock_topic),
            commits: Commits::new(settings.commit_interval_ns, settings.renew_ns),
            transactions: settings.exactly_once.then(|| Transactions::new(settings.commit_interval_ns)),
            memory: Memory::new(settings.window_bytes),
            topics: Vec::new(),
            by_topic: HashMap::new(),
            load,
            wake,
            slots: Slots::default(),
            turns: Turns::default(),
            blocked: Vec::new(),
            settling: Vec::new(),
            consumer: None,
            revoking: None,
            subscribed: Vec::new(),
            subscribing: None,
            leaving: None,
            polled_at_ns: i64::MIN / 2,
            identities: 0,
            events: Vec::new(),
            scratch: Scratch::default(),
            refreshing_metadata: Arc::default(),
        })
    }

    /// Adds a delayed topic. Delayed topics are numbered from 0 in the order of these calls. With `exactly_once` there is only one,
    /// and it is added before any other call.
    pub fn add_topic(&mut self, names: Names) {
        self.producers.add_topic(&names);
        let number = self.topics.len();
        self.by_topic.insert(names.front.clone(), number);
        self.by_topic.insert(names.delays.clone(), number);
        self.topics.push(Topic::new(names));
    }

    /// Joins the group, with a client that has these properties, or changes the subscription of a member. `grown` are the topics
    /// that have more partitions than when the member joined.
    ///
    /// # Errors
    /// The client cannot be created, or does not accept the subscription.
    pub fn subscribe(
        &mut self,
        topics: &[String],
        grown: &[String],
        properties: &[(String, String)],
    ) -> Result<(), String> {
        if let Some(consumer) = &self.consumer {
            if !grown.is_empty() || (self.slots.len() > 0 && consumer.is_eager()) {
                self.settle_and_subscribe(topics, grown);
                return Ok(());
            }
        } else {
            let client = Client::new(self.load, Kind::Consumer, properties, self.wake.as_fd())?;
            self.consumer = Some(Arc::new(client));
        }
        topics.clone_into(&mut self.subscribed);
        self.subscribing = None; // it would replace this subscription later
        self.consumer.as_ref().map_or(Ok(()), |consumer| consumer.subscribe(topics).map_err(|e| e.to_string()))
    }

    /// Does the work that is pending now. Returns whether there was any.
    pub fn turn(&mut self) -> bool {
        let mut busy = self.take_events();
        busy |= self.take_delivery_reports();
        self.try_refused_producers();
        self.settle();
        self.revoke();
        self.subscribe_settled();
        self.leave_settled();
        let slots = &self.slots;
        self.turns.drop_former(|slot, turn_ms| slots.get(slot).is_some_and(|p| p.turn_ms == Some(turn_ms)));
        self.clock.turn(self.is_near(), self.wake.as_fd());
        busy |= self.send_due();
        self.commit();
        self.transact();
        self.balance_memory();
        self.place_stalled();
        busy
    }

    /// Returns the events since the last call.
    pub fn take_engine_events(&mut self) -> Vec<EngineEvent> {
        std::mem::take(&mut self.events)
    }

    /// Returns after how many nanoseconds the next turn is needed, if no client has an event before.
    pub fn rest_ns(&mut self) -> i64 {
        let now_ns = boot_ns();
        let next_ns = match &self.transactions {
            Some(transactions) => transactions.next_in_ns(now_ns),
            None => self.commits.next_in_ns(now_ns),
        };
        self.next_turn_in_ns().min(next_ns).max(0)
    }

    /// Whether copies may be sent.
    fn may_send(&self) -> bool {
        match &self.transactions {
            Some(transactions) => transactions.is_open(),
            None => self.commits.may_send(),
        }
    }

    /// Whether a record is due soon, so that the broker's time and a fresh commit are needed.
    fn is_near(&self) -> bool {
        match (self.turns.next_ms(), self.clock.estimate_ms()) {
            (Some(turn_ms), Some(now_ms)) => turn_ms - now_ms < NEAR_MS || !self.blocked.is_empty(),
            (Some(_), None) => true,
            (None, _) => !self.blocked.is_empty(),
        }
    }

    /// Sets what the registry says about a delayed topic; `served` is `None` if nothing of it is served.
    pub fn serve(&mut self, number: usize, served: Option<Served>, dead_letter_partitions: u32) {
        let Some(topic) = self.topics.get_mut(number) else { return };
        let compression = |served: &Option<Served>| served.as_ref().map(|served| served.compression.clone());
        let compressed_otherwise = topic.served.is_some() && compression(&topic.served) != compression(&served);
        let mut written_otherwise = compressed_otherwise;
        if let (Some(served), None) = (&served, &self.transactions) {
            let wanted = Use::of(served, false);
            written_otherwise = topic.served.as_ref().is_some_and(|before| Use::of(before, false) != wanted);
            if served.replicated.is_some() {
                // before the first copy, because connecting and getting a producer id from Kafka take half a second
                self.producers.prepare(wanted, self.wake.as_fd(), &mut self.events);
            }
        }
        topic.served = served;
        topic.dead_letter_partitions = NonZeroU32::new(dead_letter_partitions);
        let served = self.topics.iter().filter_map(|topic| topic.served.as_ref());
        let controlled = served.filter(|served| served.has_control_topic).count();
        self.topics.iter_mut().for_each(|topic| topic.changes.share(controlled));
        // turns may come earlier now, and layouts may have grown
        let slots: Vec<usize> = self.slots.iter().filter(|(_, p)| p.topic == number).map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(partition) = self.slots.get_mut(slot) {
                partition.turn_ms = None;
                if written_otherwise {
                    // another producer must not overtake the present one
                    partition.step(Step::ReadAgain);
                    self.settling.push(slot);
                }
            }
            self.register(slot);
        }
        if compressed_otherwise && self.transactions.is_some() {
            self.roll_back(&Error::local(code::PURGE_QUEUE, "the compression of copies was changed"));
        }
    }

    /// Applies a change to records with this id from now on. Returns whether one was released recently.
    pub fn want(&mut self, number: usize, id: &[u8], change: Change) -> bool {
        self.topics.get_mut(number).is_some_and(|topic| topic.changes.want(id, change))
    }

    /// Withdraws the change of records with this id.
    pub fn withdraw(&mut self, number: usize, id: &[u8]) {
        if let Some(topic) = self.topics.get_mut(number) {
            topic.changes.withdraw(id);
        }
    }

    /// Withdraws all changes and forgets which records were released, because the topic was created again.
    pub fn withdraw_all(&mut self, number: usize) {
        if let Some(topic) = self.topics.get_mut(number) {
            topic.changes.forget();
        }
    }

    /// Refreshes the metadata of the producers, because one does not know a partition that should exist by now. By itself, a
    /// producer refreshes it only every five seconds.
    fn refresh_metadata(&mut self) {
        if self.refreshing_metadata.swap(true, Ordering::AcqRel) {
            return;
        }
        let transactional = self.transactions.as_ref().and_then(Transactions::producer);
        let producers = self.producers.iter().chain(transactional);
        let clients: Vec<Arc<Client>> = producers.map(|producer| Arc::clone(&producer.client)).collect();
        let refreshing_metadata = Arc::clone(&self.refreshing_metadata);
        thread::spawn(move || {
            for client in clients {
                let _ = client.look_at_topics(METADATA_TIMEOUT_MS); // the next refresh makes up for one that fails
            }
            thread::sleep(METADATA_PAUSE);
            refreshing_metadata.store(false, Ordering::Release);
        });
    }

    /// The client that is a member of the group, if there is one.
    #[must_use]
    pub fn consumer(&self) -> Option<Arc<Client>> {
        self.consumer.clone()
    }

    /// The delayed topics, by number.
    #[must_use]
    pub fn topics(&self) -> &[Topic] {
        &self.topics
    }
}
