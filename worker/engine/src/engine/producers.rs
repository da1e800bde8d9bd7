//! The clients that copies go through.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::topic::{Names, Target, TARGETS};
use crate::kafka::{Client, CopyHeaders, Error, Event, Kind, Load, TopicHandle};
use crate::writing::HeaderSink;

/// Copies go through the producer of their topic's compression, those that have to go alone through one that sends each
/// record by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Through {
    /// `compression.type`.
    pub compression: String,
    /// One record a request and partition.
    pub alone: bool,
}

/// A client and its topics.
pub struct Producer {
    /// By delayed topic and target; they go before the client.
    handles: Vec<TopicHandle>,
    /// The client.
    pub client: Arc<Client>,
}

impl Producer {
    /// Looks at the partitions of a delayed topic's topics, which may have grown. Waits for the answers.
    ///
    /// # Errors
    /// The first that isn't answered in time.
    pub fn look_at(&self, topic: usize, timeout_ms: i32) -> Result<(), Error> {
        TARGETS.into_iter().try_for_each(|target| self.client.look_at(self.handle(topic, target), timeout_ms))
    }

    /// Where copies to one of a delayed topic's topics go.
    #[must_use]
    pub fn handle(&self, topic: usize, target: Target) -> &TopicHandle {
        &self.handles[topic * TARGETS.len() + target as usize]
    }
}

/// All of them.
pub struct Producers {
    load: Load,
    /// librdkafka's, but for the compression.
    properties: Vec<(String, String)>,
    names: Vec<Names>,
    by_use: HashMap<Through, Producer>,
}

impl Producers {
    /// None is made before it is needed.
    #[must_use]
    pub fn new(load: Load, properties: Vec<(String, String)>, names: Vec<Names>) -> Self {
        Producers { load, properties, names, by_use: HashMap::new() }
    }

    /// Makes the one for this use, if it isn't there.
    ///
    /// # Errors
    /// It can't be made with these settings.
    pub fn make(&mut self, through: &Through, wake: BorrowedFd<'_>) -> Result<(), String> {
        if !self.by_use.contains_key(through) {
            let producer = self.new_producer(through, wake)?;
            self.by_use.insert(through.clone(), producer);
        }
        Ok(())
    }

    /// One that the caller keeps.
    ///
    /// # Errors
    /// It can't be made with these settings.
    pub fn new_producer(&self, through: &Through, wake: BorrowedFd<'_>) -> Result<Producer, String> {
        let mut properties = self.properties.clone();
        properties.push(("compression.type".into(), through.compression.clone()));
        if through.alone {
            properties.push(("batch.num.messages".into(), "1".into()));
        }
        let client = Arc::new(Client::new(self.load, Kind::Producer, &properties, wake)?);
        let handles = self
            .names
            .iter()
            .flat_map(|names| TARGETS.map(|target| client.topic(names.of(target))))
            .collect::<Result<Vec<_>, Error>>()
            .map_err(|e| e.to_string())?;
        Ok(Producer { handles, client })
    }

    /// The one for this use, if it was made.
    #[must_use]
    pub fn get(&self, through: &Through) -> Option<&Producer> {
        self.by_use.get(through)
    }

    /// What the clients tell, until none has anything to tell.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.by_use.values().flat_map(|producer| std::iter::from_fn(|| producer.client.poll()))
    }

    /// Those that were made.
    pub fn iter(&self) -> impl Iterator<Item = &Producer> + '_ {
        self.by_use.values()
    }

    /// Gives up all that is on its way, and the clients. Their last events are given back.
    pub fn replace(&mut self) -> Vec<Event> {
        let mut last = Vec::new();
        for (_, producer) in self.by_use.drain() {
            producer.client.purge();
            let deadline = super::clock::boot_ns() + 1_000_000_000;
            // what is purged is told a moment later
            while producer.client.outstanding() > 0 && super::clock::boot_ns() < deadline {
                last.extend(producer.client.wait(100));
            }
            last.extend(std::iter::from_fn(|| producer.client.poll()));
        }
        last
    }
}

impl HeaderSink for CopyHeaders {
    fn header(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.add(name, value);
    }
}
