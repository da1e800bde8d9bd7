//! The producers of copies.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;

use super::engine_event::EngineEvent;
use super::producer::{Producer, ProducerPool};
use super::topic::{Names, Served};
use super::{boot_ns, METADATA_TIMEOUT_MS};
use crate::kafka::{Client, Error, Event, Kind, Load};

/// How many producers share the copies to topics with replicas. Each has a connection of its own to each broker. A broker answers the
/// requests of a connection one after the other, and a request with copies only when all replicas in sync have them. A request of
/// librdkafka has the copies of one partition, so partitions that share a connection wait for each other.
///
/// Without replicas, a broker answers at once. Then several connections only make more requests, each with fewer copies.
pub(super) const SHARED_BY: usize = 4;

/// Which copies a pool of producers is for. Its producers stay the same for as long as its topics have these settings, because copies that
/// go through others could overtake the present ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Use<'a> {
    compression: &'a str,
    /// How many producers share the copies.
    size: usize,
    /// Whether each record is sent in a batch of its own.
    alone: bool,
}

impl<'a> Use<'a> {
    /// The copies of the records of a delayed topic.
    #[must_use]
    pub fn of(served: &'a Served, alone: bool) -> Self {
        let size = if alone || served.replicated == Some(false) { 1 } else { SHARED_BY };
        Use { compression: &served.compression, size, alone }
    }
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

/// The producers that share the copies of one use.
struct Pool {
    compression: String,
    alone: bool,
    /// Whether it is given no more copies. It ends when it has reported the results of those that it has.
    retired: bool,
    created_at_ns: i64,
    producers: Vec<Producer>,
}

impl Pool {
    fn is_for(&self) -> Use<'_> {
        Use { compression: &self.compression, size: self.producers.len(), alone: self.alone }
    }
}

/// The producers for `AtLeastOnce`, and the settings of all producers.
pub struct Producers {
    load: Load,
    /// librdkafka's properties, without the compression.
    properties: Vec<(String, String)>,
    names: Vec<Names>,
    /// A pool for each use.
    pools: Vec<Pool>,
    /// No producer is created before this time.
    create_at_ns: i64,
    /// What Kafka refuses the producers, and will presumably go on refusing.
    pub refused: Option<String>,
    /// The use of the producers that Kafka refused last: compression, number, and whether they send each record in a batch of its own.
    on_trial: Option<(String, usize, bool)>,
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
    pub fn prepare(&mut self, wanted: Use<'_>, wake: BorrowedFd<'_>, events: &mut Vec<EngineEvent>) -> bool {
        if self.get(wanted).is_some() {
            return true;
        }
        let created_at_ns = boot_ns();
        if created_at_ns < self.create_at_ns {
            return false;
        }
        let Use { compression, size, alone } = wanted;
        let further: &[(&str, &str)] = if alone { &[("batch.num.messages", "1")] } else { &[] };
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
    pub fn get(&self, wanted: Use<'_>) -> Option<ProducerPool<'_>> {
        self.pools
            .iter()
            .find(|pool| !pool.retired && pool.is_for() == wanted)
            .map(|pool| ProducerPool(&pool.producers))
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
                    self.on_trial = Some((pool.compression.clone(), pool.producers.len(), pool.alone));
                    let is_right = error.name.ends_with("AUTHORIZATION_FAILED");
                    let what_to_do = if is_right { "Check the worker's ACLs" } else { "See the logs of the brokers" };
                    self.refused = Some(format!("Kafka refuses producers of the worker ({error}). {what_to_do}"));
                }
                return !std::mem::replace(&mut pool.retired, true);
            }
            left -= pool.producers.len();
        }
        false
    }

    /// Creates producers again after Kafka has refused some, although no copy needs them yet, because only they show whether Kafka still
    /// refuses them. Ends this when they have lived for a while.
    pub fn try_refused(&mut self, wake: BorrowedFd<'_>, events: &mut Vec<EngineEvent>) {
        let now_ns = boot_ns();
        let accepted =
            |pool: &Pool| !pool.retired && (self.create_at_ns..now_ns - YOUNG_NS).contains(&pool.created_at_ns);
        if self.refused.is_some() && self.pools.iter().any(accepted) {
            (self.refused, self.on_trial) = (None, None);
        }
        if let Some((compression, size, alone)) = self.on_trial.clone() {
            self.prepare(Use { compression: &compression, size, alone }, wake, events);
        }
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
