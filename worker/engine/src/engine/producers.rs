//! The producers of copies.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;

use super::ending::end;
use super::engine_event::EngineEvent;
use super::topic::{Names, Target, OWN_TARGETS};
use super::METADATA_TIMEOUT_MS;
use crate::kafka::{Client, Copy, CopyHeaders, Error, Event, Kind, Load, TopicHandle};
use crate::writing::HeaderSink;

/// A client and the topics that it produces to.
pub struct Producer {
    /// By delayed topic and target. They are dropped before the client.
    handles: Vec<TopicHandle>,
    /// Other ready topics, each from its first copy on.
    others: RefCell<HashMap<String, TopicHandle>>,
    /// The client of Kafka.
    pub client: Arc<Client>,
}

impl Producer {
    fn new(client: Arc<Client>, names: &[Names]) -> Result<Self, String> {
        let mut made = Producer { handles: Vec::new(), others: RefCell::default(), client };
        names.iter().try_for_each(|names| made.add_topic(names))?;
        Ok(made)
    }

    /// Ends the producer, and discards the copies that it has and their results.
    pub fn end(self) {
        self.client.purge();
        let Producer { handles, others, client } = self;
        drop((handles, others));
        end(client);
    }

    fn add_topic(&mut self, names: &Names) -> Result<(), String> {
        for target in OWN_TARGETS {
            let handle = self.client.topic(names.of(target)).map_err(|e| e.to_string())?;
            self.handles.push(handle);
        }
        Ok(())
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
                return self.client.produce(&self.handles[topic * OWN_TARGETS.len() + target as usize], copy)
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

/// After this many refused batches, a producer is replaced. librdkafka increments the producer's epoch with each refused batch, and
/// continues after 32,767 at 0 with the same producer id (2.16, `rd_kafka_pid_bump`). Kafka refuses a copy whose epoch is lower than
/// one that it has seen. It takes a copy with an epoch that it has seen for a repetition, and does not write it.
const MAX_REFUSED: u32 = 10_000;

struct Made {
    compression: String,
    /// Whether it sends each record in a batch of its own.
    alone: bool,
    /// Whether it is given no more copies. It ends when it has reported the results of those that it has.
    retired: bool,
    producer: Producer,
}

/// The producers for `AtLeastOnce`, and the settings of all producers.
pub struct Producers {
    load: Load,
    /// librdkafka's properties, without the compression.
    properties: Vec<(String, String)>,
    names: Vec<Names>,
    /// One for each compression, and one more for each compression for the copies that have to be sent alone.
    made: Vec<Made>,
}

impl Producers {
    /// No producer is created yet.
    #[must_use]
    pub fn new(load: Load, properties: Vec<(String, String)>) -> Self {
        Producers { load, properties, names: Vec::new(), made: Vec::new() }
    }

    /// Adds the topics of a delayed topic to all present and future producers.
    ///
    /// # Errors
    /// A name is not valid for a topic.
    pub fn add_topic(&mut self, names: &Names) -> Result<(), String> {
        self.made.iter_mut().try_for_each(|made| made.producer.add_topic(names))?;
        self.names.push(names.clone());
        Ok(())
    }

    /// Creates the producer for this use, if there is none. Returns false if it cannot be created; an event then says why.
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
        match self.new_producer(compression, alone, wake) {
            Ok(producer) => {
                self.made.push(Made { compression: compression.to_owned(), alone, retired: false, producer });
                true
            }
            Err(why) => {
                events.push(EngineEvent::log(format!("could not create a producer: {why}")));
                false
            }
        }
    }

    /// Creates a producer that belongs to the caller.
    ///
    /// # Errors
    /// librdkafka does not accept the settings or the names of the topics.
    pub fn new_producer(&self, compression: &str, alone: bool, wake: BorrowedFd<'_>) -> Result<Producer, String> {
        let mut properties = self.properties.clone();
        properties.push(("compression.type".into(), compression.into()));
        if alone {
            properties.push(("batch.num.messages".into(), "1".into()));
        }
        let client = Arc::new(Client::new(self.load, Kind::Producer, &properties, wake)?);
        let producer = Producer::new(client, &self.names)?;
        // not before it has its topics: a producer without topics would request the metadata of all topics in Kafka
        request_id_early(Arc::clone(&producer.client));
        Ok(producer)
    }

    /// Returns the producer for this use, if it was created.
    #[must_use]
    pub fn get(&self, compression: &str, alone: bool) -> Option<&Producer> {
        let is_it = |made: &&Made| made.alone == alone && made.compression == compression && !made.retired;
        let made = self.made.iter().find(is_it);
        made.map(|made| &made.producer)
    }

    /// Takes the events of all producers, until none has another.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.iter().flat_map(|producer| std::iter::from_fn(|| producer.client.poll()))
    }

    /// All producers, including those that are given no more copies.
    pub fn iter(&self) -> impl Iterator<Item = &Producer> + '_ {
        self.made.iter().map(|made| &made.producer)
    }

    /// Retires the producers that have had too many batches refused, so that the next copies go through new ones. Returns whether it
    /// retired any. If so, no copy may overtake those that the retired producers have in flight.
    pub fn retire_refused(&mut self) -> bool {
        let (ended, made): (Vec<Made>, Vec<Made>) =
            self.made.drain(..).partition(|made| made.retired && made.producer.client.outstanding() == 0);
        self.made = made;
        for Made { producer, .. } in ended {
            producer.end();
        }
        let mut retires = false;
        for made in self.made.iter_mut().filter(|made| !made.retired) {
            made.retired = made.producer.client.refused_batches() >= MAX_REFUSED;
            retires |= made.retired;
        }
        retires
    }

    /// Gives up all copies in flight. Returns the last events of the producers, and the producers. The caller handles the events
    /// before it ends the producers.
    pub fn replace(&mut self) -> (Vec<Event>, Vec<Producer>) {
        let made: Vec<Producer> = self.made.drain(..).map(|made| made.producer).collect();
        let mut last = Vec::new();
        for producer in &made {
            producer.client.purge();
            let deadline = super::clock::boot_ns() + 1_000_000_000;
            // the client reports purged copies a moment later
            while producer.client.outstanding() > 0 && super::clock::boot_ns() < deadline {
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
