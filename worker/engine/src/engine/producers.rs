//! The producers of copies.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;

use super::ending::end;
use super::engine_event::EngineEvent;
use super::topic::{Names, Target, OWN_TARGETS};
use super::{boot_ns, METADATA_TIMEOUT_MS};
use crate::kafka::{Client, Copy, CopyHeaders, Error, Event, Kind, Load, TopicHandle};
use crate::writing::HeaderSink;

/// A client and the topics that it produces to.
pub struct Producer {
    /// By delayed topic and target, each from its first copy on: one of many topics that a worker has nothing to write to costs nothing.
    /// They are dropped before the client.
    handles: Vec<(String, OnceCell<TopicHandle>)>,
    /// Other ready topics, each from its first copy on.
    others: RefCell<HashMap<String, TopicHandle>>,
    /// Whether Kafka has refused a copy because its epoch is outdated. Nothing that this producer reports can then be trusted.
    outdated: bool,
    /// The client of Kafka.
    pub client: Arc<Client>,
}

impl Producer {
    fn new(client: Arc<Client>, names: &[Names]) -> Self {
        let mut made = Producer { handles: Vec::new(), others: RefCell::default(), outdated: false, client };
        for names in names {
            made.add_topic(names);
        }
        made
    }

    /// Ends the producer, and discards the copies that it has and their results.
    pub fn end(self) {
        self.client.purge();
        let Producer { handles, others, client, .. } = self;
        drop((handles, others));
        end(client);
    }

    fn add_topic(&mut self, names: &Names) {
        self.handles.extend(OWN_TARGETS.map(|target| (names.of(target).to_owned(), OnceCell::new())));
    }

    fn handle(&self, index: usize) -> Result<&TopicHandle, Error> {
        let (name, handle) = &self.handles[index];
        match handle.get() {
            Some(made) => Ok(made),
            None => self.client.topic(name).map(|made| handle.get_or_init(|| made)),
        }
    }
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug)]
pub enum To<'a> {
    /// One of a delayed topic's own topics.
    Own(usize, Target),
    /// The ready topic of this name.
    Other(&'a str),
}

/// What queues copies. It does not report their results.
pub trait Output {
    /// The headers of a copy.
    type Headers: HeaderSink;

    /// Creates headers with room for `count`, which may grow.
    fn headers(&self, count: usize) -> Self::Headers;

    /// Queues a copy. Returns how many bytes it has, including its headers.
    ///
    /// # Errors
    /// `code::QUEUE_FULL` if there is no room now; any other code if it cannot be queued at all.
    fn produce(&self, to: To<'_>, copy: Copy<'_, Self::Headers>) -> Result<usize, Error>;
}

impl Output for Producer {
    type Headers = CopyHeaders;

    fn headers(&self, count: usize) -> CopyHeaders {
        self.client.copy_headers(count)
    }

    fn produce(&self, to: To<'_>, copy: Copy<'_, CopyHeaders>) -> Result<usize, Error> {
        let name = match to {
            To::Own(topic, target) => {
                return self.client.produce(self.handle(topic * OWN_TARGETS.len() + target as usize)?, copy)
            }
            To::Other(name) => name,
        };
        let mut others = self.others.borrow_mut();
        if !others.contains_key(name) {
            others.insert(name.to_owned(), self.client.topic(name)?);
        }
        self.client.produce(&others[name], copy)
    }
}

/// How many producers share the copies of one compression. Each has a connection of its own to each broker. A broker answers the requests
/// of a connection one after the other, and a request with copies only when all replicas in sync have them. A request of librdkafka has
/// the copies of one partition, so partitions that share a connection wait for each other.
const POOL_SIZE: usize = 4;

/// Queues copies through one producer or several. All copies to a partition go through the same one, so that they stay in order.
#[derive(Clone, Copy)]
pub struct ProducerPool<'a>(&'a [Producer]);

