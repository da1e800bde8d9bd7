//! The engine: one consumer, the producers of copies, and every record between them.
//!
//! `Engine::turn` does what there is to do, and tells what somebody has to decide: where a partition begins, what becomes of one
//! that stands still. It never waits for such a decision. `Running` calls it, in a thread of its own.

mod beginning;
mod calls;
mod changes;
mod changing;
mod clock;
mod commits;
mod congestion;
mod copying;
#[cfg(test)]
mod copying_tests;
mod delayed;
mod ending;
mod happening;
mod held;
mod histogram;
mod intake;
mod memory;
mod outcomes;
mod partition;
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
pub use happening::Happening;
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
use producers::Producers;
use rebalance::{Leaving, Revoking, Subscribing};
use slots::Slots;
use state::Step;
use transactions::Transactions;
use turns::Turns;

/// For an answer about topics' partitions: some milliseconds when all is well.
const LOOK_MS: i32 = 1000;
/// How long before something is due the broker's time and a fresh commit are asked for.
const NEAR_MS: i64 = 1000;
/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What is settled before the engine begins.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of the producers, but for their compression.
    pub producer: Vec<(String, String)>,
    /// Of the producer of probes.
    pub clock: Vec<(String, String)>,
    /// Where probes go.
    pub clock_topic: String,
    /// Memory for records that are held.
    pub window_bytes: usize,
    /// How long what is acknowledged goes uncommitted.
    pub commit_interval_ns: i64,
    /// How long a partition goes without a commit.
    pub renew_ns: i64,
    /// Copies and offsets are written in transactions; the producer's properties have a `transactional.id`.
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
    /// Partitions that have something to send and no room for it.
    blocked: Vec<usize>,
    /// Partitions that wait until nothing of them is on its way.
    settling: Vec<usize>,
    consumer: Option<Arc<Client>>,
    producers: Producers,
    commits: Commits,
    /// With `ExactlyOnce`, instead of `commits`.
    transactions: Option<Transactions>,
    memory: Memory,
    revoking: Option<Revoking>,
    /// The topics that are read.
    subscribed: Vec<String>,
    subscribing: Option<Subscribing>,
    leaving: Option<Leaving>,
    polled_at_ns: i64,
    /// Given to partitions so far.
    identities: u64,
    happenings: Vec<Happening>,
    scratch: Scratch,
    /// A thread looks at the producers' topics.
    looking: Arc<AtomicBool>,
    /// Written to by the clients when they have something to tell; it goes after them.
    wake: OwnedFd,
}

/// Memory that is used again and again.
#[derive(Default)]
struct Scratch {
    block: Vec<u8>,
    headers: writing::CopyHeaders,
}

impl Engine {
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// The system gives no descriptor.
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
            happenings: Vec::new(),
            scratch: Scratch::default(),
            looking: Arc::default(),
        })
    }

    /// One more delayed topic, numbered from 0 in this order; with `exactly_once` the only one, before all else.
    ///
    /// # Errors
    /// A producer doesn't take the names.
    pub fn add_topic(&mut self, names: Names) -> Result<(), String> {
        self.producers.add_topic(&names)?;
        let number = self.topics.len();
        self.by_topic.insert(names.front.clone(), number);
        self.by_topic.insert(names.delays.clone(), number);
        self.topics.push(Topic::new(names));
        Ok(())
    }

    /// Becomes a member of the group, with a client of these properties, or reads other topics than before. `grown`: those that
    /// have more partitions than when it joined.
    ///
    /// # Errors
    /// The client can't be made, or doesn't take it.
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
        self.consumer.as_ref().map_or(Ok(()), |consumer| consumer.subscribe(topics).map_err(|e| e.to_string()))
    }

    /// Does what there is to do now; false: there was nothing.
    pub fn turn(&mut self) -> bool {
        let mut busy = self.take_events();
        busy |= self.take_outcomes();
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

    /// What has happened since that somebody has to know or to decide.
    pub fn take_happenings(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.happenings)
    }

    /// How long nothing is to be done, unless a client has something to tell.
    pub fn rest_ns(&mut self) -> i64 {
        let now_ns = boot_ns();
        let next_ns = match &self.transactions {
            Some(transactions) => transactions.next_in_ns(now_ns),
            None => self.commits.next_in_ns(now_ns),
        };
        self.next_turn_in_ns().min(next_ns).max(0)
    }

    /// Copies may be sent.
    fn may_send(&self) -> bool {
        match &self.transactions {
            Some(transactions) => transactions.is_open(),
            None => self.commits.may_send(),
        }
    }

    /// Something will be due soon, so that the broker's time and a fresh commit are needed.
    fn is_near(&self) -> bool {
        match (self.turns.next_ms(), self.clock.estimate_ms()) {
            (Some(turn_ms), Some(now_ms)) => turn_ms - now_ms < NEAR_MS || !self.blocked.is_empty(),
            (Some(_), None) => true,
            (None, _) => !self.blocked.is_empty(),
        }
    }

    /// What the registry says of a delayed topic from now on.
    pub fn serve(&mut self, number: usize, served: Option<Served>, dead_letter_partitions: u32) {
        let Some(topic) = self.topics.get_mut(number) else { return };
        let compression = |served: &Option<Served>| served.as_ref().map(|served| served.compression.clone());
        let compressed_otherwise = topic.served.is_some() && compression(&topic.served) != compression(&served);
        if let (Some(served), None) = (&served, &self.transactions) {
            // before its first copy: connecting, and a number from Kafka, take half a second
            self.producers.prepare(&served.compression, false, self.wake.as_fd(), &mut self.happenings);
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
                if compressed_otherwise {
                    // another compression is another producer, which must not overtake this one
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

    /// From now on this is wanted of records of this id; true: one was released lately.
    pub fn want(&mut self, number: usize, id: &[u8], change: Change) -> bool {
        self.topics.get_mut(number).is_some_and(|topic| topic.changes.want(id, change))
    }

    /// Nothing is wanted of records of this id any more.
    pub fn withdraw(&mut self, number: usize, id: &[u8]) {
        if let Some(topic) = self.topics.get_mut(number) {
            topic.changes.withdraw(id);
        }
    }

    /// Nothing is wanted of any record any more, and what was released is forgotten: the topic is another one.
    pub fn withdraw_all(&mut self, number: usize) {
        if let Some(topic) = self.topics.get_mut(number) {
            topic.changes.forget();
        }
    }

    /// A partition that should be there by now is not known to a producer, which by itself looks every five seconds only.
    fn look_at_topics(&mut self) {
        if self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let transactional = self.transactions.as_ref().and_then(Transactions::producer);
        let producers = self.producers.iter().chain(transactional);
        let clients: Vec<Arc<Client>> = producers.map(|producer| Arc::clone(&producer.client)).collect();
        let looking = Arc::clone(&self.looking);
        thread::spawn(move || {
            for client in clients {
                let _ = client.look_at_topics(LOOK_MS); // what it isn't told now it will be told the next time
            }
            thread::sleep(LOOK_PAUSE);
            looking.store(false, Ordering::Release);
        });
    }

    /// The member of the group, if there is one.
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
