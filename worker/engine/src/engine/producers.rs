//! The clients that copies go through.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;

use super::ending::end;
use super::happening::Happening;
use super::topic::{Names, Target, OWN_TARGETS};
use super::LOOK_MS;
use crate::kafka::{Client, Copy, CopyHeaders, Error, Event, Kind, Load, TopicHandle};
use crate::writing::HeaderSink;

/// A client and its topics.
pub struct Producer {
    /// By delayed topic and target; they go before the client.
    handles: Vec<TopicHandle>,
    /// Of other ready topics, from the first copy on.
    others: RefCell<HashMap<String, TopicHandle>>,
    /// The client.
    pub client: Arc<Client>,
}

impl Producer {
    fn new(client: Arc<Client>, names: &[Names]) -> Result<Self, String> {
        let mut made = Producer { handles: Vec::new(), others: RefCell::default(), client };
        names.iter().try_for_each(|names| made.add_topic(names))?;
        Ok(made)
    }

    /// It is given no more copies, and nobody wants to know what becomes of those that it has.
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

/// Where copies go. Outcomes come by other ways.
pub trait Output {
    /// Of a copy.
    type Headers: HeaderSink;

    /// For a copy with so many, or a few more.
    fn headers(&self, count: usize) -> Self::Headers;

    /// Queues a copy: how many bytes it has with its headers.
    ///
    /// # Errors
    /// `code::QUEUE_FULL`; or it can't be queued at all.
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

/// With each batch that Kafka refuses librdkafka counts up the producer's epoch, and after 32,767 comes 0, with the same producer id
/// (2.16, `rd_kafka_pid_bump`). Kafka refuses what comes with a lower epoch than it has seen, and takes what comes with one that it
/// has seen for a repetition, which it doesn't write: so there is a new producer long before.
const MOST_REFUSED: u32 = 10_000;

struct Made {
    compression: String,
    /// One record a request and partition.
    alone: bool,
    /// It is given no more copies, and ends when it has told what has become of those that it was given.
    retired: bool,
    producer: Producer,
}

/// All of them.
pub struct Producers {
    load: Load,
    /// librdkafka's, but for the compression.
    properties: Vec<(String, String)>,
    names: Vec<Names>,
    /// Copies go through the producer of their topic's compression, those that have to go alone through one that sends each
    /// record by itself.
    made: Vec<Made>,
}

impl Producers {
    /// None is made yet.
    #[must_use]
    pub fn new(load: Load, properties: Vec<(String, String)>) -> Self {
        Producers { load, properties, names: Vec::new(), made: Vec::new() }
    }

    /// One more delayed topic, of all producers that there are and will be.
    ///
    /// # Errors
    /// No topics can have these names.
    pub fn add_topic(&mut self, names: &Names) -> Result<(), String> {
        self.made.iter_mut().try_for_each(|made| made.producer.add_topic(names))?;
        self.names.push(names.clone());
        Ok(())
    }

    /// Makes the one for this use, if it isn't there; false: it can't be made, and a happening says why.
    pub fn prepare(
        &mut self,
        compression: &str,
        alone: bool,
        wake: BorrowedFd<'_>,
        happenings: &mut Vec<Happening>,
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
                happenings.push(Happening::log(format!("could not create a producer: {why}")));
                false
            }
        }
    }

    /// One that the caller keeps.
    ///
    /// # Errors
    /// It can't be made with these settings.
    pub fn new_producer(&self, compression: &str, alone: bool, wake: BorrowedFd<'_>) -> Result<Producer, String> {
        let mut properties = self.properties.clone();
        properties.push(("compression.type".into(), compression.into()));
        if alone {
            properties.push(("batch.num.messages".into(), "1".into()));
        }
        let client = Arc::new(Client::new(self.load, Kind::Producer, &properties, wake)?);
        let producer = Producer::new(client, &self.names)?;
        hurry(Arc::clone(&producer.client)); // not before it knows its topics: without any, it would ask for all that there are
        Ok(producer)
    }

    /// The one for this use, if it was made.
    #[must_use]
    pub fn get(&self, compression: &str, alone: bool) -> Option<&Producer> {
        let is_it = |made: &&Made| made.alone == alone && made.compression == compression && !made.retired;
        let made = self.made.iter().find(is_it);
        made.map(|made| &made.producer)
    }

    /// What the clients tell, until none has anything to tell.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.iter().flat_map(|producer| std::iter::from_fn(|| producer.client.poll()))
    }

    /// Those that were made.
    pub fn iter(&self) -> impl Iterator<Item = &Producer> + '_ {
        self.made.iter().map(|made| &made.producer)
    }

    /// The next copies go through new ones instead of those to which Kafka has refused much; true: there are such, and what these
    /// have on its way must not be overtaken.
    pub fn retire_refused(&mut self) -> bool {
        let (ended, made): (Vec<Made>, Vec<Made>) =
            self.made.drain(..).partition(|made| made.retired && made.producer.client.outstanding() == 0);
        self.made = made;
        for Made { producer, .. } in ended {
            producer.end();
        }
        let mut retires = false;
        for made in self.made.iter_mut().filter(|made| !made.retired) {
            made.retired = made.producer.client.refused_batches() >= MOST_REFUSED;
            retires |= made.retired;
        }
        retires
    }

    /// Gives up all that is on its way. Their last events, and the producers, which end after these.
    pub fn replace(&mut self) -> (Vec<Event>, Vec<Producer>) {
        let made: Vec<Producer> = self.made.drain(..).map(|made| made.producer).collect();
        let mut last = Vec::new();
        for producer in &made {
            producer.client.purge();
            let deadline = super::clock::boot_ns() + 1_000_000_000;
            // what is purged is told a moment later
            while producer.client.outstanding() > 0 && super::clock::boot_ns() < deadline {
                last.extend(producer.client.wait(100));
            }
            last.extend(std::iter::from_fn(|| producer.client.poll()));
        }
        (last, made)
    }
}

/// Has a new producer get its id at once. It asks for one when a broker has told it topics, or else each half second, and only a broker
/// that it stays connected to: with the first that it is told it leaves the one that told it (2.16, `rd_kafka_idemp_pid_fsm`).
fn hurry(client: Arc<Client>) {
    thread::spawn(move || {
        for _ in 0..2 {
            let _ = client.look_at_topics(LOOK_MS); // else it has its id later
        }
    });
}

impl HeaderSink for CopyHeaders {
    fn header(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.add(name, value);
    }
}