impl<'a> ProducerPool<'a> {
    /// A pool in which all copies go through one producer.
    #[must_use]
    pub fn of_one(producer: &'a Producer) -> Self {
        ProducerPool(std::slice::from_ref(producer))
    }
}

impl Output for ProducerPool<'_> {
    type Headers = CopyHeaders;

    fn headers(&self, count: usize) -> CopyHeaders {
        self.0[0].headers(count)
    }

    fn produce(&self, to: To<'_>, copy: Copy<'_, CopyHeaders>) -> Result<usize, Error> {
        let topic = match to {
            To::Own(topic, target) => topic * OWN_TARGETS.len() + target as usize,
            To::Other(name) => name.bytes().map(usize::from).sum(),
        };
        self.0[pool_index(self.0.len(), topic, copy.partition)].produce(to, copy)
    }
}

/// Returns which producer of a pool of this size a partition belongs to. Brokers often lead every third or fourth partition, so this must
/// not depend on the remainder of the partition's number alone.
fn pool_index(size: usize, topic: usize, partition: i32) -> usize {
    const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    const TOPIC_STEP: u64 = 31;
    let number = (topic as u64).wrapping_mul(TOPIC_STEP).wrapping_add(u64::from(partition.unsigned_abs()));
    // only the upper bits of the product are spread evenly
    let spread = number.wrapping_mul(GOLDEN_RATIO) >> 32;
    ((spread * size as u64) >> 32) as usize
}

/// After this many refused batches, a producer is replaced. librdkafka increments the producer's epoch with each refused batch, and
/// continues after 32,767 at 0 with the same producer id (2.16, `rd_kafka_pid_bump`). Kafka refuses a copy whose epoch is lower than
/// one that it has seen. It takes a copy with an epoch that it has seen for a repetition, and does not write it.
const MAX_REFUSED: u32 = 10_000;

/// The most bytes of a copy that is not compressed. Brokers close a connection on which a larger request begins (`socket.request.max.bytes`,
/// 100 MiB by default), and the client would send it again for ever. The difference is room for the rest of the request.
const MAX_UNCOMPRESSED_BYTES: &str = "104850000";

/// If a producer fails permanently within this time of its creation, Kafka probably refuses its successors, too. They are created when the
/// time is over.
const YOUNG_NS: i64 = 5_000_000_000;

/// The producers that share the copies of one compression.
struct Pool {
    compression: String,
    /// Whether it sends each record in a batch of its own.
    alone: bool,
    /// Whether it is given no more copies. It ends when it has reported the results of those that it has.
    retired: bool,
    created_at_ns: i64,
    producers: Vec<Producer>,
}

/// The producers for `AtLeastOnce`, and the settings of all producers.
pub struct Producers {
    load: Load,
    /// librdkafka's properties, without the compression.
    properties: Vec<(String, String)>,
    names: Vec<Names>,
    /// A pool for each compression, and one of a single producer for the copies of each compression that have to be sent alone.
    pools: Vec<Pool>,
    /// No producer is created before this time.
    create_at_ns: i64,
    /// What Kafka refuses the producers, and will presumably go on refusing.
    pub refused: Option<String>,
    /// The compression of the producers that Kafka refused last, and whether they send each record in a batch of its own.
    on_trial: Option<(String, bool)>,
}

impl Producers {
    /// No producer is created yet.
    #[must_use]
    pub fn new(load: Load, properties: Vec<(String, String)>) -> Self {
        Producers {
            load,
            properties,
            names: Vec::new(),
            pools: Vec::new(),
            create_at_ns: i64::MIN,
            refused: None,
            on_trial: None,
        }
    }

    /// Adds the topics of a delayed topic to all present and future producers.
    pub fn add_topic(&mut self, names: &Names) {
        for made in self.pools.iter_mut().flat_map(|pool| &mut pool.producers) {
            made.add_topic(names);
        }
        self.names.push(names.clone());
    }

    /// Creates the producers for this use, unless they exist. Returns false if they cannot be created now; an event or `refused` then
    /// says why.
    pub fn prepare(
        &mut self,
        compression: &str,
        alone: bool,
        wake: BorrowedFd<'_>,
        events: &mut Vec<EngineEvent>,
    ) -> bool {
        if self.get(compression, alone).is_some() {
            return true;
        }
        let created_at_ns = boot_ns();
        if created_at_ns < self.create_at_ns {
            return false;
        }
        let (size, further): (usize, &[(&str, &str)]) =
            if alone { (1, &[("batch.num.messages", "1")]) } else { (POOL_SIZE, &[]) };
        let made: Result<Vec<Producer>, String> =
            (0..size).map(|_| self.new_producer(compression, further, wake)).collect();
        match made {
            Ok(producers) => {
                let compression = compression.to_owned();
                self.pools.push(Pool { compression, alone, retired: false, created_at_ns, producers });
                true
            }
            Err(why) => {
                self.create_at_ns = created_at_ns + YOUNG_NS;
                events.push(EngineEvent::log(format!("could not create a producer: {why}")));
                false
            }
        }
    }

    /// Creates a producer with these further properties. It belongs to the caller.
    ///
    /// # Errors
    /// librdkafka does not accept the settings.
    pub fn new_producer(
        &self,
        compression: &str,
        further: &[(&str, &str)],
        wake: BorrowedFd<'_>,
    ) -> Result<Producer, String> {
        let mut properties = self.properties.clone();
        let limit = (compression == "none").then_some(("message.max.bytes", MAX_UNCOMPRESSED_BYTES));
        for (name, value) in std::iter::once(&("compression.type", compression)).chain(&limit).chain(further) {
            properties.push(((*name).into(), (*value).into()));
        }
        let client = Arc::new(Client::new(self.load, Kind::Producer, &properties, wake)?);
        let producer = Producer::new(client, &self.names);
        // not before it has a topic: a producer without topics would request the metadata of all topics in Kafka
        producer.handle(0).map_err(|e| e.to_string())?;
        request_id_early(Arc::clone(&producer.client));
        Ok(producer)
    }

    /// Returns the producers for this use, if they were created.
    #[must_use]
    pub fn get(&self, compression: &str, alone: bool) -> Option<ProducerPool<'_>> {
        let is_for_this = |pool: &&Pool| !pool.retired && pool.alone == alone && pool.compression == compression;
        self.pools.iter().find(is_for_this).map(|pool| ProducerPool(&pool.producers))
    }

    /// Takes the events of all producers, each with the index of its producer in `iter`, until none has another.
    pub fn events(&self) -> impl Iterator<Item = (usize, Event)> + '_ {
        self.iter().enumerate().flat_map(|(index, producer)| {
            std::iter::from_fn(move || producer.client.poll()).map(move |event| (index, event))
        })
    }

    /// Whether nothing that this producer reports can be trusted.
    #[must_use]
    pub fn is_outdated(&self, index: usize) -> bool {
        self.iter().nth(index).is_some_and(|producer| producer.outdated)
    }

    /// Trusts nothing more that this producer reports.
    pub fn distrust(&mut self, index: usize) {
        if let Some(producer) = self.pools.iter_mut().flat_map(|pool| &mut pool.producers).nth(index) {
            producer.outdated = true;
        }
    }

    /// Gives up the copies that a producer has in flight, because it has failed for good, and retires its pool. The other producers
    /// of the pool still report the results of their copies. Returns false if the pool was retired already.
    pub fn give_up(&mut self, index: usize, error: &Error) -> bool {
        let mut left = index;
        for pool in &mut self.pools {
            if let Some(failed) = pool.producers.get(left) {
                failed.client.purge();
                if boot_ns() < pool.created_at_ns + YOUNG_NS {
                    self.create_at_ns = pool.created_at_ns + YOUNG_NS;
                    self.on_trial = Some((pool.compression.clone(), pool.alone));
                    self.refused =
                        Some(format!("Kafka refuses producers of the worker ({error}). Check the worker's ACLs"));
                }
                return !std::mem::replace(&mut pool.retired, true);
            }
            left -= pool.producers.len();
        }
        false
    }

    /// Returns the producers that have to be created although no copy needs them yet, because only they show whether Kafka still refuses
    /// them. There are none once they have lived for a while.
    pub fn on_trial(&mut self) -> Option<(String, bool)> {
        let now_ns = boot_ns();
        let accepted =
            |pool: &Pool| !pool.retired && (self.create_at_ns..now_ns - YOUNG_NS).contains(&pool.created_at_ns);
        if self.refused.is_some() && self.pools.iter().any(accepted) {
            (self.refused, self.on_trial) = (None, None);
        }
        self.on_trial.clone()
    }

    /// All producers, including those that are given no more copies.
    pub fn iter(&self) -> impl Iterator<Item = &Producer> + '_ {
        self.pools.iter().flat_map(|pool| &pool.producers)
    }

    /// Retires the pools of which a producer has had too many batches refused, so that the next copies go through new ones. Returns
    /// whether it retired any. If so, no copy may overtake those that the retired producers have in flight.
    pub fn retire_refused(&mut self) -> bool {
        let has_ended = |pool: &Pool| pool.retired && pool.producers.iter().all(|made| made.client.outstanding() == 0);
        let (ended, pools) = self.pools.drain(..).partition(has_ended);
        self.pools = pools;
        ended.into_iter().flat_map(|pool: Pool| pool.producers).for_each(Producer::end);
        let mut retires = false;
        for pool in self.pools.iter_mut().filter(|pool| !pool.retired) {
            pool.retired = pool.producers.iter().any(|made| made.client.refused_batches() >= MAX_REFUSED);
            retires |= pool.retired;
        }
        retires
    }

    /// Gives up all copies in flight. Returns the last events of the producers that can be trusted, and the producers. The caller
    /// handles the events before it ends the producers.
    pub fn replace(&mut self) -> (Vec<Event>, Vec<Producer>) {
        let made: Vec<Producer> = self.pools.drain(..).flat_map(|pool| pool.producers).collect();
        let mut last = Vec::new();
        for producer in &made {
            producer.client.purge();
        }
        let deadline = boot_ns() + 1_000_000_000;
        for producer in made.iter().filter(|producer| !producer.outdated) {
            // the client reports purged copies a moment later
            while producer.client.outstanding() > 0 && boot_ns() < deadline {
                last.extend(producer.client.wait(100));
            }
            last.extend(std::iter::from_fn(|| producer.client.poll()));
        }
        (last, made)
    }
}

/// Has a new producer request its producer id at once. It requests one when it has received metadata, or else every half second, and
/// only from a broker that it stays connected to. The first metadata comes from the bootstrap connection, which it then closes, so it
/// needs metadata twice (2.16, `rd_kafka_idemp_pid_fsm`).
fn request_id_early(client: Arc<Client>) {
    thread::spawn(move || {
        for _ in 0..2 {
            let _ = client.look_at_topics(METADATA_TIMEOUT_MS); // if this fails, the producer gets its id later
        }
    });
}

impl HeaderSink for CopyHeaders {
    fn header(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.add(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partitions_that_a_broker_leads_are_shared_out_among_the_producers_of_a_pool() {
        for (topic, brokers, broker) in
            (0..9).flat_map(|topic| (1..9).map(move |brokers| (topic, brokers, brokers - 1)))
        {
            let led = (0..24).map(|number| number * brokers + broker);
            let mut partitions = [0; POOL_SIZE];
            led.for_each(|partition| partitions[pool_index(POOL_SIZE, topic, partition)] += 1);
            assert!(partitions.iter().all(|count| (3..=10).contains(count)), "{brokers} brokers: {partitions:?}");
        }
    }
}
